"""A learning rate that rises at the start of a run and falls to its end."""

from __future__ import annotations

from moot.rl.schedules import learning_rate
from moot.settings.rate import RateSchedule
from moot.training.part import Part


class LrSchedule(Part):
    """The learning rate rises over its first steps, or falls to 0. Measured: docs/experiment.md."""

    Settings = RateSchedule  # type: ignore[assignment]  # a configuration reads it too
    settings: RateSchedule

    def rate(self, rate: float, iteration: int, done: float) -> float:
        return learning_rate(rate, self.settings, iteration, done)
