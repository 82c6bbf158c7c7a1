"""What one run is made of, and what it remembers from step to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moot.debate.rewards import Reward
from moot.engine.protocol import Sampler, Trainer
from moot.records import Run
from moot.records.lock import RunLock
from moot.records.played import PlayedDebate
from moot.rl.advantages import Estimator, SeatMeans
from moot.rl.config import TrainConfig
from moot.rl.frozen_labels import Label
from moot.rl.pace import Pace
from moot.rl.question_numbers import Further
from moot.rl.remedies import BatchQuestion, Curriculum
from moot.rl.rendering import Rendering
from moot.rl.rollout import Guest, Player
from moot.rl.trust import Alarms
from moot.rl.visits import Visits
from moot.tasks.task import Task


class Stopped(Exception):
    """The run cannot usefully continue. What was committed is safe; the message says why and what to do."""


class Watcher:
    """Who looks on: the progress bar, TensorBoard, a test. This one does nothing about it."""

    def began(self, step: int, total: int, phase: str) -> None: ...
    def debate_finished(self, played: PlayedDebate) -> None: ...
    def counted(self, kind: str, done: int, total: int) -> None: ...
    def row(self, row: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class JudgeTaken:
    """A copy of the policy that judges: its step, and the held-out accuracy of its votes then."""

    step: int
    accuracy: float | None


@dataclass
class Loop:
    """Everything one run needs, and the little that changes from step to step, which `loop/commit.py` puts into each checkpoint."""

    config: TrainConfig
    engine: Trainer
    rendering: Rendering
    task: Task
    run: Run
    watcher: Watcher
    reward: Reward
    estimator: Estimator
    seats: SeatMeans = field(default_factory=SeatMeans)
    alarms: Alarms = field(default_factory=Alarms)
    skipped: int = 0
    """Optimizer steps in a row whose gradient was not finite."""
    pace: Pace = field(default_factory=Pace)
    further: Further = field(default_factory=Further)
    """Questions debated beyond the batches, for want of a signal."""
    sampled: int = 0
    """Tokens sampled in self-play so far: by agents, by judges without a seat, and for labels."""
    curriculum: Curriculum = field(init=False)
    stages: Sequence[Task] = ()
    """The curriculum's tasks; none means `task` alone."""
    judge: Guest | None = None
    """Votes from outside, and is never trained."""
    judge_taken: JudgeTaken | None = None
    """Where it is a frozen copy of the policy: of which step."""
    opponents: Mapping[str, Guest] = field(default_factory=dict)
    """Whom evaluations in mode opponents play against, by name."""
    reopened: dict[int, list[BatchQuestion]] = field(default_factory=dict)
    """By step: questions to be debated once more in it, by more agents. They stay until it is committed."""
    easy: set[str] = field(default_factory=set)
    """Questions whose last visit ended in one answer, by level and id."""
    start_from: int | None = None
    """The step whose checkpoint to continue from; None means the newest that can be used."""
    lock: RunLock = field(default_factory=RunLock)
    """Held on the run's folder; closed, others may write there."""
    references: dict[str, Sampler] = field(default_factory=dict)
    """Weights that stand still, by name."""
    labels: dict[tuple[int, int], Label] = field(default_factory=dict)
    """Labels of the questions met so far, by level and number, where they come from elsewhere."""
    visits: Visits = field(init=False)
    """What most agents answered when a question was last debated."""
    best: int | None = None
    """The step of the best evaluation so far."""
    past: dict[int, Player] = field(default_factory=dict)
    """Kept checkpoints that may hold a seat, by step; few, however long the run."""

    def __post_init__(self) -> None:
        self.visits = Visits.until(self.run, 0)
        self.curriculum = Curriculum(self.stages or [self.task], self.config.recipe.promote_at)

    @property
    def spent(self) -> bool:
        """Whether the budget of tokens is used up."""
        return 0 < self.config.recipe.max_sampled_tokens <= self.sampled

    def guest(self, sampler: Sampler) -> Player:
        """A copy of the policy that takes part and is not trained."""
        return Player(sampler, self.rendering, learns=False, tempered=self.engine.capabilities.tempered_training)

    def done(self, step: int) -> float:
        """The share of self-play that is over before `step`, by tokens where they are what ends it."""
        if limit := self.config.recipe.max_sampled_tokens:
            return min(1.0, self.sampled / limit)
        return self.config.share_before(step)
