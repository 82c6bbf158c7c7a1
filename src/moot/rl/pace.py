"""How long a step is: the learning rate of an iteration."""

from __future__ import annotations

from moot.rl.config import OptimConfig
from moot.rl.recipe import scheduled


def learning_rate(optim: OptimConfig, iteration: int, done: float) -> float:
    """Of self-play's `iteration`, from 1, when the share `done` of the run is over. The warm-up reaches the schedule's value at its end."""
    rising = min(1.0, iteration / optim.lr_warmup) if optim.lr_warmup else 1.0
    return rising * scheduled(optim.learning_rate, optim.lr_schedule, done)
