"""A chat server without a socket: answers in pieces, whole or broken, and what one call to it came to."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx

from moot.debate.types import Message
from moot.errors import EngineError
from moot.players.chat.chat import Chat, ChatRequest, Patience
from moot.players.chat.endpoint import Endpoint
from moot.players.chat.reading import Reply

REQUEST = ChatRequest((Message("system", "Be brief."), Message("user", "Two and two?")), 100, 0.7, "</comparison>")
BASE = "http://server.test/v1"


class Pieces(httpx.AsyncByteStream):
    """A body that comes in pieces, and may break."""

    def __init__(self, pieces: Sequence[bytes | Exception | float]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, float):
                await asyncio.sleep(piece)
                continue
            yield piece


def event(
    content: str | None = None, finish: str | None = None, usage: tuple[int, int] | None = None, **more: Any
) -> bytes:
    chunk: dict[str, Any] = {
        "choices": [
            {"index": 0, "delta": {} if content is None else {"content": content}, "finish_reason": finish, **more}
        ]
    }
    if usage:
        chunk["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n\n"


DONE = b"data: [DONE]\n\n"
GOOD = [
    event("Fo"),
    event("ur"),
    event(finish="stop"),
    b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}\n\n',
    DONE,
]


def stream(*pieces: bytes | Exception | float) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(pieces))


def good() -> httpx.Response:
    return stream(*GOOD)


class Server(httpx.AsyncBaseTransport):
    """Gives the answers in turn, the last of them for ever; keeps what it was asked."""

    def __init__(self, *answers: Callable[[], httpx.Response]) -> None:
        self._answers, self.bodies, self.headers, self.urls = (
            list(answers),
            list[Any](),
            list[httpx.Headers](),
            list[str](),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        self.headers.append(request.headers)
        self.urls.append(str(request.url))
        return (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])()


class Asked:
    """What one call came to."""

    def __init__(
        self,
        server: Server,
        patience: Patience = Patience(retries=2),
        key: str | None = None,
        request: ChatRequest = REQUEST,
    ) -> None:
        self.server, self.pieces, self.waits, self.again = server, list[str](), list[float](), list[str]()
        self.reply: Reply | None = None
        self.error: EngineError | None = None

        async def sleep(seconds: float) -> None:
            self.waits.append(seconds)

        async def ask() -> None:
            chat = Chat(Endpoint(BASE, "m", key), patience, transport=server, sleep=sleep, rng=random.Random(0))
            try:
                self.reply = await chat.reply(request, self.pieces.append, lambda why, wait: self.again.append(why))
            except EngineError as error:
                self.error = error
            self.notes = chat.notes
            await chat.close()

        asyncio.run(ask())


def raising(error: Exception) -> Callable[[], httpx.Response]:
    def answer() -> httpx.Response:
        raise error

    return answer
