"""Run by test_attention.py in a process of its own: the decoder for GPUs, with triton's interpreter for its kernel and, in place of a
captured graph, the step run again into the same memory. Two adapters and the base decode at once, in more rows than one size holds."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from moot.engine.local import LocalEngine
from moot.engine.local.graphs import GraphDecoder
from moot.engine.local.scheduler import plain_steps
from moot.engine.protocol import AdamParams, Datum, SamplingParams


class Rerun(GraphDecoder):
    refused: tuple[int, ...] = ()

    def _begin(self) -> None: ...

    def _record(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        hidden = step().clone()
        if len(hidden) in self.refused:
            raise torch.OutOfMemoryError("planted")

        def replay() -> None:
            hidden.copy_(step())

        return replay, hidden


async def sampled(model: str, decoder: type[GraphDecoder] | None) -> list[Any]:
    engine = LocalEngine.create(model, device="cpu", dtype="fp32", max_cache_gib=0.002)
    if decoder is not None:
        scheduler, context = engine._scheduler, engine.capabilities.context_length
        plain = plain_steps(engine._network, engine._store, deterministic=False)
        scheduler.arrange = decoder(engine._network, engine._store, scheduler.max_batch, context, plain).arrange
    samplers = [await engine.base()]
    for sign in (1.0, -1.0):
        tokens = np.arange(1, 21, dtype=np.int32)
        ones = np.ones(20, dtype=np.float32)
        await engine.forward_backward([Datum(tokens, tokens + 1, 0 * ones, sign * ones, ones)], "importance_sampling")
        await engine.optim_step(AdamParams(0.05))
        samplers.append(await engine.snapshot())
    calls = [
        sampler.sample(np.arange(3, 3 + length) % 60, SamplingParams(5, temperature=0.9, seed=length))
        for sampler in samplers
        for length in (1, 5, 127, 128, 129, 30, 31, 32, 33)
    ]
    found = [each[0] for each in await asyncio.gather(*calls)]
    await engine.close()
    return found


async def main(model: str) -> None:
    expected = await sampled(model, None)
    refusing = type("Refusing", (Rerun,), {"refused": (16,)})
    for decoder in (Rerun, refusing):
        for ours, theirs in zip(await sampled(model, decoder), expected, strict=True):
            assert ours.tokens.tolist() == theirs.tokens.tolist()
            np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)
    print("equal")


asyncio.run(main(sys.argv[1]))
