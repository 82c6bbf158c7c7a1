"""How long a step is: the learning rate of an iteration, and what the step did to the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moot.engine.protocol import Datum, Floats
from moot.rl.config import OptimConfig
from moot.rl.schedules import scheduled

MEASURED = 64
"""Datums on which a step is measured, at most: one forward pass over a part of the batch."""
LOWEST = 1 / 64


@dataclass
class Pace:
    """Learns from the length of each step how large a share of the configured rate the next may have. A checkpoint keeps it."""

    factor: float = 1.0

    def rate(self, optim: OptimConfig, iteration: int, done: float) -> float:
        """Of self-play's `iteration`, from 1, when the share `done` of the run is over. At its end the warm-up has reached the schedule."""
        rising = min(1.0, iteration / optim.lr_warmup) if optim.lr_warmup else 1.0
        return self.factor * rising * scheduled(optim.learning_rate, optim.lr_schedule, done)

    def update(self, target: float, kl: float | None) -> None:
        """Half the rate after a step of over 1.5 times the target, a tenth more after one of under half of it, never over the whole."""
        if not target or kl is None:
            return
        # A step that makes all it sampled likelier is long too, and its estimate is below 0.
        if abs(kl) > 1.5 * target:
            self.factor = max(LOWEST, self.factor / 2)
        elif abs(kl) < 0.5 * target:
            self.factor = min(1.0, self.factor * 1.1)


def kl_step(datums: Sequence[Datum], before: Sequence[Floats], after: Sequence[Floats]) -> float | None:
    """Mean over action tokens of logprob before minus after: an estimate of the KL from the old policy to the new one."""
    gaps = [(old - new)[datum.mask > 0] for datum, old, new in zip(datums, before, after, strict=True)]
    joined = np.concatenate(gaps).astype(np.float64) if gaps else np.zeros(0)
    return float(joined.mean()) if len(joined) else None
