"""What every engine promises of training, saving and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moot.engine.protocol import AdamParams, Datum
from moot.errors import EngineError
from support.datums import sampled_datum
from support.engine_calls import PERSONA_TEMPERATURES, PROMPT, greedy_free, one, trained

run = asyncio.run


@pytest.mark.weights
def test_a_snapshot_keeps_its_weights_while_training_goes_on(engine: Any) -> None:
    async def main() -> None:
        before = await engine.snapshot()
        scores = await before.compute_logprobs(PROMPT)
        sample = await one(before)
        after = await trained(engine)
        np.testing.assert_array_equal(await before.compute_logprobs(PROMPT), scores)
        assert (await one(before)).tokens.tolist() == sample.tokens.tolist()
        assert np.nanmax(np.abs(await after.compute_logprobs(PROMPT) - scores)) > 1e-3

    run(main())


@pytest.mark.parametrize("temperature", PERSONA_TEMPERATURES)
def test_on_policy_the_trainer_agrees_with_the_sampler(engine: Any, temperature: float) -> None:
    """Ratio 1 at the temperature that was sampled at."""
    if not engine.capabilities.tempered_training and temperature != 1:
        pytest.skip("trains at temperature 1 only")

    async def main() -> None:
        sampler = await trained(engine)
        samples = await sampler.sample(PROMPT, greedy_free(100, temperature=temperature), num_samples=4)
        datums = [sampled_datum(PROMPT, sample, temperature=temperature) for sample in samples]
        out = await engine.forward(datums)
        difference = np.concatenate([(o - d.logprobs)[d.mask > 0] for o, d in zip(out.logprobs, datums, strict=True)])
        assert np.abs(difference).max() < 1e-4
        assert 0.5 * np.mean(difference**2) < 1e-8

    run(main())


@pytest.mark.weights
def test_losses_have_their_hand_computed_values(engine: Any) -> None:
    async def main() -> None:
        sample = await one(await trained(engine))
        base = sampled_datum(PROMPT, sample)
        random = np.random.default_rng(0)
        advantages = (random.normal(size=len(base)) * base.mask).astype(np.float32)
        old = (base.logprobs + random.normal(size=len(base)) * 0.4 * base.mask).astype(np.float32)
        off = Datum(base.tokens, base.targets, old, advantages, base.mask)
        logprobs = (await engine.forward([off])).logprobs[0]
        ratio = np.exp(logprobs - old)
        hand = {
            "cross_entropy": -(logprobs * base.mask).sum(),
            "importance_sampling": -(ratio * advantages).sum(),
            "ppo": -np.minimum(ratio * advantages, ratio.clip(0.8, 1.2) * advantages).sum(),
            "cispo": -(ratio.clip(0.8, 1.2) * logprobs * advantages).sum(),
        }
        for name in engine.capabilities.losses:
            out = await engine.forward_backward([off, off], name)
            assert out.loss == pytest.approx(2 * hand[name], rel=1e-4, abs=1e-4), name
        tight = await engine.forward_backward([off], "ppo", {"clip_low_threshold": 0.95, "clip_high_threshold": 1.01})
        expected = -np.minimum(ratio * advantages, ratio.clip(0.95, 1.01) * advantages).sum()
        assert tight.loss == pytest.approx(expected, rel=1e-4, abs=1e-4)

    run(main())


def test_an_unknown_loss_or_setting_is_refused_by_name(engine: Any) -> None:
    async def main() -> None:
        item = sampled_datum(PROMPT, await one(await engine.snapshot()))
        with pytest.raises(ValueError, match="grpo"):
            await engine.forward_backward([item], "grpo")
        with pytest.raises(ValueError, match="epsilon"):
            await engine.forward_backward([item], "ppo", {"epsilon": 0.2})

    run(main())


@pytest.mark.weights
def test_gradients_add_up_until_the_step(make_engine: Callable[..., Any]) -> None:
    """Two calls of one datum and one call of two give the same step, and a step uses its gradient up."""

    async def main() -> None:
        results = []
        for calls in (2, 1):
            engine = make_engine()
            sampler = await engine.snapshot()
            items = [sampled_datum(PROMPT, s) for s in await sampler.sample(PROMPT, greedy_free(30), num_samples=2)]
            if calls == 2:
                for item in items:
                    await engine.forward_backward([item], "cross_entropy")
            else:
                await engine.forward_backward(items, "cross_entropy")
            out = await engine.optim_step(AdamParams(learning_rate=0.01))
            results.append((out.metrics["grad_norm"], await (await engine.snapshot()).compute_logprobs(PROMPT)))
            empty = await engine.optim_step(AdamParams(learning_rate=0.01))
            assert empty.metrics.get("grad_norm", 0) == 0
        assert results[0][0] == pytest.approx(results[1][0], rel=1e-4)
        np.testing.assert_allclose(results[0][1], results[1][1], atol=2e-4)

    run(main())


@pytest.mark.weights
def test_tempered_training_moves_the_tempered_distribution(engine: Any) -> None:
    if not engine.capabilities.tempered_training:
        pytest.skip("trains at temperature 1 only")

    async def main() -> None:
        sampler = await engine.snapshot()
        sample = await one(sampler, params=greedy_free(temperature=0.6))
        tempered = (await engine.forward([sampled_datum(PROMPT, sample, temperature=0.6)])).logprobs[0]
        plain = (await engine.forward([sampled_datum(PROMPT, sample, temperature=1.0)])).logprobs[0]
        np.testing.assert_allclose(tempered[len(PROMPT) - 1 :], sample.logprobs, atol=1e-4)
        assert np.abs(plain - tempered).max() > 0.05

    run(main())


@pytest.mark.weights
def test_training_on_good_samples_makes_them_likelier(engine: Any) -> None:
    async def main() -> None:
        sample = await one(await engine.snapshot())
        losses = []
        for _ in range(10):
            losses.append((await engine.forward_backward([sampled_datum(PROMPT, sample)], "cross_entropy")).loss)
            await engine.optim_step(AdamParams(learning_rate=0.01))
        assert losses[-1] < 0.8 * losses[0]

    run(main())


@pytest.mark.weights
def test_verbs_take_their_place_when_called_not_when_awaited(engine: Any) -> None:
    async def main() -> None:
        sample = await one(await engine.snapshot())
        item = sampled_datum(PROMPT, sample)
        first = engine.forward_backward([item], "cross_entropy")
        step = engine.optim_step(AdamParams(learning_rate=0.01))
        second = engine.forward_backward([item], "cross_entropy")
        after = await second
        await step
        assert after.loss < (await first).loss

    run(main())


def test_load_after_save_goes_on_as_if_nothing_happened(make_engine: Callable[..., Any], tmp_path: Any) -> None:
    """Same next step with its Adam state, in the same engine and in a new one."""

    async def main() -> None:
        engine = make_engine()
        await trained(engine)
        path = await engine.save_state(str(tmp_path / "state"))
        saved = await (await engine.snapshot()).compute_logprobs(PROMPT)

        async def next_step(an_engine: Any) -> np.ndarray:
            item = sampled_datum(PROMPT, await one(await an_engine.snapshot(), params=greedy_free(30)))
            await an_engine.forward_backward([item], "cross_entropy")
            await an_engine.optim_step(AdamParams(learning_rate=0.01))
            result: np.ndarray = await (await an_engine.snapshot()).compute_logprobs(PROMPT)
            return result

        expected = await next_step(engine)
        for again in (engine, make_engine()):
            await again.load_state(path)
            np.testing.assert_allclose(await (await again.snapshot()).compute_logprobs(PROMPT), saved, atol=1e-5)
            np.testing.assert_allclose(await next_step(again), expected, atol=1e-4)

    run(main())


def test_a_closed_engine_says_so(make_engine: Callable[..., Any]) -> None:
    async def main() -> None:
        engine = make_engine()
        sampler = await engine.snapshot()
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await sampler.sample(PROMPT, greedy_free())
        with pytest.raises(EngineError, match="closed"):
            await engine.optim_step(AdamParams())

    run(main())


@pytest.mark.weights
def test_the_base_sampler_knows_nothing_of_training_and_logprobs_can_be_tempered(engine: Any) -> None:
    async def work() -> None:
        start = await (await engine.snapshot()).compute_logprobs(PROMPT)
        await trained(engine)
        base = await engine.base()
        np.testing.assert_allclose(await base.compute_logprobs(PROMPT), start, atol=1e-5)
        sharp = await base.compute_logprobs(PROMPT, 0.5)
        assert np.nanmax(np.abs(sharp - start)) > 1e-2

    asyncio.run(work())
