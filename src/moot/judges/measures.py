"""How good a judge is, over questions that have both right and wrong answers. Every interval resamples questions.

A measure is None where nothing could be counted, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from moot.debate.checks import EQUAL, Ballot, Pair
from moot.util.intervals import (
    Z95,
    Array,
    Interval,
    cautious_difference,
    cautious_intervals,
    interval,
    paired_interval,
    statistic_interval,
    wilson,
)


@dataclass(frozen=True)
class Judged:
    """The answers to one question, and what a judge made of them."""

    correct: tuple[bool, ...]
    scores: tuple[float | None, ...]
    """None for an answer that was not judged; it takes part in nothing."""
    lengths: tuple[int, ...]
    counting_fails: bool
    """The answer that most of them hold is wrong."""
    tokens: int | None = None
    """What the judge sampled for all scores; None where nobody counted."""
    pairs: tuple[Pair, ...] = ()
    """Of the ballot `pairs`."""

    @property
    def mixed(self) -> bool:
        return len({self.correct[i] for i in self.judged}) == 2

    @property
    def judged(self) -> list[int]:
        return [i for i, score in enumerate(self.scores) if score is not None]

    def scores_of(self, correct: bool) -> list[float]:
        pairs = zip(self.scores, self.correct, strict=True)
        return [score for score, is_correct in pairs if score is not None and is_correct == correct]

    def differences(self) -> Iterator[float]:
        """Of every pair of a right and a wrong answer: how much higher the right one's score is."""
        return (right - wrong for right in self.scores_of(True) for wrong in self.scores_of(False))


@dataclass(frozen=True)
class Measures:
    questions: int
    """Those with both right and wrong answers, which alone are looked at."""
    pairs: int
    """Of a right and a wrong answer of one question."""
    pair_accuracy: Interval | None
    j: Interval | None
    """Of approval: right answers with a score above ½ minus wrong ones."""
    precision_20: Interval | None
    precision_30: Interval | None
    precision_50: Interval | None
    precision_100: Interval | None
    counting_fails: Interval | None
    one_order: Interval | None
    """Of pairs: how often a right answer is preferred to a wrong one when asked once, in one order."""
    order_flips: Interval | None
    length: Interval | None
    cost: Interval | None

    def as_dict(self) -> dict[str, object]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.as_dict() if isinstance(value, Interval) else value for name, value in values.items()}


def measure(questions: Sequence[Judged], ballot: Ballot = "approval", seed: int = 0) -> Measures:
    """All measures of one way to judge, from the questions that have both right and wrong answers."""
    mixed = [question for question in questions if question.mixed]
    if not mixed:
        return Measures(0, 0, *[None] * 11)
    wins, counts = (np.array(column, dtype=np.float64) for column in zip(*map(_wins, mixed), strict=True))
    failing = np.array([question.counting_fails for question in mixed])
    by_order = [_one_order(question) for question in mixed]
    shares = [
        (wins, counts),
        (wins * failing, counts * failing),
        ([won for won, _ in by_order], [asked for _, asked in by_order]),
        (
            [sum(pair.flips for pair in question.pairs) for question in mixed],
            [len(question.pairs) for question in mixed],
        ),
    ]
    accuracy, counting_fails, one_order, flips = cautious_intervals(shares, seed=seed)
    return Measures(
        questions=len(mixed),
        pairs=int(counts.sum()),
        pair_accuracy=accuracy,
        j=_j(mixed, seed) if ballot == "approval" else None,
        precision_20=_precision(mixed, 0.2, seed),
        precision_30=_precision(mixed, 0.3, seed),
        precision_50=_precision(mixed, 0.5, seed),
        precision_100=accuracy,
        counting_fails=counting_fails,
        one_order=one_order,
        order_flips=flips,
        length=_length(mixed, seed),
        cost=_cost(mixed, seed),
    )


@dataclass(frozen=True)
class Difference:
    """Of two ways to judge, in pair accuracy, on the same answers."""

    interval: Interval
    questions: int
    """Those in which both scored a right and a wrong answer."""
    pairs: int

    def as_dict(self) -> dict[str, float]:
        return {**self.interval.as_dict(), "questions": self.questions, "pairs": self.pairs}


def difference(ours: Sequence[Judged], theirs: Sequence[Judged], seed: int = 0) -> Difference | None:
    """Ours minus theirs, of the same questions in the same order, over the answers that both have scored. None where
    there is no such pair."""
    shared = []
    for sides in zip(ours, theirs, strict=True):
        both = [None not in scores for scores in zip(*(side.scores for side in sides), strict=True)]
        one, other = (replace(side, scores=tuple(_only(side.scores, both))) for side in sides)
        if one.mixed:
            shared.append((*_wins(one), *_wins(other)))
    if not shared:
        return None
    won, count, won_by_them, same = np.array(shared, dtype=np.float64).T
    found = paired_interval((won, count), (won_by_them, same), seed=seed)
    # What none of n questions shows may hold for 3 / n of all: a bootstrap of questions that are alike has no width.
    rest = 3 / len(shared)
    if found is None:
        return None
    wider = found.wider(max(-1.0, found.value - rest), min(1.0, found.value + rest))
    return Difference(wider, len(shared), int(count.sum()))


def _only(scores: Sequence[float | None], wanted: Sequence[bool]) -> Iterator[float | None]:
    return (score if is_wanted else None for score, is_wanted in zip(scores, wanted, strict=True))


def _win(difference: float) -> float:
    return 0.5 if abs(difference) < EQUAL else float(difference > 0)


def _wins(question: Judged) -> tuple[float, int]:
    wins = [_win(difference) for difference in question.differences()]
    return sum(wins), len(wins)


def _one_order(question: Judged) -> tuple[float, int]:
    """Of the single showings of a right and a wrong answer, those that prefer the right one."""
    won = []
    for pair in question.pairs:
        if question.correct[pair.one] != question.correct[pair.other]:
            for_one = (pair.one_first - 0.5, 0.5 - pair.other_first)
            won += [_win(value if question.correct[pair.one] else -value) for value in for_one]
    return sum(won), len(won)


def _j(mixed: Sequence[Judged], seed: int) -> Interval | None:
    def approved(correct: bool) -> tuple[list[int], list[int]]:
        scores = [question.scores_of(correct) for question in mixed]
        return [sum(score > 0.5 + EQUAL for score in own) for own in scores], list(map(len, scores))

    return cautious_difference(approved(True), approved(False), seed=seed)


def _precision(mixed: Sequence[Judged], coverage: float, seed: int) -> Interval | None:
    """Accuracy over the share of pairs with the largest difference. Level ones at the border share what is left."""
    differences = [(number, value) for number, question in enumerate(mixed) for value in question.differences()]
    pairs = sorted(((abs(value), number, _win(value)) for number, value in differences), reverse=True)
    sizes, owners, wins = (np.array(column) for column in zip(*pairs, strict=True))
    starts = np.flatnonzero(np.append(True, np.diff(sizes) < -EQUAL))

    def value(times: Array) -> Array:
        weights = times[:, owners]
        level = np.add.reduceat(weights, starts, axis=1)
        won = np.add.reduceat(weights * wins, starts, axis=1)
        before = np.cumsum(level, axis=1) - level
        wanted = np.ceil(coverage * level.sum(axis=1, keepdims=True) - 1e-9)
        taken = np.clip(wanted - before, 0, level)
        shares = np.divide(won, level, out=np.zeros_like(won), where=level > 0)
        return np.asarray((taken * shares).sum(axis=1) / taken.sum(axis=1))

    precision = statistic_interval(value, len(mixed), seed=seed)
    count = math.ceil(coverage * len(pairs) - EQUAL)
    return precision and precision.wider(*wilson(round(precision.value * count), count))


def _length(mixed: Sequence[Judged], seed: int) -> Interval | None:
    """The correlation of scores with lengths, each minus its question's mean."""
    rows = []
    for question in mixed:
        scores = np.array([question.scores[i] for i in question.judged], dtype=np.float64)
        lengths = np.array([question.lengths[i] for i in question.judged], dtype=np.float64)
        scores, lengths = scores - scores.mean(), lengths - lengths.mean()
        rows.append((scores @ lengths, scores @ scores, lengths @ lengths))
    sums = np.array(rows)
    if not all(sums[:, column].sum() > 1e-12 for column in (1, 2)):
        return None  # one of the two never moves

    def value(times: Array) -> Array:
        both, of_scores, of_lengths = (times @ sums).T
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.clip(both / np.sqrt(of_scores * of_lengths), -1, 1))

    length = statistic_interval(value, len(mixed), seed=seed)
    # Fisher's interval beside the bootstrap: of one question that has no width. A mean for each question is known.
    free = sum(len(question.judged) - 1 for question in mixed) - 2
    half = Z95 / math.sqrt(free) if free > 0 else math.inf
    centre = math.atanh((1 - EQUAL) * length.value) if length else 0.0
    return length and length.wider(math.tanh(centre - half), math.tanh(centre + half))


def _cost(mixed: Sequence[Judged], seed: int) -> Interval | None:
    tokens = [question.tokens for question in mixed if question.tokens is not None]
    scores = [len(question.judged) for question in mixed]
    return interval(tokens, scores, seed=seed) if len(tokens) == len(mixed) else None
