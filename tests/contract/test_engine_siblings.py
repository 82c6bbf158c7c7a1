"""What every engine that has siblings promises of them: each is as an engine of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moot.engine.protocol import AdamParams, Sharing
from moot.errors import EngineError
from support.datums import sampled_datum
from support.engine_calls import PROMPT, greedy_free, one

run = asyncio.run
SEEDS = (5, 6)


async def learned(*engines: Any) -> list[Any]:
    """Three steps of each, taken in turns; then what each of them says: two samples and its logprobs of a prompt."""
    norms = []
    for number in range(3):
        samples = await asyncio.gather(
            *[one(await engine.snapshot(), params=greedy_free(30, seed=number)) for engine in engines]
        )
        for engine, sample in zip(engines, samples, strict=True):
            await engine.forward_backward([sampled_datum(PROMPT, sample)], "cross_entropy")
        norms.append([await engine.optim_step(AdamParams(learning_rate=0.02)) for engine in engines])
    samplers = [await engine.snapshot() for engine in engines]
    drawn = await asyncio.gather(*(sampler.sample(PROMPT, greedy_free(30), 2) for sampler in samplers))
    scores = await asyncio.gather(*(sampler.compute_logprobs(PROMPT * 20) for sampler in samplers))
    return [
        {
            "samples": [sample.tokens.tolist() for sample in drawn[i]],
            "sampled logprobs": np.concatenate([sample.logprobs for sample in drawn[i]]),
            "logprobs": scores[i][1:],
            "norms": np.array([step[i].metrics.get("grad_norm", 0.0) for step in norms]),
        }
        for i in range(len(engines))
    ]


def test_two_siblings_do_what_two_engines_do(make_engine: Callable[..., Any]) -> None:
    """To the bit where an engine is deterministic. Each has its own start, which its seed gives."""

    async def main() -> None:
        first = make_engine(seed=SEEDS[0], deterministic=True)
        if not first.capabilities.siblings:
            pytest.skip("has no siblings")
        assert isinstance(first, Sharing)
        second = first.sibling(SEEDS[1])
        together = await learned(first, second)
        second.shut()
        alone = [(await learned(make_engine(seed=seed, deterministic=True)))[0] for seed in SEEDS]
        for ours, single in zip(together, alone, strict=True):
            for name, value in ours.items():
                if first.capabilities.deterministic:
                    np.testing.assert_array_equal(value, single[name], err_msg=name)
                elif name != "samples":
                    np.testing.assert_allclose(value, single[name], atol=1e-3, err_msg=name)
        assert together[0]["samples"] != together[1]["samples"]

    run(main())


def test_a_closed_sibling_leaves_the_others_at_work(make_engine: Callable[..., Any]) -> None:
    async def main() -> None:
        first = make_engine()
        if not first.capabilities.siblings:
            pytest.skip("has no siblings")
        siblings = [first.sibling(seed) for seed in (1, 2)]
        samplers = [await engine.snapshot() for engine in (first, *siblings)]
        before = await one(samplers[2])
        for engine, sampler in zip((first, siblings[0]), samplers, strict=False):
            await engine.close()
            await engine.close()
            with pytest.raises(EngineError, match="closed"):
                await sampler.sample(PROMPT, greedy_free())
            with pytest.raises(EngineError, match="closed"):
                await engine.optim_step(AdamParams())
            with pytest.raises(EngineError, match="closed"):
                engine.sibling(3)
        assert (await one(samplers[2])).tokens.tolist() == before.tokens.tolist()
        await siblings[1].forward_backward([sampled_datum(PROMPT, before)], "cross_entropy")
        await siblings[1].optim_step(AdamParams())
        await siblings[1].close()
        with pytest.raises(EngineError, match="closed"):
            await samplers[2].sample(PROMPT, greedy_free())

    run(main())


@pytest.mark.weights
def test_a_sibling_saves_what_an_engine_of_its_own_can_load(make_engine: Callable[..., Any], tmp_path: Any) -> None:
    async def main() -> None:
        first = make_engine()
        if not first.capabilities.siblings:
            pytest.skip("has no siblings")
        other = first.sibling(6)
        await learned(first, other)
        saved = await other.save_state(str(tmp_path / "state"))
        expected = await (await other.snapshot()).compute_logprobs(PROMPT)
        other.shut()
        await first.load_state(saved)
        np.testing.assert_allclose(await (await first.snapshot()).compute_logprobs(PROMPT), expected, atol=1e-5)

    run(main())
