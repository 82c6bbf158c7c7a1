"""Replies by what was asked: a request that was answered is not sent again, however often a command is killed.

What is said in a debate follows from the replies, so a debate that was cut short is played again from these, word for
word, and continues where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from moot.engine.protocol import Ints, Sample, Sampler, SamplingParams
from moot.errors import EngineError
from moot.players.chat.chat import Chat, ChatRequest, Retried
from moot.players.chat.endpoint import Endpoint
from moot.players.chat.reading import MOST_TOKENS, Heard, Reply
from moot.util.files import Appended, digest, json_lines

Record = dict[str, Any]


class Replies(Appended):
    """A file with a line for each reply, written as it comes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._records: dict[str, Record] = {}
        self._asking, self._used = True, set[str]()
        for _, record, ended in json_lines(path):
            with suppress(
                KeyError, TypeError, ValueError, AttributeError
            ):  # a line that a kill cut short, or somebody else's
                if ended and _is_reply(record["reply"]):
                    self._records[record["asked"]] = record["reply"]

    def __len__(self) -> int:
        return len(self._records)

    async def of(self, asked: Any, ask: Callable[[], Awaitable[Record]]) -> Record:
        """The reply to `asked`, which is all that the reply depends on: the one that is here, or that of `ask`."""
        key = digest(asked)
        if (known := self._records.get(key)) is None:
            if not self._asking:
                raise EngineError("this was never asked")
            known = self._records[key] = await ask()
            self.add({"asked": key, "reply": known})
        self._used.add(key)
        return known

    @contextmanager
    def asking_nobody(self) -> Iterator[set[str]]:
        """What is not here is an EngineError meanwhile. Gives what is used of the file."""
        self._asking, self._used = False, set()
        try:
            yield self._used
        finally:
            self._asking = True


def _is_reply(record: Any) -> bool:
    """A sampler's, or a server's. Raises for what is neither."""
    if "samples" in record:
        samples = [(ids, isinstance(why, str)) for ids, why in record["samples"]]
        return bool(samples) and all(
            named and all(type(one) is int and 0 <= one < 1 << 31 for one in ids) for ids, named in samples
        )
    said = Reply(**record)
    words = isinstance(said.text, str) and isinstance(said.finish, str) and isinstance(said.stopped_on, str | None)
    counts = [count for count in (said.prompt_tokens, said.completion_tokens) if count is not None]
    return (
        words
        and all(type(count) is int and 0 <= count <= MOST_TOKENS for count in counts)
        and all(type(logprob) in (int, float) for logprob in said.first_token.values())
    )


class RememberedChat(Chat):
    """A chat server that is asked everything once. It goes by its model's name: a server may move."""

    def __init__(self, endpoint: Endpoint, replies: Replies, **options: Any) -> None:
        super().__init__(endpoint, **options)
        self._replies = replies

    async def reply(self, request: ChatRequest, heard: Heard | None = None, retried: Retried | None = None) -> Reply:
        async def ask() -> Record:
            return asdict(await Chat.reply(self, request, heard, retried))

        return Reply(**await self._replies.of([self.endpoint.model, asdict(request)], ask))


class RememberedSampler:
    """A sampler that is asked everything once. What it gives again has its tokens and no logprobs."""

    def __init__(self, sampler: Sampler, name: str, replies: Replies) -> None:
        """`name` tells the model, with its checkpoint, from others."""
        self._sampler, self._name, self._replies = sampler, name, replies

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        read = np.asarray(prompt, dtype=np.int32)

        async def ask() -> Record:
            samples = await self._sampler.sample(prompt, params, num_samples)
            return {"samples": [[sample.tokens.tolist(), sample.stop_reason] for sample in samples]}

        asked = [self._name, hashlib.sha256(read.tobytes()).hexdigest(), asdict(params), num_samples]
        kept = (await self._replies.of(asked, ask))["samples"]
        return [Sample(np.asarray(ids, np.int32), np.full(len(ids), np.nan, np.float32), why) for ids, why in kept]

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Any:
        return await self._sampler.compute_logprobs(tokens, temperature, start)

    async def score_continuations(
        self, prompt: Sequence[int] | Ints, candidates: Sequence[Sequence[int]], temperature: float = 1.0
    ) -> list[float]:
        return await self._sampler.score_continuations(prompt, candidates, temperature)
