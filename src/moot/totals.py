"""The same debates under one way to reward them, added up. Needs no more memory for a hundred thousand debates than for one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from moot.debate.rewards import last_parsed
from moot.debate.scoring import Scoring
from moot.saved import Saved


@dataclass(frozen=True)
class Totals:
    """One way to reward the same debates."""

    reward: str
    advantage: str
    debates: int
    reward_mean: float | None
    """Over agents, of all an agent got in a debate."""
    with_signal: float | None
    """Share of debates in which the votes say anything."""
    with_gradient: float | None
    """Share of debates in which some token has an advantage."""
    advantage_size: float | None
    """Mean over turns, ballots apart, of the advantage's absolute value."""
    correlation: float | None
    """Between a turn's advantage and whether its answer is right (point-biserial), over readable turns with a known answer."""
    advantage_right: float | None
    """Mean advantage of the turns with a right answer."""
    advantage_wrong: float | None
    winner_correct: float | None
    """Share of debates with a winner whose winner's last answer is right."""
    winners: int
    """Debates in which somebody won."""
    judge_accuracy: float | None
    """Of votes between a right and a wrong answer, the share for the right one."""


@dataclass(frozen=True)
class Side:
    """One debate under one way to reward it; rewards and advantages in the shapes of a run's records."""

    rewards: Any
    advantages: Any
    totals: tuple[float, ...]
    """What each agent got in all."""
    turns: tuple[float, ...]
    """The advantage of each turn's answer, in the order of turns; a ballot has none, and what stands for it is the agent's or 0."""
    signal: bool
    gradient: bool
    leaders: tuple[int, ...]
    """Who has the highest mean reward."""
    winner: int | None
    right_votes: int
    """Votes for a right answer over a wrong one."""
    telling_votes: int
    """Votes between a right and a wrong answer."""


def winner_is_right(saved: Saved, agent: int | None) -> bool | None:
    if agent is None or not saved.known or saved.grades is None:
        return None
    turn = last_parsed(saved.debate)[agent]
    return turn is not None and saved.grades.correct[turn]


@dataclass
class _Mean:
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


@dataclass
class Sum:
    debates: int = 0
    reward: _Mean = field(default_factory=_Mean)
    signal: _Mean = field(default_factory=_Mean)
    gradient: _Mean = field(default_factory=_Mean)
    size: _Mean = field(default_factory=_Mean)
    right: _Mean = field(default_factory=_Mean)
    wrong: _Mean = field(default_factory=_Mean)
    winners_right: _Mean = field(default_factory=_Mean)
    correlation: Correlation = field(default_factory=Correlation)
    winners: int = 0
    right_votes: int = 0
    telling_votes: int = 0

    def add(self, saved: Saved, side: Side) -> None:
        self.debates += 1
        for total in side.totals:
            self.reward.add(total)
        self.signal.add(side.signal)
        self.gradient.add(side.gradient)
        self.right_votes += side.right_votes
        self.telling_votes += side.telling_votes
        self.winners += side.winner is not None
        if (right := winner_is_right(saved, side.winner)) is not None:
            self.winners_right.add(right)
        for i, value in enumerate(side.turns):
            turn = saved.debate.turns[i]
            if not turn.ballot:
                self.size.add(abs(value))
            # A turn that cannot be read is wrong and punished under every reward: it would only hide how votes treat answers.
            if saved.known and saved.grades is not None and turn.answers:
                correct = saved.grades.correct[i]
                self.correlation.add(value, float(correct))
                (self.right if correct else self.wrong).add(value)

    def totals(self, scoring: Scoring) -> Totals:
        return Totals(
            reward=scoring.reward,
            advantage=scoring.estimator,
            debates=self.debates,
            reward_mean=self.reward.mean,
            with_signal=self.signal.mean,
            with_gradient=self.gradient.mean,
            advantage_size=self.size.mean,
            correlation=self.correlation.value,
            advantage_right=self.right.mean,
            advantage_wrong=self.wrong.mean,
            winner_correct=self.winners_right.mean,
            winners=self.winners,
            judge_accuracy=self.right_votes / self.telling_votes if self.telling_votes else None,
        )
