"""Sampled turns and their advantages to what an engine trains on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from moot.debate.state import Debate
from moot.engine.protocol import Datum, Floats, Ints
from moot.records.played import PlayedDebate
from moot.turns import Advantages, SampledTurn, carries_gradient, credit, forecast_credit


@dataclass
class _Sequence:
    """One datum in the making."""

    temperature: float
    tokens: list[Ints] = field(default_factory=list)
    logprobs: list[Floats] = field(default_factory=list)
    advantages: list[Floats] = field(default_factory=list)
    mask: list[Floats] = field(default_factory=list)

    def add(self, tokens: Ints, logprobs: Floats, advantages: Floats, mask: Floats) -> None:
        self.tokens.append(tokens)
        self.logprobs.append(logprobs)
        self.advantages.append(advantages)
        self.mask.append(mask)

    def observe(self, tokens: Ints) -> None:
        nothing = np.zeros(len(tokens), dtype=np.float32)
        self.add(tokens, nothing, nothing, nothing)

    def suffix_of(self, prompt: Ints) -> Ints | None:
        """What the prompt adds to this sequence; None if it does not begin with it."""
        position = 0
        for piece in self.tokens:
            if not np.array_equal(prompt[position : position + len(piece)], piece):
                return None
            position += len(piece)
        return prompt[position:]

    def finish(self) -> Datum:
        tokens = np.concatenate(self.tokens)
        return Datum(
            tokens=tokens[:-1],
            targets=tokens[1:],
            logprobs=np.concatenate(self.logprobs)[1:],
            advantages=np.concatenate(self.advantages)[1:],
            mask=np.concatenate(self.mask)[1:],
            temperature=self.temperature,
        )


def merge(turns: Sequence[SampledTurn], advantages: Sequence[Floats]) -> Iterator[Datum]:
    """One agent's turns as few sequences as possible: a prompt that begins with all that came before it continues the same datum."""
    sequence: _Sequence | None = None
    for turn, values in zip(turns, advantages, strict=True):
        new: Ints | None = None
        if sequence is not None and turn.temperature == sequence.temperature:
            new = turn.prompt if turn.extends else sequence.suffix_of(turn.prompt)
        if new is None:
            if turn.extends:
                raise ValueError("a turn can only extend one before it, sampled at the same temperature")
            yield from _finished(sequence)
            sequence, new = _Sequence(turn.temperature), turn.prompt
        assert sequence is not None
        sequence.observe(new)
        sequence.add(turn.tokens, turn.logprobs, values, turn.sampled.astype(np.float32))
    yield from _finished(sequence)


def imitated(turns: Sequence[SampledTurn], weights: Sequence[Floats]) -> list[Datum]:
    """One agent's turns as supervised examples, learned as text at temperature 1: it is imitated, not its dice."""
    examples = [replace(datum, mask=datum.advantages, temperature=1.0) for datum in merge(turns, weights)]
    return [datum for datum in examples if datum.mask.any()]


def _finished(sequence: _Sequence | None) -> Iterator[Datum]:
    """Nothing to predict in fewer than two tokens."""
    if sequence is not None and sum(map(len, sequence.tokens)) > 1:
        yield sequence.finish()


def datums(
    debate: Debate, sampled: Sequence[SampledTurn], advantages: Advantages, forecast_turns: Sequence[SampledTurn] = ()
) -> list[Datum]:
    """All datums of a debate, agent by agent. `sampled` stands in the order of the debate's turns, `forecast_turns` in that of its
    forecasts. Seats that do not learn give none."""
    made: list[Datum] = []
    for agent, turns in enumerate(debate.turns_by_agent()):
        if not all(sampled[i].learns for i in turns):
            continue
        own = [sampled[i] for i in turns]
        values = [credit(debate.turns[i], sampled[i], step, advantages) for step, i in enumerate(turns)]
        for forecast, turn, advantage in zip(debate.forecasts, forecast_turns, advantages.forecasts, strict=False):
            if forecast.agent == agent:
                own.append(turn)
                values.append(forecast_credit(turn, advantage))
        made += merge(own, values)
    return made


def datums_by_debate(taught: Sequence[PlayedDebate], apart: bool) -> tuple[list[list[Datum]], list[Datum]]:
    """To train on, debate by debate; and with `apart`, those of debates in which no token has an advantage."""
    groups: list[list[Datum]] = []
    constant: list[Datum] = []
    for each in taught:
        if each.advantages is not None:
            made = datums(each.debate, each.sampled, each.advantages, each.forecast_turns)
            if apart and not carries_gradient(each.advantages):
                constant += made
            else:
                groups.append(made)
    return groups, constant
