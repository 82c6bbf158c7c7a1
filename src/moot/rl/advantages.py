"""Rewards to advantages. Estimators are named functions; adding one is one function and one line.

An estimator sees one stream of a batch: for each debate, the values that take part, with seat and round. It gives back
numbers in the same places. What takes no part gets 0; penalties come after; then the stream's weight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from moot.debate.scores import Rows, Scores
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import Advantages


@dataclass(frozen=True)
class Cell:
    seat: int
    round: int | None
    """None for a reward that is the whole debate's."""
    value: float


@dataclass
class SeatMeans:
    """The running mean of each seat, by stream. The one thing that lives from batch to batch; a checkpoint keeps it."""

    means: dict[str, dict[int, float]] = field(default_factory=dict)

    def of(self, stream: str) -> dict[int, float]:
        return self.means.setdefault(stream, {})


Estimator = Callable[[Sequence[Sequence[Cell]], dict[int, float]], list[list[float]]]
"""(debates, the seats' running means of this stream) -> centred values, in the same shape."""


def center_group(debates: Sequence[Sequence[Cell]], means: dict[int, float]) -> list[list[float]]:
    """Minus the mean over the debate: the group mean as baseline, not divided by the standard deviation (Dr. GRPO,
    arXiv 2503.20783)."""
    return _minus_group_mean(debates, lambda debate, cell: debate)


def center_round(debates: Sequence[Sequence[Cell]], means: dict[int, float]) -> list[list[float]]:
    """Minus the mean over the agents of the same round, so that early answers are not compared with late ones."""
    if any(cell.round is None for cells in debates for cell in cells):
        raise ConfigError("center_round needs rewards per turn, and this reward is per agent; use center_group")
    return _minus_group_mean(debates, lambda debate, cell: (debate, cell.round))


def center_seat(debates: Sequence[Sequence[Cell]], means: dict[int, float]) -> list[list[float]]:
    """Minus the seat's running mean, which then moves a twentieth of the way to this debate's.

    SPIRAL's role-conditioned advantage estimation (arXiv 2506.24119): a baseline per role, against what a role earns by
    its place alone.
    """
    centred = []
    for cells in debates:
        centred.append([cell.value - means.get(cell.seat, 0.0) for cell in cells])
        seats: dict[int, list[float]] = defaultdict(list)
        for cell in cells:
            seats[cell.seat].append(cell.value)
        for seat, values in seats.items():
            means[seat] = 0.95 * means.get(seat, 0.0) + 0.05 * _mean(values)
    return centred


def normalize_batch(debates: Sequence[Sequence[Cell]], means: dict[int, float]) -> list[list[float]]:
    """Minus the batch's mean, divided by its population standard deviation (REINFORCE++, arXiv 2501.03262)."""
    values = [cell.value for cells in debates for cell in cells]
    mean = _mean(values)
    deviation = math.sqrt(_mean([(value - mean) ** 2 for value in values]))
    return [[(cell.value - mean) / (deviation + 1e-8) for cell in cells] for cells in debates]


ESTIMATORS: dict[str, Estimator] = {
    "center_group": center_group,
    "center_round": center_round,
    "center_seat": center_seat,
    "normalize_batch": normalize_batch,
}
PER_TURN = (center_round,)
"""Those that need rewards per turn."""


def _mean(values: Sequence[float]) -> float:
    """Exact for equal values: what rounding leaves over would otherwise be divided by 1e-8."""
    if not values or min(values) == max(values):
        return values[0] if values else 0.0
    return math.fsum(values) / len(values)


def _minus_group_mean(debates: Sequence[Sequence[Cell]], group: Callable[[int, Cell], Hashable]) -> list[list[float]]:
    """`group` says by the number of its debate and by itself which values a value is compared with."""
    values: dict[Hashable, list[float]] = defaultdict(list)
    for debate, cells in enumerate(debates):
        for cell in cells:
            values[group(debate, cell)].append(cell.value)
    means = {key: _mean(group) for key, group in values.items()}
    return [[cell.value - means[group(debate, cell)] for cell in cells] for debate, cells in enumerate(debates)]


def advantages(
    batch: Iterable[tuple[Debate, Scores]], estimator: Estimator, seats: SeatMeans | None = None
) -> list[Advantages]:
    """For a batch under one reward, stream by stream."""
    debates = list(batch)
    seats = seats or SeatMeans()
    streams: list[dict[str, Rows]] = [{} for _ in debates]
    for name in _stream_names([scores for _, scores in debates]):
        cells = [_cells(debate, scores, name) for debate, scores in debates]
        centred = estimator(cells, seats.of(name))
        for (_, scores), row, out in zip(debates, centred, streams, strict=True):
            out[name] = _finish(scores, name, row)
    both = zip(streams, debates, strict=True)
    return [Advantages(named, scores.stream_of, scores.per) for named, (_, scores) in both]


def with_advantages(
    batch: Sequence[PlayedDebate], estimator: Estimator, seats: SeatMeans | None = None
) -> list[PlayedDebate]:
    """Debates that have been scored, each with what it teaches."""
    scored = [(played.debate, played.scores) for played in batch if played.scores is not None]
    values = advantages(scored, estimator, seats)
    return [replace(played, advantages=value) for played, value in zip(batch, values, strict=True)]


def _stream_names(batch: Sequence[Scores]) -> list[str]:
    kinds = {tuple(scores.streams) for scores in batch}
    if len(kinds) > 1:
        raise ConfigError("a batch must be scored with one reward: per agent and per turn cannot be centred together")
    return list(kinds.pop()) if kinds else []


def _cells(debate: Debate, scores: Scores, name: str) -> list[Cell]:
    stream = scores.streams[name]
    return [
        Cell(seat, round, value)
        for seat, (rounds, row) in enumerate(zip(_rounds(debate, scores), stream.to_center, strict=True))
        for round, value in zip(rounds, row, strict=True)
        if value is not None
    ]


def _rounds(debate: Debate, scores: Scores) -> Sequence[Sequence[int | None]]:
    """For each value of a stream, its round; None for the whole debate."""
    if scores.per == "agent":
        return [[None]] * debate.num_agents
    return [[debate.turns[i].round for i in turns] for turns in debate.turns_by_agent()]


def _finish(scores: Scores, name: str, centred: Sequence[float]) -> Rows:
    stream = scores.streams[name]
    remaining = iter(centred)
    return tuple(
        tuple(
            stream.weight * ((0.0 if value is None else next(remaining)) + added)
            for value, added in zip(values, penalties, strict=True)
        )
        for values, penalties in zip(stream.to_center, stream.added, strict=True)
    )
