"""A learning rate that gives way to steps that are too long, for when a step undoes the steps before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.rl.metrics import Metrics
from moot.training.part import Part
from moot.training.state import Lesson, Progress, Setup

LOWEST = 1 / 64


class AdaptiveRate(Part):
    """The learning rate is halved when a step moves the policy too far, and returns slowly. Untried."""

    @dataclass(frozen=True)
    class Settings:
        target_kl: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
        """Halve the rate when optim/kl_step is more than 1.5 times this."""

    settings: Settings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.factor = 1.0
        """The share of the configured rate that the next step may have."""

    def rate(self, rate: float, iteration: int, done: float) -> float:
        return self.factor * rate

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        self.update(lesson.trained["optim/kl_step"])
        return {"optim/lr_factor": self.factor}

    def update(self, kl: float | None) -> None:
        """Half the rate after a step of over 1.5 times the target, a tenth more after one of under half of it, never
        over the whole."""
        if kl is None:
            return
        # A step that makes all it sampled likelier is long too, and its estimate is below 0.
        if abs(kl) > 1.5 * self.settings.target_kl:
            self.factor = max(LOWEST, self.factor / 2)
        elif abs(kl) < 0.5 * self.settings.target_kl:
            self.factor = min(1.0, self.factor * 1.1)

    def state(self) -> dict[str, Any]:
        return {"factor": self.factor}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.factor = float(state["factor"])
