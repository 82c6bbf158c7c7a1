"""A sampler becomes a speaker: what an agent is told to tokens, tokens to what it said, and the tokens kept for
training.

A turn may be spoken in parts (debate/sections.py). Its tokens then stand in one row: what was sampled, and between the
parts what was inserted, a tag that is given or the request for the next section.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from moot.debate import sections
from moot.debate.state import Debate
from moot.debate.types import Message, Observation, Said
from moot.engine.protocol import Ints, Sample, Sampler, SamplingParams, Scene, Stop
from moot.tokens.rendering import Rendering
from moot.tokens.turn import NOWHERE, SampledTurn


def turn_seed(*parts: object) -> int:
    """A seed from what a turn is, not from when it was sampled, so that the order of sampling changes nothing."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


async def answer_plainly(
    sampler: Sampler, rendering: Rendering, messages: Sequence[Message], params: SamplingParams, count: int = 1
) -> list[tuple[str, Sample]]:
    """Outside any debate: what is said, and the tokens it was sampled as."""
    samples = await sampler.sample(rendering.prompt(messages), replace(params, stop=rendering.stop_ids), count)
    return [(rendering.said(sample.tokens)[0], sample) for sample in samples]


def _joined(pieces: list[Ints]) -> Ints:
    """An agent's tokens so far, which are kept in pieces and joined only to ask for the next turn."""
    pieces[:] = [np.concatenate(pieces)]
    return pieces[0]


@dataclass
class _Part:
    section: str
    inserted: Ints
    """What stands before it."""
    sample: Sample
    reply: str
    starts: Ints
    """The character of the reply that each token starts in."""


@dataclass
class _Spoken:
    """A turn in the making."""

    prompt: Ints
    extends: bool
    temperature: float
    parts: list[_Part] = field(default_factory=list)
    closing: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int32))


@runtime_checkable
class KeepsTurns(Protocol):
    """A speaker that knows what its turns were made of."""

    def turn(self, round: int, agent: int) -> SampledTurn: ...


def kept_turns(speaker: KeepsTurns, debate: Debate) -> tuple[SampledTurn, ...]:
    """What the debate's turns were made of."""
    return tuple(speaker.turn(turn.round, turn.agent) for turn in debate.turns)


def scene_of(observation: Observation) -> Scene:
    """Who speaks, whom it may judge and what it is asked for, by the numbers that its prompt has."""
    judges = observation.section in ("", "evaluation", "comparison")
    names = observation.labels
    return Scene(
        agent=names[observation.agent] if observation.agent < len(names) else -1,
        eligible=tuple(sorted(names[seat] for seat in observation.eligible)) if judges else (),
        contract=observation.contract,
        section=observation.section,
    )


class TokenSpeaker:
    """Speaks for every seat of one debate through a sampler, and keeps what was sampled."""

    def __init__(
        self,
        sampler: Sampler,
        rendering: Rendering,
        params: SamplingParams,
        *,
        tempered: bool = True,
        seed: object = None,
        learns: bool = True,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._sampler, self._rendering, self._params = sampler, rendering, params
        self._tempered, self._seed, self._learns = tempered, seed, learns
        self._limits = limits or {}
        self._conversations: dict[int, list[Ints]] = {}
        self._speaking: dict[tuple[int, int], _Spoken] = {}
        self._turns: dict[tuple[int, int], SampledTurn] = {}

    async def __call__(self, observation: Observation) -> Said:
        agent, key = observation.agent, (observation.round, observation.agent)
        temperature = observation.temperature if self._tempered else self._params.temperature
        if not observation.part:
            self._speaking[key] = _Spoken(self._begin(observation), observation.extends, temperature)
        spoken, conversation = self._speaking[key], self._conversations[agent]
        inserted = self._inserted(observation, spoken)
        conversation.append(inserted)
        params = replace(
            self._params,
            max_tokens=self._limits.get(observation.section, self._params.max_tokens),
            temperature=temperature,
            seed=None
            if self._seed is None
            else turn_seed(self._seed, *key, *([observation.part] if observation.part else [])),
            stop=self._stops(observation),
            scene=scene_of(observation),
        )
        (sample,) = await self._sampler.sample(_joined(conversation), params)
        if observation.opening:
            sample = self._within_section(observation.section, sample)
        text, starts = self._rendering.said(sample.tokens)
        conversation.append(sample.tokens)
        spoken.parts.append(_Part(observation.section, inserted, sample, text, starts))
        if observation.last_part:
            spoken.closing = self._rendering.encode(observation.closing(text))
            conversation.append(spoken.closing)
            self._turns[key] = self._finished(observation, self._speaking.pop(key))
        # With stop ids the closing tag is the model's own to write; only a stop string can have taken it away.
        stopped_on_tag = sample.stop_reason == "stop" and all(isinstance(stop, str) for stop in params.stop)
        return Said(text, closed=stopped_on_tag, cut=sample.stop_reason == "length")

    # What is asked

    def _begin(self, observation: Observation) -> Ints:
        """Puts what is new for a turn into the conversation, or the whole of it into a fresh one; answers with that."""
        if observation.extends:
            last = max(key for key in self._turns if key[1] == observation.agent)
            new = self._rendering.suffix(self._turns[last].tokens, observation.newest)
            self._conversations[observation.agent].append(new)
            return new
        conversation = self._conversations[observation.agent] = []
        messages = (observation.turnwise or observation.conversation)()
        if observation.opening and observation.turnwise is None:
            messages = messages[:-1]  # what is given of the reply follows as tokens
        # Own turns that stand in a fresh conversation go in as they were sampled: text is never tokenised a second
        # time.
        own_turns = len(observation.own_turns)
        first = len(messages) - 2 * own_turns
        conversation.append(self._rendering.prompt(messages[:first]))
        rounds = sorted(round for round, agent in self._turns if agent == observation.agent)
        for own, i in zip(rounds[len(rounds) - own_turns :], range(first, len(messages), 2), strict=True):
            tokens = self._turns[own, observation.agent].tokens
            conversation += [tokens, self._rendering.suffix(tokens, messages[i + 1])]
        return _joined(conversation)

    def _inserted(self, observation: Observation, spoken: _Spoken) -> Ints:
        """What stands between the parts of a turn: a tag that is given, or the request for the next section."""
        if observation.opening:
            return self._rendering.encode(observation.opening)
        if observation.part:
            return self._rendering.suffix(spoken.parts[-1].sample.tokens, observation.newest)
        return np.zeros(0, dtype=np.int32)

    def _stops(self, observation: Observation) -> Stop:
        if observation.opening:
            # The two kinds of stop are never mixed, so the end of the turn is a string here too.
            return (*sections.stop_tags(observation.contract), *self._rendering.stop_texts)
        return self._rendering.stop_ids if observation.section else self._rendering.stops(observation.contract)

    # What was said

    def _within_section(self, section: str, sample: Sample) -> Sample:
        """What a section keeps of a reply: not the end of the turn, which comes later, and nothing from another
        section's tag on."""
        tokens = sample.tokens
        if len(tokens) and int(tokens[-1]) in self._rendering.stop_ids:
            tokens = tokens[:-1]
        text, starts = self._rendering.said(tokens)
        length = sections.kept_length(section, text)
        ends = np.append(starts[1:], len(text))[: len(starts)]
        # The last token of a closing tag may hold what follows it too; one that holds the beginning of another tag is
        # left out.
        count = int((starts < length).sum()) if sections.is_closed(section, text) else int((ends <= length).sum())
        ended = length < len(text) or sections.is_closed(section, text)
        return replace(
            sample,
            tokens=tokens[:count],
            logprobs=sample.logprobs[:count],
            stop_reason="stop" if ended else sample.stop_reason,
        )

    def _finished(self, observation: Observation, spoken: _Spoken) -> SampledTurn:
        last = spoken.parts[-1].sample
        turn = SampledTurn(
            prompt=spoken.prompt,
            extends=spoken.extends,
            tokens=last.tokens,
            logprobs=last.logprobs,
            starts=spoken.parts[-1].starts,
            temperature=spoken.temperature,
            stop_reason=last.stop_reason,
            learns=self._learns,
        )
        if not observation.section:
            return turn
        pieces: list[tuple[Ints, _Part | None]] = []
        for part in spoken.parts:
            pieces += [(part.inserted, None), (part.sample.tokens, part)]
        pieces.append((spoken.closing, None))
        starts = (
            self._given_starts(pieces)
            if observation.opening
            else self._asked_starts(observation.contract, spoken.parts, pieces)
        )
        nothing = [
            np.zeros(len(tokens), dtype=np.float32) if part is None else part.sample.logprobs for tokens, part in pieces
        ]
        return replace(
            turn,
            tokens=np.concatenate([tokens for tokens, _ in pieces]),
            logprobs=np.concatenate(nothing),
            starts=np.concatenate(starts).astype(np.int32),
            inserted=np.concatenate([np.full(len(tokens), part is None) for tokens, part in pieces]),
            stop_reason="length" if any(part.sample.stop_reason == "length" for part in spoken.parts) else "stop",
        )

    def _given_starts(self, pieces: list[tuple[Ints, _Part | None]]) -> list[Ints]:
        """All of it is the turn's text, piece after piece."""
        offset, starts = 0, []
        for tokens, part in pieces:
            text, own = (part.reply, part.starts) if part else self._rendering.said(tokens)
            starts.append(own + offset)
            offset += len(text)
        return starts

    def _asked_starts(self, contract: str, parts: list[_Part], pieces: list[tuple[Ints, _Part | None]]) -> list[Ints]:
        """The replies stand in the turn's text in the contract's order; the requests do not stand there."""
        _, where = sections.asked_text(contract, {part.section: part.reply for part in parts})
        starts = []
        for tokens, part in pieces:
            if part is None:
                starts.append(np.full(len(tokens), NOWHERE, dtype=np.int32))
            else:
                place = where[part.section].place
                starts.append(np.array([place(int(start)) for start in part.starts], dtype=np.int32))
        return starts

    def turn(self, round: int, agent: int) -> SampledTurn:
        return self._turns[round, agent]
