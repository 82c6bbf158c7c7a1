"""The calls to an engine that its contract is tested with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from moot.engine.protocol import AdamParams, Datum, Sample, SamplingParams
from support.datums import sampled_datum

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
PERSONA_TEMPERATURES = (0.6, 0.8, 0.9, 1.0)


def greedy_free(max_tokens: int = 20, **options: Any) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, **{"seed": 7, **options})


async def one(sampler: Any, prompt: list[int] = PROMPT, params: SamplingParams | None = None) -> Sample:
    return (await sampler.sample(prompt, params or greedy_free()))[0]


async def until(true: Callable[[], bool]) -> None:
    def wait() -> None:
        while not true():
            time.sleep(0.001)

    await asyncio.to_thread(wait)


async def trained(engine: Any, steps: int = 3, rate: float = 0.02) -> Any:
    """Move the weights somewhere, and give a sampler of where they are."""
    sample = await one(await engine.snapshot())
    for _ in range(steps):
        await engine.forward_backward([sampled_datum(PROMPT, sample)], "cross_entropy")
        await engine.optim_step(AdamParams(learning_rate=rate))
    return await engine.snapshot()


async def trainer_logprobs(engine: Any, tokens: Sequence[int], temperature: float = 1.0) -> np.ndarray:
    """What `compute_logprobs` of the weights of now should say, by the trainer's forward pass, which has no cache."""
    ids, ones = np.array(tokens, np.int32), np.ones(len(tokens) - 1, np.float32)
    out = await engine.forward([Datum(ids[:-1], ids[1:], 0 * ones, 0 * ones, ones, temperature)])
    return np.append(np.float32(np.nan), out.logprobs[0])
