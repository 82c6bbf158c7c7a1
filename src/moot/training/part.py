"""The base class of optional parts of training, and the hooks in which a run asks them.

A part is one class in one file of `parts/`, or a user's own (`--with file.py:Class`). Its settings, its refusals, its
metrics and what a checkpoint keeps of it are its own. Parts are asked in the order in which they are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moot.debate.rules import Lack
    from moot.debate.scoring import Scoring
    from moot.debate.types import Question
    from moot.engine.protocol import Capabilities, Datum, Sampler
    from moot.rl.metrics import Metrics
    from moot.rl.rollout import Guest, Judges, Seats
    from moot.settings.train import TrainConfig
    from moot.tasks.task import Task
    from moot.training.state import Batch, BatchQuestion, History, Lesson, Progress, Setup


class Part:
    """An optional part of training. Every hook does nothing unless it is overridden; settings, metrics and state are
    the part's own.

    The first line of a part's docstring is its help, and says what was measured with it, or "untried".
    """

    name: str = ""
    """As it is named in `--with`."""

    needs: tuple[Lack, ...] = ()
    """What debates must have for it: it is refused under rules that lack one of these (`Rules.lacks`)."""

    sets_labels = False
    """It says which answer is right (`Question.label`)."""

    @dataclass(frozen=True)
    class Settings:
        """None. Those of a part are a frozen dataclass of pydantic, with types and limits at the field."""

    def __init__(self, settings: Any = None) -> None:
        self.settings: Any = self.Settings() if settings is None else settings

    @property
    def brings_judge(self) -> bool:
        """Whether it has a judge without a seat of its own; at most one part of a run has."""
        return type(self).judge is not Part.judge

    # Before anything is loaded

    def check(self, config: TrainConfig) -> None:
        """Refuses, by name, settings of the run that it cannot be used with."""

    def check_beside(self, config: TrainConfig, others: Sequence[Part]) -> None:
        """Refuses the other parts of the run, if one is missing or in the way: by what they do, not by their names."""

    def check_engine(self, config: TrainConfig, capabilities: Capabilities) -> None:
        """Refuses an engine that cannot do what it needs."""

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """Refuses tasks that it cannot train on."""

    def tasks(self) -> tuple[str, ...]:
        """The tasks to train on, by level, instead of the one that is measured."""
        return ()

    def debate_settings(self) -> Mapping[str, Any]:
        """Fields of a debate that differ from the usual, in evaluations too."""
        return {}

    def weights(self) -> str:
        """Whose weights it needs beside the policy's: base, start, ema, RUN or RUN@STEP."""
        return ""

    def ema_decay(self) -> float | None:
        """How much of the policy's moving average stays at each step, where it needs one."""
        return None

    # Before a step

    async def begin(self, setup: Setup, step: int, sampler: Sampler) -> Sampler | None:
        """Self-play begins or continues after `step`, whose weights `sampler` has. Answers with another one where it
        changes them."""

    def level(self) -> int:
        """Which of the tasks new questions are of."""
        return 0

    def fresh(self, setup: Setup, question: BatchQuestion) -> BatchQuestion:
        """A new question, changed."""
        return question

    def again(self, step: int) -> Sequence[BatchQuestion]:
        """Questions to debate in this step before its new ones."""
        return ()

    async def chosen(
        self, setup: Setup, progress: Progress, step: int, asked: list[BatchQuestion]
    ) -> tuple[list[BatchQuestion], int]:
        """Those that are worth a debate, and the tokens that it took to find them."""
        return asked, 0

    def question(self, asked: BatchQuestion, question: Question) -> Question:
        """What is debated, changed."""
        return question

    def seats(self, setup: Setup, seed: str) -> Seats | None:
        """Who sits in a debate of a batch instead of the policy."""
        return None

    def judge(self) -> Guest | None:
        """An outside judge instead of the one that the settings name."""
        return None

    def asks(self) -> Mapping[str, Any]:
        """How it asks the judge, in the words of `Reward.asks`, where it does so instead of the reward."""
        return {}

    def judges(self, judges: Judges) -> Judges:
        """Which debates of a batch are judged."""
        return judges

    async def played(self, setup: Setup, progress: Progress, step: int, batch: Batch, sampler: Sampler) -> Batch:
        """A batch that was played, changed: with more debates, or with fewer."""
        return batch

    async def close(self) -> None:
        """The run ends here, whatever ends it: lets go of what the part has opened."""

    # In a step

    def scoring(self, scoring: Scoring, done: float) -> Scoring:
        """How votes count when the share `done` of self-play is over."""
        return scoring

    async def datums(self, setup: Setup, datums: list[Datum]) -> tuple[list[Datum], Metrics]:
        """What is trained on, with other advantages; the record of the debates shows them too."""
        return datums, {}

    def rate(self, rate: float, iteration: int, done: float) -> float:
        """The learning rate of self-play's `iteration`, from 1, when the share `done` of the run is over."""
        return rate

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        """A step was taken and is not committed yet. What it answers stands in the row of the step."""
        return {}

    # After a step

    def committed(self, setup: Setup, step: int, sampler: Sampler) -> None:
        """The step is committed; `sampler` has its weights."""

    def evaluated(self, setup: Setup, row: Mapping[str, Any], sampler: Sampler) -> Metrics:
        """Held-out questions were debated after the warm start. What it answers stands in the row of the evaluation."""
        return {}

    def ended(self, setup: Setup, history: History, row: Mapping[str, Any]) -> None:
        """The step of `row` is committed, and evaluated where that was due. Raises `Stopped` to end the run."""

    def kept_steps(self) -> set[int]:
        """Steps whose checkpoints it needs, however old they are."""
        return set()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, as JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes it back. Fails with ValueError, KeyError or the like on the state of another version."""
