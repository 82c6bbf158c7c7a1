"""What a chat server sends back, read with suspicion: events, errors, and answers as far as they have come."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from moot.util.safe_text import one_line
from moot.util.secrets import held_back, redact

MOST_BYTES = 16 << 20
MOST_CHARACTERS = 16 << 20
"""A server may send lines of a megabyte; one that never ends its line, or its answer, must not fill the memory."""
MOST_TOKENS = 1 << 40
"""A larger count is no count; with hundreds of digits it could not even be multiplied by a price."""


class ServerTrouble(Exception):
    """May pass: worth asking again, after `wait_s` where the server named a time."""

    def __init__(self, why: str, wait_s: float | None = None, everyone: bool = False) -> None:
        super().__init__(why)
        self.wait_s = wait_s
        self.everyone = everyone
        """A rate limit: all that talk to this server hold back, not only the one that was told."""


@dataclass(frozen=True)
class Reply:
    text: str
    finish: str
    """`stop` and `length` above all; servers know others."""
    stopped_on: str | None = None
    """The stop string that ended it, where the server tells; `end` where it tells that the model ended by itself."""
    prompt_tokens: int | None = None
    """None where the server does not say."""
    completion_tokens: int | None = None
    first_token: Mapping[str, float] = field(default_factory=dict)
    """What the first token with more than white space could have been, with logprobs, where the server tells."""


Heard = Callable[[str], None]


class GrowingReply:
    """An answer as far as it has come."""

    def __init__(self, heard: Heard, key: str | None = None) -> None:
        self._heard, self._key = heard, key
        self._pieces, self._length, self._untold = list[str](), 0, ""
        self.finish: str | None = None
        self._stopped_on: str | None = None
        self._tokens: tuple[int | None, int | None] = (None, None)
        self._first: dict[str, float] = {}

    @property
    def heard_any(self) -> bool:
        return bool(self._pieces)

    def take(self, chunk: Any) -> bool:
        """One event of a stream, or a whole answer. Whether it says anything: text, or thoughts before it."""
        if not isinstance(chunk, dict):
            raise ServerTrouble(f"sent what is no answer: {shown(repr(chunk), 60)}")
        if chunk.get("error"):
            raise ServerTrouble(f"reported an error in the middle of an answer ({shown(_error_text(chunk), 200)})")
        if isinstance(usage := chunk.get("usage"), dict):
            self._tokens = (_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(first, dict):
            return False  # an event with the usage alone
        message = first.get("delta") or first.get("message")
        if piece := _content(message):
            self._length += len(piece)
            if self._length > MOST_CHARACTERS:
                raise ServerTrouble("sent an answer without end")
            self._pieces.append(piece)
            self._tell(piece)
        self._first = self._first or _top_logprobs(first.get("logprobs"))
        if isinstance(finish := first.get("finish_reason"), str) and finish:
            if finish in ("abort", "error"):
                raise ServerTrouble(f"gave up in the middle of an answer ({finish})")
            self.finish = finish
            for name in ("stop_reason", "matched_stop"):
                if name in first and finish == "stop":
                    self._stopped_on = first[name] if isinstance(first[name], str) else "end"
        return isinstance(message, dict) and any(value for name, value in message.items() if name != "role")

    def _tell(self, piece: str) -> None:
        """Passes on what is certain to hold no part of the key."""
        self._untold += piece
        certain = len(self._untold) - held_back(self._untold, self._key)
        if told := redact(self._untold[:certain]):
            self._heard(told)
        self._untold = self._untold[certain:]

    def reply(self) -> Reply:
        if self.finish is None:
            what = "ended in the middle of an answer" if self.heard_any else "sent an answer with nothing in it"
            raise ServerTrouble(what)
        if self._untold:
            self._heard(redact(self._untold))
            self._untold = ""
        # Half a surrogate pair may come in one piece and half in the next; what stays half is no character.
        text = "".join(self._pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return Reply(redact(text), self.finish, self._stopped_on, *self._tokens, self._first)


def _content(message: Any) -> str:
    """Text, or a list of parts with text in them. What a model thinks comes under another name and is not said."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _top_logprobs(given: Any) -> dict[str, float]:
    """What the first token with more than white space could have been; of alike spellings the likeliest."""
    tokens = given.get("content") if isinstance(given, dict) else None
    told = (token for token in tokens if isinstance(token, dict)) if isinstance(tokens, list) else ()
    said = next((token for token in told if str(token.get("token") or "").strip()), {})
    top: dict[str, float] = {}
    others = said.get("top_logprobs")
    for other in [said, *(others if isinstance(others, list) else ())]:
        name, logprob = (other.get("token"), other.get("logprob")) if isinstance(other, dict) else (None, None)
        if isinstance(name, str) and isinstance(logprob, int | float) and logprob <= 0:
            top[name] = max(float(logprob), top.get(name, -math.inf))
    return top


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None


def read_json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ServerTrouble(f"sent what is not JSON: {shown(raw[:4000].decode('utf-8', 'replace'), 60)}") from None


async def events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of server-sent events. Lines end at line feeds alone: JSON may hold other separators."""
    buffer, data = b"", list[bytes]()
    async for piece in pieces:
        *lines, buffer = (buffer + piece).split(b"\n") if b"\n" in piece else (buffer + piece,)
        if len(buffer) + sum(map(len, data)) > MOST_BYTES:
            raise ServerTrouble(f"sent a line of more than {MOST_BYTES >> 20} MiB")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    if buffer.startswith(b"data:"):
        data.append(buffer[5:].strip())
    if data:
        yield b"\n".join(data)


# Errors


def shown(text: str, width: int) -> str:
    """What a server sent, as it may stand in a message: without the key, which is struck out before anything is cut."""
    return one_line(redact(text), width)


def retry_after(headers: httpx.Headers) -> float | None:
    """Seconds, or a date; None where there is neither, whatever stands there instead."""
    given = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]*)?", given):
        return float(given)
    try:
        when = parsedate_to_datetime(given)
        return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def is_packed(response: httpx.Response) -> bool:
    return response.headers.get("content-encoding", "").strip().lower() not in ("", "identity")


async def at_most(response: httpx.Response, most: int) -> tuple[bytes, bool]:
    """The beginning of a body, and whether that is all of it. Of a packed one, nothing."""
    raw = bytearray()
    if is_packed(response):
        return b"", False
    async for piece in response.aiter_bytes():
        raw += piece
        if len(raw) > most:
            return bytes(raw[:most]), False
    return bytes(raw), True


def error_in(raw: bytes) -> str:
    """What a server says went wrong, in one line; servers word it in several ways."""
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        return shown(raw.decode("utf-8", "replace"), 200)
    return shown(_error_text(given), 200)


def _error_text(given: Any) -> str:
    for name in ("error", "message", "detail"):
        if isinstance(given, dict) and given.get(name):
            return _error_text(given[name])
    return given if isinstance(given, str) else json.dumps(given)
