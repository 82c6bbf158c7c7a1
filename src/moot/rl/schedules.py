"""How a number falls over a run: the learning rate, the share of truth."""

from __future__ import annotations

import math

from moot.settings.rate import RateSchedule
from moot.settings.train import Schedule


def scheduled(value: float, schedule: Schedule, done: float) -> float:
    """`value` at the start; under linear and cosine 0 at the end. `done` is the share of the run that is over."""
    match schedule:
        case "constant":
            return value
        case "linear":
            return value * (1 - done)
        case "cosine":
            return value * 0.5 * (1 + math.cos(math.pi * done))


def learning_rate(rate: float, schedule: RateSchedule, iteration: int, done: float) -> float:
    """Of self-play's `iteration`, from 1, when the share `done` of the run is over. At its end the warm-up has reached
    the schedule."""
    rising = min(1.0, iteration / schedule.warmup) if schedule.warmup else 1.0
    return rising * scheduled(rate, schedule.shape, done)
