"""Tasks from easy to hard, for when direct accuracy is under 10%."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator
from pydantic.dataclasses import dataclass

from moot.errors import ConfigError
from moot.rl.metrics import Metrics, answer_metrics
from moot.settings.train import TrainConfig
from moot.tasks.task import Task
from moot.training.part import Part
from moot.training.state import Lesson, Progress, Setup

WINDOW = 3
"""Steps whose accuracy must hold before a curriculum moves on."""


def _accuracy_or_steps(value: float) -> float:
    if value < 0 or (value > 1 and value % 1):
        raise ValueError(f"must be an accuracy from 0 to 1, or a whole number of steps, got {value:g}")
    return value


class Curriculum(Part):
    """Tasks from easy to hard, trained on instead of the one that is measured. Untried.

    It moves on when the measured accuracy of training debates says so, or after so many steps; never back.
    """

    @dataclass(frozen=True)
    class Settings:
        tasks: Annotated[
            tuple[str, ...], BeforeValidator(lambda given: given.split("+") if isinstance(given, str) else given)
        ]
        """The tasks, easiest first, with + between them. Evaluation stays with `task`."""
        promote_at: Annotated[float, AfterValidator(_accuracy_or_steps)] = 0.7
        """Go to the next task once the mean accuracy of the last three steps reaches this, for which answers must be
        known. A number above 1 counts steps instead: that many on each task, in sequence."""

    settings: Settings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._level = 0
        self.recent: list[float] = []
        self.steps = 0
        """Taken on this task so far."""

    def check(self, config: TrainConfig) -> None:
        rules = config.protocol.rules
        if self.settings.promote_at <= 1 and (why := rules.lacks.get("accuracy")):
            raise ConfigError(
                f"promote_at must be a number of steps with positions {rules.positions}, got "
                f"{self.settings.promote_at}: {why}; promote_at=50 stays 50 steps on each"
            )

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """What would stop a run halfway is found now: a task whose accuracy nobody can tell, before the last, where
        that decides."""
        for task, following in itertools.pairwise(tasks):
            if self.settings.promote_at <= 1 and task.open_ended:
                raise ConfigError(
                    f"curriculum: task {task.name} has no right answers, so nothing decides when to continue to "
                    f"{following.name}; put it last, or continue after a number of steps (promote_at)"
                )

    def tasks(self) -> tuple[str, ...]:
        return self.settings.tasks

    def level(self) -> int:
        return self._level

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        for level in sorted({question.level for question in lesson.asked}):
            own = [
                played for question, played in zip(lesson.asked, lesson.taught, strict=True) if question.level == level
            ]
            grades = [played.grades for played in own if played.grades is not None]
            accuracy = answer_metrics([played.debate for played in own], grades, "task")["train_task/correct"]
            if self.update(level, accuracy):
                setup.watcher.note(f"the curriculum moves on to {setup.tasks[self._level].name}")
        return {"recipe/curriculum_level": float(max(question.level for question in lesson.asked))}

    def update(self, level: int, accuracy: float | None) -> bool:
        """Takes one step's accuracy at `level`; answers whether it moved on. A batch sampled before the last move says
        nothing."""
        if level != self._level or level == len(self.settings.tasks) - 1:
            return False
        self.steps += 1
        if accuracy is not None:
            self.recent = [*self.recent, accuracy][-WINDOW:]
        at = self.settings.promote_at
        if not (self.steps >= at if at > 1 else len(self.recent) == WINDOW and sum(self.recent) / WINDOW >= at):
            return False
        self._level, self.recent, self.steps = level + 1, [], 0
        return True

    def state(self) -> dict[str, Any]:
        return {"level": self._level, "recent": self.recent, "steps": self.steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._level, self.recent, self.steps = int(state["level"]), list(state["recent"]), int(state["steps"])
