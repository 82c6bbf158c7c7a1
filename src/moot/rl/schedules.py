"""How a number falls over a run: the learning rate, the share of truth, how often an outside judge is asked."""

from __future__ import annotations

import math

from moot.settings.train import OptimConfig, Schedule


def scheduled(value: float, schedule: Schedule, done: float) -> float:
    """`value` at the start; under linear and cosine 0 at the end. `done` is the share of the run that is over."""
    match schedule:
        case "constant":
            return value
        case "linear":
            return value * (1 - done)
        case "cosine":
            return value * 0.5 * (1 + math.cos(math.pi * done))


def learning_rate(optim: OptimConfig, iteration: int, done: float) -> float:
    """Of self-play's `iteration`, from 1, when the share `done` is over. Warm-up ends at the schedule."""
    rising = min(1.0, iteration / optim.lr_warmup) if optim.lr_warmup else 1.0
    return rising * scheduled(optim.learning_rate, optim.lr_schedule, done)
