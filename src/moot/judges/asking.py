"""A judge without a seat is asked: it reads, thinks, and is then asked for one of two words. Their probability counts.

Where there are tokens, the request for the verdict continues the sampled thinking as it stands, so that an engine has
all of it in its cache and the verdict costs one step. A chat server is asked in players/chat/chat_judge.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np

from moot.debate.checks import Ballot, Check, Show
from moot.debate.play import Speak
from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.types import Message, Question
from moot.engine.protocol import SamplingParams
from moot.errors import ConfigError
from moot.judges.ballots import WORDS, share_of_first, spellings
from moot.rl.rollout import Guest, Player


@dataclass(frozen=True)
class Asked:
    """One check: what a judge is asked about one answer, or about two in this order."""

    question: Question
    answers: tuple[str, ...]
    ballot: Ballot = "approval"
    show: Show = "solution"
    prompts: Prompts = DEFAULT

    @property
    def message(self) -> Message:
        """What the judge thinks about."""
        say = self.prompts.say
        entries = self.answers
        if self.ballot == "pairs":
            named = zip(self.words, self.answers, strict=True)
            entries = tuple(say("judges.pairs_entry", names=word, answers=answer) for word, answer in named)
        text = say(f"judges.{self.ballot}_{self.show}", question=self.question.text, answers="\n\n".join(entries))
        return Message("user", text)

    @property
    def verdict(self) -> Message:
        return Message("user", self.prompts.say(f"judges.{self.ballot}_verdict"))

    @property
    def words(self) -> tuple[str, str]:
        return WORDS[self.ballot]


def texts_digest(prompts: Prompts, ballot: Ballot, show: Show) -> str:
    """The same for the same texts of this way to judge, whatever else the file holds."""
    if ballot == "lines":
        return prompts.digest  # these are spread over the whole file
    names = (f"{ballot}_{show}", f"{ballot}_verdict", *(["pairs_entry"] if ballot == "pairs" else []))
    return hashlib.sha256("\x1f".join(prompts.texts[f"judges.{name}"] for name in names).encode()).hexdigest()[:16]


class Judge(Protocol):
    async def check(self, asked: Asked, params: SamplingParams) -> Check:
        """Thinks under `params`. Raises EngineError."""
        ...

    def speaker(self, params: SamplingParams, limits: Mapping[str, int]) -> Speak:
        """For one ballot of comparison lines, with the most tokens of each section."""
        ...


@runtime_checkable
class CanJudge(Protocol):
    """Who takes part in text and can judge as well."""

    def judge(self) -> Judge: ...


def judge_of(guest: Guest | CanJudge) -> Judge:
    """Whoever has a name can judge."""
    if isinstance(guest, Player):
        return TokenJudge(guest)
    if isinstance(guest, CanJudge):
        return guest.judge()
    raise ConfigError(f"a judge must be a model or a chat server, got {type(guest).__name__}")


class TokenJudge:
    """A model that is heard through its sampler."""

    def __init__(self, player: Player) -> None:
        self._player, self._sampler, self._rendering = player, player.sampler, player.rendering
        self._spelled = lru_cache(lambda word: spellings(word, lambda text: self._rendering.encode(text).tolist()))

    async def check(self, asked: Asked, params: SamplingParams) -> Check:
        prompt = self._rendering.prompt([asked.message])
        (sample,) = await self._sampler.sample(prompt, replace(params, stop=self._rendering.stop_ids))
        # The sampled tokens stay as they are: tokenised anew they might differ, and would not be in the cache.
        whole = np.concatenate([prompt, sample.tokens, self._rendering.suffix(sample.tokens, asked.verdict)])
        first, second = (self._spelled(word) for word in asked.words)
        logprobs = await self._sampler.score_continuations(whole, [*first, *second])
        value = share_of_first(logprobs[: len(first)], logprobs[len(first) :])
        return Check(value, self._rendering.said(sample.tokens)[0], len(sample.tokens))

    def speaker(self, params: SamplingParams, limits: Mapping[str, int]) -> Speak:
        return self._player.speaker(params, params.seed, limits)
