"""Whose votes count: agents, judges without a seat, or both; and not those of a judge who holds one of the two answers.
And how much.

Judges prefer the answer they hold themselves, so votes of all count answers and call it quality. A judge who doubts its
own answer may
count less (`vote_weight`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from moot.debate.forecasts import chances
from moot.debate.rules import candidates
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Vote
from moot.errors import ConfigError

Same = Sequence[int | None]
"""For each turn a number that equal answers share, None where there is no answer."""
About = Callable[[Vote], tuple[int | None, int | None]]
"""The two responses that a vote is about."""


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


def count_responses(debate: Debate, votes: Sequence[Vote], scoring: Scoring, same: Same | None) -> tuple[Vote, ...]:
    """Of votes about responses, those that count."""
    votes = weighted(debate, votes, scoring)
    if scoring.agents_count and not scoring.drop_own_answer:
        return tuple(votes)
    return tuple(_counting(debate, votes, scoring, same, lambda vote: (vote.left, vote.right)))


def count_agents(debate: Debate, votes: Sequence[Vote], scoring: Scoring, same: Same | None) -> tuple[Vote, ...]:
    """Of votes about agents, those that count. What an author judged is what it was shown; of one it could not judge
    nothing is known."""
    votes = weighted(debate, votes, scoring)
    if scoring.agents_count and not scoring.drop_own_answer:
        return tuple(votes)
    shown: list[Mapping[int, int]] = list(candidates(debate.rules, debate.turns))
    return tuple(
        _counting(
            debate,
            votes,
            scoring,
            same,
            lambda vote: (shown[vote.turn].get(vote.left), shown[vote.turn].get(vote.right)),
        )
    )


UNSURE = 0.5
"""The weight of a vote whose author's forecast cannot be read, or who was not asked."""


def weighted(debate: Debate, votes: Sequence[Vote], scoring: Scoring) -> Sequence[Vote]:
    """With `vote_weight forecast`, an agent's votes weigh the chance it gave its own answer; those of judges without a
    seat weigh 1."""
    if scoring.vote_weight == "one":
        return votes
    given = chances(debate.forecasts, "win" if debate.rules.forecast == "win" else "right")
    weight = {agent: UNSURE if chance is None else chance for agent, chance in given.items()}
    return [vote if vote.turn < 0 else replace(vote, weight=weight.get(vote.author, UNSURE)) for vote in votes]


def _counting(
    debate: Debate, votes: Sequence[Vote], scoring: Scoring, same: Same | None, about: About
) -> Iterator[Vote]:
    if scoring.drop_own_answer and same is None:
        raise ConfigError(
            "drop_own_answer needs a task with a grader, which decides whether answers are equal; name one, or leave "
            "it out"
        )
    own = own_answers(debate, same) if same is not None else []
    for vote in votes:
        if vote.turn < 0:
            yield vote  # a judge without a seat holds no answer
        elif scoring.agents_count:
            assert same is not None  # otherwise nothing would be dropped
            answers = {same[i] for i in about(vote) if i is not None}
            if own[vote.turn] is None or own[vote.turn] not in answers:
                yield vote


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
