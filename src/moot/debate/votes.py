"""Comparison lines to votes: which lines count, what they are about, and what a pair's votes agree on.

Votes that name their own author are dropped here. `comparisons` reads them about agents, `ballots` about responses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from moot.debate.rules import candidates
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Line, Parsed, Turn, Vote
from moot.debate.vote_filter import surviving


def comparisons(debate: Debate, scoring: Scoring = Scoring()) -> tuple[list[Vote], int]:
    """All valid comparisons by agent, in order, and how many were malformed. Repeated lines count each time.

    Votes of outside judges come last, where they count.
    """
    valid, malformed = [], 0
    for i, turn in enumerate(debate.turns):
        for line in _lines(debate, i):
            if line.kind != "comparison" or turn.agent in (line.left, line.right):
                continue
            if max(line.left, line.right) >= debate.num_agents or line.left == line.right:
                malformed += 1
            else:
                valid.append(Vote(turn.agent, line.left, line.right, line.verdict, i))
    if scoring.judges_count:
        agent = [turn.agent for turn in debate.turns]
        valid += [
            replace(vote, left=agent[vote.left], right=agent[vote.right]) for vote in outside_votes(debate, scoring)
        ]
    return valid, malformed


def by_pair(votes: Iterable[Vote]) -> dict[frozenset[int], list[Vote]]:
    pairs: dict[frozenset[int], list[Vote]] = defaultdict(list)
    for vote in votes:
        pairs[vote.pair].append(vote)
    return pairs


def clear_consensus(jury: Sequence[Vote]) -> int | None:
    """The response that more `>` votes prefer; None for a tie, or where nobody prefers either."""
    preferred: dict[int, int] = defaultdict(int)
    for vote in jury:
        if vote.verdict == ">":
            preferred[vote.left] += 1
    most = sorted(preferred.values())[-2:]
    if not most or (len(most) == 2 and most[0] == most[1]):
        return None
    return max(preferred, key=lambda response: preferred[response])


@dataclass(frozen=True)
class Ballots:
    """All that the comparison sections of a debate came to, as `generator_judge` reads them."""

    votes: tuple[Vote, ...]
    """About responses, by turn index. Those of outside judges come last, where they count."""
    abstained: tuple[int, ...]
    """Turns that should have voted and did not."""
    could_vote: int
    """Parsed turns with two or more agents to judge."""
    did_vote: int
    """Those of them that gave a vote."""
    lines_invalid: int
    cast: int
    """Votes before `one_ballot_per_pair`."""
    repeated: int
    """Those of them that repeat their author's own on the same pair in the same turn."""
    outside: tuple[Vote, ...] = ()
    """The votes of outside judges, whether they count or not. All the numbers above are the agents' alone."""


def ballots(debate: Debate, scoring: Scoring = Scoring()) -> Ballots:
    votes: list[Vote] = []
    abstained: list[int] = []
    could_vote = did_vote = lines_invalid = total = repeated = 0
    for i, may_judge in enumerate(candidates(debate.rules, debate.turns)):
        turn = debate.turns[i]
        cast: list[Vote] = []
        for line in _lines(debate, i):
            if (
                line.kind == "comparison"
                and line.left != line.right
                and line.left in may_judge
                and line.right in may_judge
            ):
                cast.append(Vote(turn.agent, may_judge[line.left], may_judge[line.right], line.verdict, i))
            elif line.kind != "silent":
                lines_invalid += 1
        last_word = _last_words(cast)
        votes += last_word if scoring.one_ballot_per_pair else cast
        total += len(cast)
        repeated += len(cast) - len(last_word)
        able = not turn.failed and len(may_judge) >= 2
        could_vote += able
        did_vote += able and bool(cast)
        if not cast and (i >= 2 if scoring.literal else able):
            abstained.append(i)
    outside = tuple(outside_votes(debate, scoring))
    if scoring.judges_count:
        votes += outside
    return Ballots(tuple(votes), tuple(abstained), could_vote, did_vote, lines_invalid, total, repeated, outside)


def _last_words(cast: Sequence[Vote]) -> list[Vote]:
    return list({vote.pair: vote for vote in cast}.values())


def outside_votes(debate: Debate, scoring: Scoring) -> Iterator[Vote]:
    """What judges without a seat say about the agents' newest answers, by turn index. Where one is asked in both
    orders, what survives."""
    if not debate.rules.both_orders:
        for turn in debate.jury:
            cast = _jury_votes(debate, turn)
            yield from _last_words(cast) if scoring.one_ballot_per_pair else cast
    else:
        for first, second in in_both_orders(debate):
            yield from surviving(first, second)


def in_both_orders(debate: Debate) -> Iterator[tuple[list[Vote], list[Vote]]]:
    """Each judge's last words on every pair, in the one order and in the other. Its two ballots stand side by side in
    the jury."""
    for one, other in zip(debate.jury[::2], debate.jury[1::2], strict=False):
        yield _last_words(_jury_votes(debate, one)), _last_words(_jury_votes(debate, other))


def _jury_votes(debate: Debate, turn: Turn) -> list[Vote]:
    may_judge = debate.answers()
    return [
        Vote(turn.agent, may_judge[line.left], may_judge[line.right], line.verdict)
        for line in (turn.parsed.lines if isinstance(turn.parsed, Parsed) else ())
        if line.kind == "comparison" and line.left != line.right and line.left in may_judge and line.right in may_judge
    ]


def _lines(debate: Debate, turn: int) -> tuple[Line, ...]:
    parsed = debate.turns[turn].parsed
    return parsed.lines if isinstance(parsed, Parsed) else ()
