"""Intervals and tests, on numpy alone. What each agrees with in scipy stands in the tests, on the same numbers.

Everything is asked question by question, because questions are what is drawn at random: answers to one question hang
together. A metric is a share: what was counted (`top`) over what could have been (`bottom`), question by question,
summed over the questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z95 = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""
RESAMPLES = 10_000
_CHUNK = 2_000_000
"""Most numbers drawn at once."""
_WIDEST = 1_000_000
"""Largest table for an exact test."""

Array = NDArray[np.float64]
Share = tuple[ArrayLike, ArrayLike]
"""What was counted, and what could have been, question by question."""


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    def wider(self, low: float, high: float) -> Interval:
        """With the lower of both ends and the upper of both."""
        return Interval(self.value, min(low, self.low), max(high, self.high))

    def as_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def wilson(hits: float, trials: float) -> tuple[float, float]:
    """Wilson's 95% interval of a share of independent trials, which stays inside 0 and 1 for few of them."""
    if trials == 0:
        return 0.0, 1.0
    share, spread = hits / trials, Z95 * Z95 / trials
    centre = (share + spread / 2) / (1 + spread)
    half = Z95 * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    low, high = min(centre - half, share), max(centre + half, share)  # rounding leaves the share of 0 or all outside
    return max(0.0, low), min(1.0, high)


def interval(
    top: ArrayLike, bottom: ArrayLike | None = None, *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """The share and its 95% bootstrap interval over questions (Wilson's at 0 and 1); None where nothing counts."""
    above = _array(top)
    return intervals([(above, np.ones_like(above) if bottom is None else bottom)], seed=seed, resamples=resamples)[0]


def intervals(shares: Sequence[Share], *, seed: int = 0, resamples: int = RESAMPLES) -> list[Interval | None]:
    """Of several shares of the same questions, from the same draws."""
    pairs = [(_array(top), _array(bottom)) for top, bottom in shares]
    drawn = zip(pairs, _resampled(pairs, seed, resamples), strict=True)
    return [_share(top, bottom, column) if bottom.sum() else None for (top, bottom), column in drawn]


def cautious_interval(
    top: ArrayLike, bottom: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """Of counts: the wider of the bootstrap and Wilson's on each side.

    With few questions each is too sure in its own way: a bootstrap of nothing but zeros has no width, and Wilson takes
    the votes within a question for independent.
    """
    return cautious_intervals([(top, bottom)], seed=seed, resamples=resamples)[0]


def cautious_intervals(shares: Sequence[Share], *, seed: int = 0, resamples: int = RESAMPLES) -> list[Interval | None]:
    """Of several shares of the same questions, from the same draws."""
    sums = [(round(_array(top).sum()), round(_array(bottom).sum())) for top, bottom in shares]
    drawn = intervals(shares, seed=seed, resamples=resamples)
    return [found and found.wider(*wilson(*both)) for found, both in zip(drawn, sums, strict=True)]


def paired_interval(ours: Share, theirs: Share, *, seed: int = 0, resamples: int = RESAMPLES) -> Interval | None:
    """Ours minus theirs, both as (top, bottom) on the same questions in the same order, from the same draws."""
    pairs = [(_array(top), _array(bottom)) for top, bottom in (ours, theirs)]
    if not all(bottom.sum() for _, bottom in pairs):
        return None
    a, b = _resampled(pairs, seed, resamples)
    values = [top.sum() / bottom.sum() for top, bottom in pairs]
    return _interval(values[0] - values[1], a - b)


def cautious_difference(ours: Share, theirs: Share, *, seed: int = 0, resamples: int = RESAMPLES) -> Interval | None:
    """The same of counts, with Newcombe's interval beside the bootstrap, which has no width where all are counted or
    none."""
    found = paired_interval(ours, theirs, seed=seed, resamples=resamples)
    sums = [(round(_array(top).sum()), round(_array(bottom).sum())) for top, bottom in (ours, theirs)]
    (p, low_p, high_p), (q, low_q, high_q) = ((top / max(1, of), *wilson(top, of)) for top, of in sums)
    return found and found.wider(
        found.value - math.hypot(p - low_p, high_q - q), found.value + math.hypot(high_p - p, q - low_q)
    )


def statistic_interval(
    value: Callable[[Array], Array], count: int, *, seed: int = 0, resamples: int = RESAMPLES // 5
) -> Interval | None:
    """Of what is no share: `value` is given how often each of `count` questions was drawn, a row for each draw, and
    answers with a number for each row. None where that of all questions, each once, is no number."""
    whole = float(value(np.ones((1, count)))[0])
    if not math.isfinite(whole):
        return None
    rng = np.random.default_rng(seed)
    sizes = [min(100, resamples - start) for start in range(0, resamples, 100)]
    return _interval(whole, np.concatenate([value(_times(rng, size, count).astype(np.float64)) for size in sizes]))


def sign_flip_p(differences: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES) -> float:
    """How often the differences would add up to so much, either way, if each had its sign by the toss of a coin.

    On right-or-wrong answers this is McNemar's exact test. It is exact wherever the differences are shares of small
    numbers, as ours are; otherwise signs are drawn at random.
    """
    array = _array(differences)
    array = array[array != 0]
    if not len(array):
        return 1.0
    scaled = _integers(array)
    if scaled is None:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, len(array)))
        extreme = np.abs(signs @ array) >= abs(array.sum()) - 1e-12
        return (int(extreme.sum()) + 1) / (resamples + 1)
    reach = sum(abs(d) for d in scaled)
    probability = np.zeros(2 * reach + 1)
    probability[reach] = 1.0  # the sum is 0 before the first coin
    for d in scaled:
        probability = 0.5 * (np.roll(probability, d) + np.roll(probability, -d))
    sums = np.abs(np.arange(-reach, reach + 1))
    return float(min(1.0, probability[sums >= abs(sum(scaled))].sum()))


def seeds_interval(
    ours: Sequence[ArrayLike], theirs: Sequence[ArrayLike] | None = None, *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """The mean over runs and questions (minus theirs), one array a run, all on the same questions in the same order.

    Runs are drawn anew as well as questions: three seeds that disagree make a wide interval, however many questions
    there were.
    """
    sides = [[np.stack([_array(run) for run in runs])] for runs in (ours, theirs) if runs is not None]
    drawn = [side[0] for side in _with_runs(sides, seed, resamples)]
    value = sides[0][0].mean() - (sides[1][0].mean() if len(sides) > 1 else 0.0)
    return _interval(value, drawn[0] - drawn[1] if len(drawn) > 1 else drawn[0])


def seeds_share(
    tops: Sequence[ArrayLike], bottoms: Sequence[ArrayLike], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """A share over runs and questions, as (top, bottom) of each run; None where nothing could be counted."""
    top, bottom = (np.stack([_array(run) for run in runs]) for runs in (tops, bottoms))
    if not bottom.sum():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        above, below = _with_runs([[top, bottom]], seed, resamples)[0]
        return _share(top.sum(axis=0), bottom.sum(axis=0), above / below)


def _with_runs(sides: Sequence[Sequence[Array]], seed: int, resamples: int) -> list[list[Array]]:
    """Means over draws of runs and of questions. Tables of one side (runs by questions) share the draws of runs, all
    share questions."""
    rng = np.random.default_rng(seed)
    count = sides[0][0].shape[1]
    means: list[list[list[Array]]] = [[[] for _ in side] for side in sides]
    step = max(1, _CHUNK // count)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        questions = _times(rng, rows, count) / count
        for columns, side in zip(means, sides, strict=True):
            runs = _times(rng, rows, len(side[0])) / len(side[0])
            for column, table in zip(columns, side, strict=True):
                column.append(np.einsum("rq,rs,sq->r", questions, runs, table, optimize=True))
    return [[np.concatenate(column) for column in columns] for columns in means]


def _share(top: Array, bottom: Array, drawn: Array) -> Interval:
    """Wilson's interval, one trial per question, stands in at 0 and 1, where a bootstrap has no width."""
    interval = _interval(top.sum() / bottom.sum(), drawn)
    if interval.value not in (0.0, 1.0):
        return interval
    asked = int((bottom > 0).sum())
    return Interval(interval.value, *wilson(asked if interval.value else 0, asked))


def _array(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def _resampled(pairs: Sequence[tuple[Array, Array]], seed: int, resamples: int) -> list[Array]:
    """Each share on `resamples` draws of as many questions, with replacement; the same draws for all."""
    count = len(pairs[0][0])
    columns = np.stack([column for pair in pairs for column in pair], axis=1)
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // count)
    sums = []
    for start in range(0, resamples, step):
        sums.append(_times(rng, min(step, resamples - start), count) @ columns)
    whole = np.concatenate(sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        return list((whole[:, 0::2] / whole[:, 1::2]).T)


def _times(rng: np.random.Generator, rows: int, count: int) -> NDArray[np.int64]:
    """How often each of `count` is picked when `count` are drawn with replacement, `rows` times."""
    picked = rng.integers(0, count, (rows, count)) + count * np.arange(rows)[:, None]
    return np.bincount(picked.ravel(), minlength=rows * count).reshape(rows, count)


def _interval(value: float, drawn: Array) -> Interval:
    finite = drawn[np.isfinite(drawn)]  # a draw in which nothing could be counted says nothing
    low, high = np.percentile(finite, [2.5, 97.5])
    return Interval(float(value), float(low), float(high))


def _integers(values: Array) -> list[int] | None:
    """The values times one common denominator, if that is small."""
    exact = [Fraction(float(v)).limit_denominator(1000) for v in values]
    if any(abs(float(f) - v) > 1e-9 for f, v in zip(exact, values, strict=True)):
        return None
    common = math.lcm(*(f.denominator for f in exact))
    scaled = [int(f * common) for f in exact]
    shared = math.gcd(*scaled)
    scaled = [d // shared for d in scaled]
    return scaled if sum(map(abs, scaled)) * len(scaled) <= 100 * _WIDEST and sum(map(abs, scaled)) <= _WIDEST else None


# In one pass, without keeping what was seen


@dataclass
class RunningMean:
    count: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass
class Correlation:
    """Pearson's, with one pass (Welford's way, which does not lose digits)."""

    count: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        self.count += 1
        dx, dy = x - self.x, y - self.y
        self.x += dx / self.count
        self.y += dy / self.count
        self.xx += dx * (x - self.x)
        self.yy += dy * (y - self.y)
        self.xy += dx * (y - self.y)

    @property
    def value(self) -> float | None:
        """None where one of the two never moves."""
        spread = math.sqrt(self.xx) * math.sqrt(self.yy)
        return max(-1.0, min(1.0, self.xy / spread)) if spread > 1e-12 * max(1, self.count) else None
