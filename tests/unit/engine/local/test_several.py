"""Sequences of several adapters in one pass: each gets what it would get alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from moot.engine.local import network
from moot.engine.local.adapter import lora_parameters
from moot.engine.local.engine import LocalSampler
from moot.engine.local.several import Seats, Weights, fit_together
from moot.engine.protocol import SamplingParams
from moot.errors import EngineError
from support.engine_calls import until

PROMPTS = [[(start + 7 * i) % 60 + 1 for i in range(length)] for start, length in ((3, 5), (11, 130), (30, 41))]


async def adapters(engine: Any, count: int, size: float = 0.1) -> list[LocalSampler]:
    """The base, and so many adapters that have nothing to do with each other."""
    samplers = [await engine.base()]
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        for parameter in lora_parameters(engine._wrapped).values():
            parameter.data = size * torch.randn(parameter.shape, generator=generator)
        samplers.append(await engine.snapshot())
    return samplers


def asked(sampler: LocalSampler, number: int) -> list[Any]:
    params = SamplingParams(12, temperature=0.8, seed=number)
    prompt = PROMPTS[number % 3]
    return [sampler.sample(prompt, params), sampler.compute_logprobs([*prompt, *PROMPTS[0]])]


def check_alike(together: Sequence[Any], apart: Sequence[Any]) -> None:
    for ours, theirs in zip(together, apart, strict=True):
        if isinstance(ours, list):
            assert ours[0].tokens.tolist() == theirs[0].tokens.tolist()
            ours, theirs = ours[0].logprobs, theirs[0].logprobs
        np.testing.assert_allclose(ours, theirs, atol=5e-5)


@pytest.mark.parametrize("count", [1, 2, 3, network.SLOTS + 2])
def test_each_says_what_it_says_alone_and_all_share_their_steps(make_engine: Callable[..., Any], count: int) -> None:
    """With more adapters than a pass serves, two batches take turns."""

    async def main() -> None:
        engine = make_engine()
        samplers = await adapters(engine, count)
        calls = [(sampler, number) for number, sampler in enumerate([*samplers, *samplers])]
        apart = [await call for sampler, number in calls for call in asked(sampler, number)]
        before = engine.statistics["steps"]
        together = await asyncio.gather(*(call for sampler, number in calls for call in asked(sampler, number)))
        check_alike(together, apart)
        steps, batches = engine.statistics["steps"] - before, 1 if count <= network.SLOTS else 2
        assert steps < 2 * batches * 12, "one step for all rows of a batch"

    asyncio.run(main())


def test_what_is_published_while_others_sample_joins_them(make_engine: Callable[..., Any]) -> None:
    async def main() -> None:
        engine = make_engine()
        (base, first, second), params = await adapters(engine, 2), SamplingParams(300, seed=1, stop=())
        alone = [await sampler.sample(PROMPTS[0], params) for sampler in (base, first, second)]
        going_on = [asyncio.create_task(sampler.sample(PROMPTS[0], params)) for sampler in (base, first)]
        await until(lambda: engine.statistics["decoded"] >= 900 + 20)
        later = await second.sample(PROMPTS[0], params)
        check_alike([*[await task for task in going_on], later], alone)

    asyncio.run(main())


def test_numbers_that_are_not_finite_spoil_nobody_elses_rows(make_engine: Callable[..., Any]) -> None:
    async def main() -> None:
        engine = make_engine()
        samplers = await adapters(engine, 2)
        alone = [(await sampler.sample(PROMPTS[0], SamplingParams(30, seed=2))) for sampler in samplers]
        for value in (float("nan"), float("inf")):
            next(iter(lora_parameters(engine._wrapped).values())).data.fill_(value)
            broken = await engine.snapshot()
            calls = [sampler.sample(PROMPTS[0], SamplingParams(30, seed=2)) for sampler in (*samplers, broken)]
            *together, failed = await asyncio.gather(*calls, return_exceptions=True)
            check_alike(together, alone)
            assert isinstance(failed, EngineError) and "diverged" in str(failed)

    asyncio.run(main())


def test_other_shapes_and_too_many_run_apart() -> None:
    def weights(key: int, rank: int = 4, sound: bool = True) -> Weights:
        low = network.LowRank(torch.zeros(rank, 8), torch.zeros(8, rank))
        return Weights(key, [{"o": low}], sound)

    base, many = Weights(0, ()), [weights(key) for key in range(1, network.SLOTS + 1)]
    assert fit_together([base, *many, *many])
    assert not fit_together([*many, weights(99)])
    assert not fit_together([many[0], weights(99, rank=8)])
    assert not fit_together([base, weights(99, sound=False)]) and fit_together([weights(99, sound=False)])


def test_an_adapter_keeps_its_seat_and_only_new_ones_are_copied(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()
    adapters_of = [sampler._weights.adapter for sampler in asyncio.run(adapters(engine, 4))]
    base, *own = adapters_of
    seats, copied = Seats(engine._network, captures=True), list[Any]()
    plain = torch._foreach_copy_

    def count(places: Any, values: Any) -> None:
        copied.append(len(values))
        plain(places, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "_foreach_copy_", count)
        assert seats.seat([base, base]).kind == () and not copied
        alone = seats.seat([own[0], own[0]])
        assert (alone.count, alone.slots, len(copied)) == (1, {}, 1)
        pair = seats.seat([own[0], base])
        assert (pair.count, pair.slot(own[0]), pair.slot(base), len(copied)) == (2, 0, -1, 2)
        assert seats.seat([own[1], own[0]]).slot(own[0]) == 0 and len(copied) == 3
        assert seats.seat([own[0], own[1]]).slot(own[1]) == 1 and len(copied) == 3
        newer = seats.seat([own[2], own[1]])  # the first is gone, and its seat is free
        assert (newer.slot(own[2]), newer.slot(own[1]), len(copied)) == (0, 1, 4)
        assert seats.seat(own).count == 4 and len(copied) == 8
