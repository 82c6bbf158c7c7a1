"""A still point: weights that do not move with each step, to keep near to and to take labels from.

base     the model before any training
start    the policy after the warm start, which is the base model where there was none
ema      a moving average of the policy, for engines that can keep one
a run    RUN or RUN@STEP: a checkpoint, in an engine of its own
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from moot.checkpoints import newest_whole
from moot.debate.types import ConfigError
from moot.engine.protocol import Averaging, Datum, Sampler
from moot.loop.state import Loop
from moot.rl.config import TrainConfig
from moot.rl.metrics import Metrics

OURS = ("base", "start", "ema")
"""The still points that the run's own engine has; every other name is a run's."""


def named_runs(config: TrainConfig) -> dict[str, str]:
    """By the setting that names it: the runs whose weights are needed beside the policy's."""
    wanted = {"reference": config.optim.reference if config.optim.kl_coef else "base", "labels_from": config.recipe.labels_from}
    return {setting: name for setting, name in wanted.items() if name not in (*OURS, "self")}


def uses(config: TrainConfig, name: str) -> bool:
    return name in ((config.optim.reference if config.optim.kl_coef else ""), config.recipe.labels_from)


async def still_point(loop: Loop, name: str) -> Sampler:
    if name == "base" or (name == "start" and not loop.config.warm_steps):
        return await loop.engine.base()
    if name == "ema":
        assert isinstance(loop.engine, Averaging)  # checked with the capabilities before the run began
        return await loop.engine.averaged()
    if name not in loop.references:
        raise ConfigError(f"the weights of {name} are not there; it must be base, start, ema, a run's folder or RUN@STEP")
    return loop.references[name]


async def keep_still(loop: Loop, step: int, sampler: Sampler) -> None:
    """Called with the policy as self-play begins or continues: remembers the start, and starts or continues the average."""
    config = loop.config
    if uses(config, "start") and config.warm_steps and "start" not in loop.references:
        start = config.warm_steps
        loop.references["start"] = sampler if step == start else await weights_of_step(loop, start, "reference start")
    if uses(config, "ema") and step == config.warm_steps:
        await move_average(loop)


async def move_average(loop: Loop) -> None:
    """After each iteration; the first call starts the average. It is saved with the engine's state."""
    if uses(loop.config, "ema"):
        assert isinstance(loop.engine, Averaging)
        await loop.engine.average(loop.config.optim.ema_decay)


async def weights_of_step(loop: Loop, step: int, setting: str) -> Sampler:
    """Those of an earlier step of a run that is continued: its checkpoint was kept, and the newest one is loaded again after it."""
    if step == 0:
        return await loop.engine.base()
    earlier, newest = newest_whole(loop.run, step), newest_whole(loop.run)
    if earlier is None or newest is None:
        raise ConfigError(f"{setting} needs the checkpoint of step {step}, which is missing or damaged; use base")
    await loop.engine.load_state(earlier.engine_state)
    sampler = await loop.engine.snapshot()
    await loop.engine.load_state(newest.engine_state)
    return sampler


# The penalty for leaving it


@dataclass(frozen=True)
class Penalised:
    datums: list[Datum]
    metrics: Metrics


async def penalise_distance(loop: Loop, given: Sequence[Datum]) -> Penalised:
    """Moves each token's advantage by how much likelier the policy makes it than the reference does, less the batch's mean."""
    coefficient, name = loop.config.optim.kl_coef, loop.config.optim.reference
    if not coefficient or not given:
        return Penalised(list(given), {})
    reference = await still_point(loop, name)
    starts = [int(np.argmax(d.mask > 0)) + 1 for d in given]  # before its first own token nothing need be computed
    asked = zip(given, starts, strict=True)
    standing = await asyncio.gather(
        *(reference.compute_logprobs(np.append(d.tokens, d.targets[-1]), d.temperature, start) for d, start in asked)
    )
    gaps = [np.where(d.mask > 0, (d.logprobs - logprobs[1:]) * d.mask, 0) for d, logprobs in zip(given, standing, strict=True)]
    mean = float(sum(gap.sum() for gap in gaps) / max(1.0, sum(d.mask.sum() for d in given)))
    moved = [
        replace(d, advantages=(d.advantages + coefficient * (mean - gap) * d.mask).astype(np.float32))
        for d, gap in zip(given, gaps, strict=True)
    ]
    base = name == "base" or (name == "start" and not loop.config.warm_steps)
    return Penalised(moved, {"optim/kl_policy_base" if base else "optim/kl_policy_reference": mean})
