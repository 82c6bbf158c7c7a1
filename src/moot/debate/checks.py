"""What judges without a seat say of single answers and of pairs, in probabilities; and what comes of it: scores, votes,
rewards. No model.

approval   one answer, checked several times: Yes or No. Its score is the mean of P(Yes) / (P(Yes) + P(No)); where each
           rule of a question is asked about alone, the mean or the least of its rules
pairs      two answers, in both orders: A or B. The first one's score against the second is ½ · (p_AB + 1 − p_BA)
lines      all answers at once: comparisons in writing, as agents write them; no probabilities
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Literal

Ballot = Literal["approval", "pairs", "lines"]
Show = Literal["solution", "answer"]
"""What a judge is shown of an answer: the whole solution, or the final answer alone."""
Rules = Literal["together", "mean", "least"]
"""What approval asks about: all of a question together, or each of its rules alone; and then whether the score is the
mean of theirs or the least."""
Classes = Sequence[int | None]
"""Which answers are the same, by number. Those without an answer are the same among themselves."""
EQUAL = 1e-9
"""Numbers that differ by less are the same: which one is larger would be a matter of rounding."""
FAILED = -1.0
"""The reward of a turn that failed; no judge is shown it."""


@dataclass(frozen=True)
class Check:
    """A judge thinks about one answer, or about two, and says a word."""

    value: float
    """The probability of the first word among the two: Yes, or A."""
    thinking: str = ""
    tokens: int | None = None
    """Sampled for it; None where a server does not count."""
    by: Literal["probability", "word"] = "probability"
    turns: tuple[int, ...] = ()
    """The turns of the debate that it is about, in the order in which they were shown."""
    judge: int = 0
    """Which of the judges, from 0."""
    rule: str = ""
    """The one rule of the question that it is about; empty where it is about all of it."""

    @property
    def unread(self) -> bool:
        """Whether the judge was taken at its word, and said none."""
        return self.by == "word" and self.value == 0.5


# From checks to scores


def approval(checks: Sequence[float]) -> float | None:
    """The score of one answer; None where it was not checked."""
    return sum(checks) / len(checks) if checks else None


def over_rules(scores: Sequence[float], rules: Rules) -> float:
    """The score of an answer from those of its rules, of which there is at least one."""
    return min(scores) if rules == "least" else sum(scores) / len(scores)


@dataclass(frozen=True)
class Pair:
    """Two answers of one question by their numbers, and what the judge said of them in each order."""

    one: int
    other: int
    one_first: float
    """The probability of A where `one` stands first: p_AB."""
    other_first: float
    """The probability of A where `other` stands first: p_BA."""

    @property
    def score(self) -> float:
        """Of `one` against `other`. In this order of adding, equal probabilities make exactly ½."""
        return 0.5 + (self.one_first - self.other_first) / 2

    @property
    def flips(self) -> bool:
        """Whether the preferred answer changes with the order. To prefer none is a verdict of its own."""
        return _side(self.one_first) != -_side(self.other_first)

    def score_of(self, answer: int) -> float:
        return self.score if answer == self.one else 1.0 - self.score


def _side(value: float) -> int:
    return (value > 0.5) - (value < 0.5)


def drawn_pairs(classes: Classes, shown: Sequence[bool], opponents: int, seed: object) -> list[tuple[int, int]]:
    """Who meets whom, the lower number first: each answer that is shown meets up to `opponents` with another answer.

    Drawn one opponent at a time, those who have met the fewest first, so that nobody is left over while others meet
    again. A pair is asked once and counts for both.
    """
    numbers = [i for i, is_shown in enumerate(shown) if is_shown]
    possible = [(i, j) for i, j in combinations(numbers, 2) if classes[i] != classes[j]]
    random.Random(f"{seed}").shuffle(possible)
    met, pairs = Counter[int](), set[tuple[int, int]]()
    for most in range(1, min(opponents, len(numbers)) + 1):
        for i, j in sorted(possible, key=lambda pair: met[pair[0]] + met[pair[1]]):
            if max(met[i], met[j]) < most and (i, j) not in pairs:
                pairs.add((i, j))
                met.update((i, j))
    return sorted(pairs)


def scores_in_pairs(pairs: Iterable[Pair], answer: int) -> list[float]:
    return [pair.score_of(answer) for pair in pairs if answer in (pair.one, pair.other)]


# The checks of a debate


Values = list[list[float]]
"""By judge, the values of its checks in the order in which they were asked."""


def values_by_turn(checks: Iterable[Check]) -> Mapping[int, Mapping[str, Values]]:
    """Of approval, for each turn and each rule that was asked about."""
    values: dict[int, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for check in checks:
        if len(check.turns) == 1:
            values[check.turns[0]][check.rule][check.judge].append(check.value)
    return {
        turn: {rule: [own[judge] for judge in sorted(own)] for rule, own in by_rule.items()}
        for turn, by_rule in values.items()
    }


def pairs_of(checks: Iterable[Check]) -> list[Pair]:
    """Of pairs: each pair with its values in both orders. Where several judges were asked, their mean in each."""
    asked = sorted((check for check in checks if len(check.turns) == 2), key=lambda check: sorted(check.turns))
    pairs = []
    for (one, other), own in groupby(asked, key=lambda check: tuple(sorted(check.turns))):
        orders: dict[int, list[float]] = {one: [], other: []}
        for check in own:
            orders[check.turns[0]].append(check.value)
        if all(orders.values()):
            pairs.append(Pair(one, other, *(sum(values) / len(values) for values in (orders[one], orders[other]))))
    return pairs


# From scores to rewards


def is_vote(score: float, vote_margin: float = 0.0) -> bool:
    """Whether a score is sure enough to count."""
    return abs(2 * score - 1) >= vote_margin - EQUAL


def generator_reward(scores: Sequence[float], vote_margin: float = 0.0, failed: bool = False) -> float | None:
    """The mean of 2s − 1 over those of an answer's scores that are votes; None without one, -1 for a failed turn."""
    if failed:
        return FAILED
    votes = [2 * score - 1 for score in scores if is_vote(score, vote_margin)]
    return sum(votes) / len(votes) if votes else None
