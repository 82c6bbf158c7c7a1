"""A judge without a seat is asked: it reads, thinks, and is then asked for one of two words. Their probability counts.

Where there are tokens, the request for the verdict continues the sampled thinking as it stands, so that an engine has
all of it in its cache and the verdict costs one step. A chat server is asked in players/chat/chat_judge.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np

from moot.debate.checks import Ballot, Check, Show
from moot.debate.play import Speak
from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.types import Message, Question
from moot.engine.protocol import Datum, Floats, Ints, Sample, SamplingParams
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
    rule: str = ""
    """Of approval: the one rule that it is about. The judge then reads that and not the question."""

    @property
    def message(self) -> Message:
        """What the judge thinks about."""
        say = self.prompts.say
        if self.rule:
            return Message("user", say("judges.rule", rule=self.rule, answers="\n\n".join(self.answers)))
        entries = self.answers
        if self.ballot == "pairs":
            named = zip(self.words, self.answers, strict=True)
            entries = tuple(say("judges.pairs_entry", names=word, answers=answer) for word, answer in named)
        text = say(f"judges.{self.ballot}_{self.show}", question=self.question.text, answers="\n\n".join(entries))
        return Message("user", text)

    @property
    def verdict(self) -> Message:
        return Message("user", self.prompts.say(f"judges.{'rule' if self.rule else self.ballot}_verdict"))

    @property
    def words(self) -> tuple[str, str]:
        return WORDS[self.ballot]


def texts_digest(prompts: Prompts, ballot: Ballot, show: Show, each_rule: bool = False) -> str:
    """The same for the same texts of this way to judge, whatever else the file holds."""
    if ballot == "lines":
        return prompts.digest  # these are spread over the whole file
    names = (f"{ballot}_{show}", f"{ballot}_verdict", *(["pairs_entry"] if ballot == "pairs" else []))
    names = ("rule", "rule_verdict") if each_rule else names
    return hashlib.sha256("\x1f".join(prompts.texts[f"judges.{name}"] for name in names).encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Heard:
    """A check in tokens, for a judge that learns: what was read, thought and asked for, and what may be said to it."""

    prompt: Ints
    thinking: Sample
    request: Ints
    said: tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]
    """The spellings of the first word, and of the second."""
    logprobs: tuple[Sequence[float], Sequence[float]]
    """Theirs."""

    @property
    def value(self) -> float:
        return share_of_first(*self.logprobs)

    @property
    def before(self) -> Ints:
        """All that stands before the word."""
        return np.concatenate([self.prompt, self.thinking.tokens, self.request])

    def likeliest(self, first: bool) -> tuple[tuple[int, ...], float]:
        """The spelling of a word, and its logprob."""
        which = 0 if first else 1
        logprob, spelled = max(zip(self.logprobs[which], self.said[which], strict=True))
        return spelled, logprob

    def datum(self, word: Sequence[int], logprobs: Floats, thinking: float, said: float) -> Datum:
        """The thinking and the word are taught, each with its own advantage; what was read and asked is not. Sampled at
        temperature 1."""
        spelled = np.asarray(word, dtype=np.int32)
        pieces = [
            (self.prompt, None, 0.0),
            (self.thinking.tokens, self.thinking.logprobs, thinking),
            (self.request, None, 0.0),
            (spelled, logprobs, said),
        ]
        tokens = np.concatenate([tokens for tokens, _, _ in pieces])
        mask = np.concatenate([np.full(len(tokens), own is not None, np.float32) for tokens, own, _ in pieces])
        advantages = np.concatenate([np.full(len(tokens), value, np.float32) for tokens, _, value in pieces])
        zeros = (np.zeros(len(tokens), np.float32) if own is None else own for tokens, own, _ in pieces)
        sampled = np.concatenate(list(zeros)).astype(np.float32)
        return Datum(tokens[:-1], tokens[1:], sampled[1:], advantages[1:], mask[1:])


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
        heard = await self.hear(asked, params)
        tokens = heard.thinking.tokens
        return Check(heard.value, self._rendering.said(tokens)[0], len(tokens))

    async def hear(self, asked: Asked, params: SamplingParams) -> Heard:
        prompt = self._rendering.prompt([asked.message])
        (sample,) = await self._sampler.sample(prompt, replace(params, stop=self._rendering.stop_ids))
        # The sampled tokens stay as they are: tokenised anew they might differ, and would not be in the cache.
        request = self._rendering.suffix(sample.tokens, asked.verdict)
        first, second = (self._spelled(word) for word in asked.words)
        whole = np.concatenate([prompt, sample.tokens, request])
        logprobs = await self._sampler.score_continuations(whole, [*first, *second])
        return Heard(prompt, sample, request, (first, second), (logprobs[: len(first)], logprobs[len(first) :]))

    async def logprobs_of(self, heard: Heard, first: bool) -> tuple[tuple[int, ...], Floats]:
        """The likeliest spelling of a word after that thinking, and each token's logprob."""
        spelled, logprob = heard.likeliest(first)
        if len(spelled) == 1:
            return spelled, np.array([logprob], dtype=np.float32)
        whole = np.concatenate([heard.before, np.asarray(spelled, dtype=np.int32)])
        return spelled, (await self._sampler.compute_logprobs(whole, start=len(heard.before)))[len(heard.before) :]

    def speaker(self, params: SamplingParams, limits: Mapping[str, int]) -> Speak:
        return self._player.speaker(params, params.seed, limits)
