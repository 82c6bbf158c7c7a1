"""Sampled turns and their advantages to what an engine trains on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from moot.debate.state import Debate
from moot.engine.protocol import Datum, Floats, Ints
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import Advantages, SampledTurn, carries_gradient, credits


@dataclass
class _Sequence:
    """One datum in the making."""

    temperature: float
    tokens: list[Ints] = field(default_factory=list)
    turns: list[tuple[int, int]] = field(default_factory=list)
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

    def finish(self) -> PlacedDatum:
        tokens = np.concatenate(self.tokens)
        datum = Datum(
            tokens=tokens[:-1],
            targets=tokens[1:],
            logprobs=np.concatenate(self.logprobs)[1:],
            advantages=np.concatenate(self.advantages)[1:],
            mask=np.concatenate(self.mask)[1:],
            temperature=self.temperature,
        )
        return PlacedDatum(datum, self.turns)


@dataclass(frozen=True, eq=False)
class PlacedDatum:
    """A datum, and which turns it is made of."""

    datum: Datum
    turns: Sequence[tuple[int, int]]
    """Each turn's index among those it was merged from, and the index of its first token in the sequence."""
    debate: int = 0
    """The index of its debate in the batch."""


def merge(turns: Sequence[SampledTurn], advantages: Sequence[Floats]) -> Iterator[Datum]:
    """One agent's turns as few sequences as possible: a prompt that begins with all that came before it continues the
    same datum."""
    return (placed.datum for placed in _placed(list(enumerate(turns)), advantages))


def _placed(turns: Sequence[tuple[int, SampledTurn]], advantages: Sequence[Floats]) -> Iterator[PlacedDatum]:
    sequence: _Sequence | None = None
    for (number, turn), values in zip(turns, advantages, strict=True):
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
        sequence.turns.append((number, sum(map(len, sequence.tokens))))
        sequence.add(turn.tokens, turn.logprobs, values, turn.sampled.astype(np.float32))
    yield from _finished(sequence)


def imitated(turns: Sequence[SampledTurn], weights: Sequence[Floats]) -> list[Datum]:
    """One agent's turns as supervised examples, learned as text at temperature 1: it is imitated, not its dice."""
    examples = [replace(datum, mask=datum.advantages, temperature=1.0) for datum in merge(turns, weights)]
    return [datum for datum in examples if datum.mask.any()]


def _finished(sequence: _Sequence | None) -> Iterator[PlacedDatum]:
    """Nothing to predict in fewer than two tokens."""
    if sequence is not None and sum(map(len, sequence.tokens)) > 1:
        yield sequence.finish()


def datums(debate: Debate, sampled: Sequence[SampledTurn], advantages: Advantages) -> list[Datum]:
    """All datums of a debate, agent by agent. `sampled` stands in the order of the debate's turns. Seats that do not
    learn give none."""
    return [placed.datum for placed in _datums(debate, sampled, credits(debate, sampled, advantages))]


def _datums(
    debate: Debate, turns: Sequence[SampledTurn], values: Sequence[Floats], number: int = 0
) -> Iterator[PlacedDatum]:
    for own in debate.turns_by_agent():
        if all(turns[i].learns for i in own):
            for placed in _placed([(i, turns[i]) for i in own], [values[i] for i in own]):
                yield replace(placed, debate=number)


def datums_by_debate(taught: Sequence[PlayedDebate], apart: bool) -> tuple[list[list[PlacedDatum]], list[PlacedDatum]]:
    """To train on, debate by debate; and with `apart`, those of debates in which no token has an advantage."""
    groups: list[list[PlacedDatum]] = []
    constant: list[PlacedDatum] = []
    for number, played in enumerate(taught):
        if played.advantages is not None:
            made = [*_datums(played.debate, played.sampled, played.token_credits(), number)]
            if apart and not carries_gradient(played.advantages):
                constant += made
            else:
                groups.append(made)
    return groups, constant


def with_credits(
    taught: Sequence[PlayedDebate], placed: Sequence[PlacedDatum], trained: Sequence[Datum]
) -> list[PlayedDebate]:
    """The debates with what their tokens are taught in `trained`, which are the datums `placed` with advantages that
    parts may have moved."""
    if all(new is old.datum for old, new in zip(placed, trained, strict=True)):
        return list(taught)
    values = [[*played.token_credits()] for played in taught]
    for old, new in zip(placed, trained, strict=True):
        # The first token of a sequence is predicted by nothing, so advantages begin with the second.
        advantages = np.concatenate([np.zeros(1, dtype=np.float32), new.advantages])
        for turn, first in old.turns:
            values[old.debate][turn] = advantages[first : first + len(values[old.debate][turn])]
    return [replace(played, credits=tuple(own)) for played, own in zip(taught, values, strict=True)]
