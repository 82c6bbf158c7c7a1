"""Whose votes count: agents, judges without a seat, or both; and what survives being shown in the other order."""

from __future__ import annotations

from collections.abc import Sequence

from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Vote

Same = Sequence[int | None]
"""For each turn a number that equal answers share, None where there is no answer."""


def own_answers(debate: Debate, same: Same) -> list[int | None]:
    """For each turn, the answer its author holds when it votes there: that of its newest response, this turn's
    included."""
    held: dict[int, int | None] = {}
    own: list[int | None] = []
    for i, turn in enumerate(debate.turns):
        if turn.answers:
            held[turn.agent] = same[i]
        own.append(held.get(turn.agent))
    return own


def counting(votes: Sequence[Vote], scoring: Scoring) -> tuple[Vote, ...]:
    """Of these votes, those that count."""
    return tuple(vote for vote in votes if scoring.agents_count or vote.turn < 0)


# A pair shown to one judge in both orders


def surviving(first: Sequence[Vote], second: Sequence[Vote]) -> list[Vote]:
    """Of the votes that one judge cast twice, those that the swap did not change."""
    swapped = {vote.pair: vote for vote in second}
    return [vote for vote in first if _alike(vote, swapped.get(vote.pair))]


def flips(first: Sequence[Vote], second: Sequence[Vote]) -> list[bool]:
    """For each pair that both have a vote on, whether the verdict changed with the order."""
    swapped = {vote.pair: vote for vote in second}
    return [not _alike(vote, other) for vote in first if (other := swapped.get(vote.pair)) is not None]


def _alike(vote: Vote, other: Vote | None) -> bool:
    return other is not None and vote.verdict == other.verdict and (vote.verdict == "=" or vote.left == other.left)
