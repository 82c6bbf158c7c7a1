"""What a run is made of (`Setup`), and what it remembers from step to step (`Progress`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moot.debate.rewards import Reward
from moot.engine.protocol import Sampler, Trainer
from moot.rl.advantages import Estimator, SeatMeans
from moot.rl.alarms import Alarms
from moot.rl.metrics import Metrics
from moot.rl.plurality_history import Visits
from moot.rl.rollout import Guest, Player
from moot.runs import Run
from moot.runs.lock import RunLock
from moot.settings.question_numbers import Further
from moot.settings.train import TrainConfig
from moot.tasks.task import Task
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering

if TYPE_CHECKING:
    from moot.training.part import Part


class Stopped(Exception):
    """The run cannot usefully continue. What was committed is safe; the message says why and what to do."""


class Watcher:
    """Callbacks of the training loop: a progress bar, TensorBoard, a test. This base class ignores them."""

    def began(self, step: int, total: int, phase: str) -> None: ...
    def debate_finished(self, played: PlayedDebate) -> None: ...
    def counted(self, kind: str, done: int, total: int) -> None: ...
    def row(self, row: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(frozen=True, eq=False)
class Setup:
    """What a run is made of. `prepare` makes it and `carry_out` completes it; while the run trains nothing in it is
    replaced."""

    config: TrainConfig
    engine: Trainer
    rendering: Rendering
    task: Task
    """What is measured."""
    tasks: Sequence[Task]
    """What is trained on, by level: `task` alone, or what a part puts in its place."""
    reward: Reward
    estimator: Estimator
    run: Run
    parts: tuple[Part, ...] = ()
    # With these `carry_out` completes it.
    watcher: Watcher = field(default_factory=Watcher)
    judge: Guest | None = None
    """Votes from outside, and is never trained."""
    opponents: Mapping[str, Guest] = field(default_factory=dict)
    """Whom evaluations in mode opponents play against, by name."""
    weights: Mapping[str, Sampler] = field(default_factory=dict)
    """Those of other runs that parts need, by name."""
    # What `carry_out` needs for that.
    lock: RunLock = field(default_factory=RunLock)
    """Held on the run's folder; closed, others may write there."""
    make_engine: Callable[[TrainConfig], tuple[Trainer, Rendering]] | None = None
    """Where engines come from. Runs that train together have it in common."""

    @property
    def tempered(self) -> bool:
        return self.engine.capabilities.tempered_training

    def rate(self, iteration: int, done: float) -> float:
        """The learning rate of self-play's `iteration`, from 1, as the parts have it."""
        rate = self.config.optim.learning_rate
        for part in self.parts:
            rate = part.rate(rate, iteration, done)
        return rate

    def guest(self, sampler: Sampler) -> Player:
        """A copy of the policy that takes part and is not trained."""
        return Player(sampler, self.rendering, learns=False, tempered=self.tempered)

    def outside_judge(self) -> Guest | None:
        """Who judges now: a part's judge, or the one that the settings name."""
        return next((judge for part in self.parts if (judge := part.judge()) is not None), self.judge)


@dataclass
class Progress:
    """What a run remembers: exactly what `commit` puts into each checkpoint, where every part adds its own."""

    seats: SeatMeans = field(default_factory=SeatMeans)
    alarms: Alarms = field(default_factory=Alarms)
    skipped: int = 0
    """Optimizer steps in a row whose gradient was not finite."""
    sampled: int = 0
    """Tokens sampled in self-play so far: by agents, by judges without a seat, and for labels."""
    further: Further = field(default_factory=Further)
    """Questions debated beyond the batches."""

    def state(self) -> dict[str, Any]:
        return {
            "seats": self.seats.means,
            "alarms": self.alarms.state(),
            "skipped": self.skipped,
            "sampled": self.sampled,
            "further": self.further.ranges,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Progress:
        """Fails with ValueError, KeyError or the like on the state of another version."""
        means = {name: {int(seat): mean for seat, mean in row.items()} for name, row in state["seats"].items()}
        skipped, sampled, further = _count(state["skipped"]), _count(state["sampled"]), state["further"]
        return cls(SeatMeans(means), Alarms.from_state(state["alarms"]), skipped, sampled, Further.from_state(further))

    def spent(self, config: TrainConfig) -> bool:
        """Whether the budget of tokens is used up."""
        return 0 < config.recipe.max_sampled_tokens <= self.sampled

    def done(self, config: TrainConfig, step: int) -> float:
        """The share of self-play that is over before `step`, by tokens where they are what ends it."""
        if limit := config.recipe.max_sampled_tokens:
            return min(1.0, self.sampled / limit)
        return config.share_before(step)


def _count(value: Any) -> int:
    """Of what was done or sampled."""
    if not 0 <= (count := int(value)) < 1 << 40:
        raise ValueError(f"this is no count: {count!r:.80}")
    return count


@dataclass
class History:
    """What the run's own files say of its past; read from them again when a run continues."""

    visits: Visits
    """What most agents answered when a question was last debated."""
    best: int | None = None
    """The step of the best evaluation so far."""


@dataclass(frozen=True)
class BatchQuestion:
    """A question of a batch: which one of which task, and by how many agents it is debated."""

    level: int
    number: int
    num_agents: int


@dataclass(frozen=True)
class Batch:
    """Questions and their debates, in one order."""

    asked: Sequence[BatchQuestion]
    played: Sequence[PlayedDebate]
    tokens: int = 0
    """Sampled before the debates, to find the questions. They are counted with the step that learns from the batch, so
    that a run that was killed before its commit counts them too."""

    def __add__(self, other: Batch) -> Batch:
        return Batch([*self.asked, *other.asked], [*self.played, *other.played], self.tokens + other.tokens)


@dataclass(frozen=True)
class Lesson:
    """What a step has learned from, for the parts."""

    step: int
    asked: Sequence[BatchQuestion]
    taught: Sequence[PlayedDebate]
    rate: float
    trained: Metrics
    """What the optimizer says."""
