"""Asks an OpenAI-compatible server: text in, text out; no tokens, no logprobs, no torch.

Servers differ in what they accept and in how they fail. A setting that a server says it does not know is left out from
then on, and noted. What may pass (no connection, a rate limit, a server error, a stream that broke off) is asked again,
a bounded number of times; half an answer is thrown away, never kept as a turn. What will not pass is said at once.

    EngineError
      ServerRefused   the server understood and said no; asking again would not help
      Unanswered      all tries were used up

It stands on httpx, not on the `openai` client (tried: 3.51). That client unpacks what a server packed, 50 MB from a few
KB; it waits as long as comments come, asks no more once a stream has begun, follows redirects, and takes an answer that
is not streamed, or a line without end, for an empty one. All of this file would remain.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from moot.debate.types import Message
from moot.errors import EngineError
from moot.players.chat.endpoint import Endpoint
from moot.players.chat.reading import (
    MOST_BYTES,
    GrowingReply,
    Heard,
    Reply,
    ServerTrouble,
    at_most,
    error_in,
    events,
    is_packed,
    read_json,
    retry_after,
    shown,
)
from moot.util.safe_text import one_line


class ServerRefused(EngineError):
    """The server understood and said no. The message says what to change."""


class Unanswered(EngineError):
    """No whole answer came in all the tries there were."""


@dataclass(frozen=True)
class Patience:
    retries: int = 5
    """How often to ask again."""
    timeout_s: float = 300.0
    """Longest silence of a server, before its answer and between any two pieces of it."""
    first_wait_s: float = 0.5
    """Before the first retry; doubles with each, and is spread at random so that many do not come back at once."""
    longest_wait_s: float = 60.0
    """A server that asks for a longer wait is not waited for."""
    total_s: float = 3600.0
    """Longest time for one answer with all tries and waits; longer only where each try may be silent that long."""

    @property
    def deadline_s(self) -> float:
        return max(self.total_s, (self.retries + 1) * (self.timeout_s + self.longest_wait_s))


@dataclass(frozen=True)
class ChatRequest:
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    stop: str = ""
    """Where the answer is over; empty for where the model ends it."""
    seed: int | None = None
    continues: bool = False
    """The last message is the beginning of the answer."""
    top_logprobs: int = 0
    """How many of the likeliest first tokens are wanted, with their logprobs."""


Retried = Callable[[str, float], None]
"""Why what was heard so far does not count, and how many seconds from now it is asked for again."""


class Chat:
    """One endpoint. Any number of requests may be under way at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        patience: Patience = Patience(),
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.endpoint, self.patience = endpoint, patience
        self.notes: list[str] = []
        """What had to be left out for this server."""
        self._sleep, self._rng = sleep, rng or random.Random()
        self._left_out: set[str] = set()
        self._open_at = 0.0
        # A few bytes may unpack to gigabytes, and several packings may lie in one another: nothing is unpacked here.
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        bearer = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        self._client = httpx.AsyncClient(
            headers={**headers, **bearer},
            timeout=httpx.Timeout(patience.timeout_s, connect=min(10.0, patience.timeout_s), pool=None),
            limits=httpx.Limits(max_connections=None),
            transport=transport,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def reply(self, request: ChatRequest, heard: Heard | None = None, retried: Retried | None = None) -> Reply:
        """A whole answer, piece by piece to `heard` on the way. Raises EngineError."""
        try:
            async with asyncio.timeout(self.patience.deadline_s):
                return await self._insist(request, heard or (lambda piece: None), retried)
        except TimeoutError:
            limit = f"{self.patience.deadline_s:g} s"
            raise Unanswered(f"{self.endpoint.base_url} gave no whole answer within {limit}") from None

    async def _insist(self, request: ChatRequest, heard: Heard, retried: Retried | None) -> Reply:
        tries = 0
        while True:
            await self._hold_back()
            try:
                return await self._ask(request, heard)
            except ServerTrouble as trouble:
                tries += 1
                if tries > self.patience.retries:
                    tried = "" if tries == 1 else f", {tries} times in a row"
                    raise Unanswered(f"{self.endpoint.base_url} {trouble}{tried}") from None
                wait = self._wait(tries, trouble)
                if retried:
                    retried(f"{self.endpoint.base_url} {trouble}", wait)
                if trouble.everyone:
                    self._open_at = max(self._open_at, asyncio.get_running_loop().time() + wait)
                await self._sleep(wait)

    def _wait(self, tries: int, trouble: ServerTrouble) -> float:
        longest = self.patience.longest_wait_s
        spread = self._rng.uniform(0.5, 1.0) * min(longest, self.patience.first_wait_s * 2.0 ** (tries - 1))
        if trouble.wait_s is None:
            return spread
        if trouble.wait_s > longest:
            raise self._refused(f"{trouble}, and asks to wait {trouble.wait_s:.0f} s; try again after that")
        return trouble.wait_s + min(spread, 1.0)

    async def _hold_back(self) -> None:
        left = self._open_at - asyncio.get_running_loop().time()
        if left > 0:
            await self._sleep(left + self._rng.uniform(0, min(left, 1.0)))

    def _refused(self, why: str) -> ServerRefused:
        return ServerRefused(f"{self.endpoint.base_url} {why}")

    # One try

    async def _ask(self, request: ChatRequest, heard: Heard) -> Reply:
        silence = asyncio.timeout(self.patience.timeout_s)
        url = self.endpoint.base_url.rstrip("/") + "/chat/completions"
        growing = GrowingReply(heard, self.endpoint.key)
        try:
            # The client's own time-out counts bytes; comments that keep a connection open are bytes and say nothing.
            async with silence:
                while True:
                    # Not httpx's own JSON: it cannot write half a surrogate pair, and a question may hold one.
                    content = json.dumps(self._body(request)).encode()
                    async with self._client.stream("POST", url, content=content) as response:
                        if response.status_code == 200:
                            await self._listen(response, growing, silence)
                            return growing.reply()
                        self._adapt(response, (await at_most(response, 1 << 16))[0])  # a server may send a whole page
        except ServerTrouble:
            if growing.finish is None:
                raise
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise self._refused(f"cannot be asked ({error}); check --base-url and the key") from None
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            if growing.finish is None:
                raise ServerTrouble(f"said nothing for {self.patience.timeout_s:g} s") from None
        except httpx.TransportError as error:
            if growing.finish is None:
                raise ServerTrouble(_what(error, growing)) from None
        return growing.reply()  # it broke after the end of the answer, which is whole

    async def _listen(self, response: httpx.Response, growing: GrowingReply, silence: asyncio.Timeout) -> None:
        if is_packed(response):
            packing = shown(response.headers["content-encoding"], 40)
            raise self._refused(f"packed its answer ({packing}), which was not asked for; turn that off there")
        if response.headers.get("content-type", "").startswith("application/json"):
            raw, whole = await at_most(response, MOST_BYTES)
            if not whole:
                size = f"{MOST_BYTES >> 20} MiB"
                raise self._refused(f"sent an answer of more than {size}; give a smaller --max-tokens")
            growing.take(read_json(raw))  # a server that does not stream
            return
        loop = asyncio.get_running_loop()
        async for event in events(response.aiter_bytes()):
            if event.strip() == b"[DONE]":
                return
            if growing.take(read_json(event)) and growing.finish is None:
                silence.reschedule(loop.time() + self.patience.timeout_s)

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": _messages(request.messages, fold="system" in self._left_out),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }
        if request.stop:
            body["stop"] = [request.stop]
        if request.continues:
            body |= CONTINUING
        if request.seed is not None:
            body["seed"] = request.seed
        if request.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if "max_tokens" in self._left_out:
            body["max_completion_tokens"] = request.max_tokens
        return {name: value for name, value in body.items() if name not in self._left_out}

    # What is not an answer

    def _adapt(self, response: httpx.Response, raw: bytes) -> None:
        """Leaves out what the server does not know, so that the request can be sent again; raises for all else."""
        status, said, words = response.status_code, error_in(raw), raw.decode("utf-8", "replace")
        told = f"answered {status}" + (f" ({said})" if said else "")
        if status in (400, 422):
            if _NOT_KNOWN.search(words) and any(name in words for name in CONTINUING):
                why = "cannot continue an answer that is begun, which sections given needs"
                raise self._refused(f"{why}; use sections asked or sampled ({said})")
            if "logprobs" in words and "top_logprobs" not in self._left_out:
                # Whatever it is refused for, what such a server says is a verdict without them.
                return self._leave_out("logprobs", "top_logprobs")
            if field_ := _unknown_field(words, self._left_out):
                return self._leave_out(field_)
        if status == 429 and "insufficient_quota" not in words:
            why = told.replace("429", "429, too many requests", 1)
            raise ServerTrouble(why, retry_after(response.headers), everyone=True)
        if status in (408, 425) or (status >= 500 and status != 501):
            raise ServerTrouble(told, retry_after(response.headers))
        if 300 <= status < 400:
            other = shown(response.headers.get("location", "?"), 80)
            raise self._refused(f"{told}: it points to {other}; give the new place as --base-url")
        raise self._refused(f"{told}; {_REMEDIES.get(status, 'check --base-url and --model')}")

    def _leave_out(self, *names: str) -> None:
        self._left_out.update(names)
        if told := _CONSEQUENCES.get(names[0]):
            self.notes.append(f"{self.endpoint.model} at {self.endpoint.base_url} {told}")


CONTINUING = {"continue_final_message": True, "add_generation_prompt": False}
"""How servers are asked to continue a last message that is the assistant's own."""
_CONSEQUENCES = {
    "logprobs": "gives no probabilities: the word that it says counts",
    "temperature": "takes no temperature: its seats speak at the server's own",
    "stop": "takes no stop string: answers may run on, and what follows the last section is cut off here",
    "seed": "takes no seed: asking again may give other answers",
}
_REMEDIES = {
    400: "the request does not suit this server or model: see what it says, and check --model and --max-tokens",
    401: "set OPENAI_API_KEY to a key it takes",
    402: "the account has nothing left to spend",
    403: "the key in OPENAI_API_KEY may not use this model",
    404: "check --base-url, which usually ends in /v1, and --model",
    413: "the debate has grown too long for it: use fewer --rounds or a smaller --max-tokens",
    429: "the account's quota is used up",
}
_NOT_KNOWN = re.compile(
    r"(?i)unsupported|not support|unexpected|unrecogni[sz]ed|unknown|extra (?:input|field)s?|not (?:permitted|allowed)"
)
_ROLE = re.compile(r"system role|role.{0,20}system|roles must alternate", re.I)


def _unknown_field(said: str, left_out: set[str]) -> str | None:
    """The setting this refusal is about, if it can be done without. Not one whose value is out of range."""
    if "system" not in left_out and _ROLE.search(said):
        return "system"
    if not _NOT_KNOWN.search(said):
        return None
    names = ("stream_options", "max_tokens", "temperature", "seed", "stop")
    return next((name for name in names if name not in left_out and re.search(rf"\b{name}\b", said)), None)


def _what(error: httpx.TransportError, growing: GrowingReply) -> str:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"cannot be reached ({one_line(str(error) or type(error).__name__)})"
    if growing.heard_any:
        return "broke off in the middle of an answer"
    return f"closed the connection without an answer ({type(error).__name__})"


_SPECIAL = re.compile(r"<(?=\||/?s>|(?:start|end)_of_turn>|eos>|bos>)")


def _messages(messages: Sequence[Message], fold: bool) -> list[dict[str, str]]:
    """What one agent writes must not end another's turn: the spelling of special tokens is broken."""
    given = []
    for message in messages:
        content = message.content if message.role == "assistant" else _SPECIAL.sub("< ", message.content)
        given.append({"role": message.role, "content": content if content.strip() else "(nothing)"})  # some refuse none
    if fold and len(given) > 1 and given[0]["role"] == "system":
        given[1]["content"] = f"{given[0]['content']}\n\n{given[1]['content']}"
        return given[1:]
    return given
