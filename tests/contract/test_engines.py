"""What every engine promises."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moot.engine.protocol import AdamParams, ContextOverflow, Datum, EngineError, Sample, SamplingParams
from support.datums import sampled_datum

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
PERSONA_TEMPERATURES = (0.6, 0.8, 0.9, 1.0)
run = asyncio.run


def greedy_free(max_tokens: int = 20, **options: Any) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, **{"seed": 7, **options})


async def one(sampler: Any, prompt: list[int] = PROMPT, params: SamplingParams | None = None) -> Sample:
    return (await sampler.sample(prompt, params or greedy_free()))[0]


async def trained(engine: Any, steps: int = 3, rate: float = 0.02) -> Any:
    """Move the weights somewhere, and give a sampler of where they are."""
    sample = await one(await engine.snapshot())
    for _ in range(steps):
        await engine.forward_backward([sampled_datum(PROMPT, sample)], "cross_entropy")
        await engine.optim_step(AdamParams(learning_rate=rate))
    return await engine.snapshot()


# -- sampling -------------------------------------------------------------------------------------------------------------------------


def test_one_logprob_a_token_and_none_above_zero(engine: Any) -> None:
    async def main() -> None:
        samples = await (await engine.snapshot()).sample(PROMPT, greedy_free(13), num_samples=3)
        assert len(samples) == 3
        for sample in samples:
            assert len(sample.tokens) == len(sample.logprobs) == 13
            assert sample.stop_reason == "length"
            assert (sample.logprobs <= 0).all()

    run(main())


def test_a_seed_gives_the_same_sample_and_another_seed_another(engine: Any) -> None:
    async def main() -> None:
        sampler = await engine.snapshot()
        first, again, *others = [(await one(sampler, params=greedy_free(60, seed=seed))).tokens.tolist() for seed in (1, 1, 2, 3, 4)]
        assert first == again
        assert any(other != first for other in others)  # a script has eight answers, and two seeds may meet

    run(main())


@pytest.mark.weights
def test_samples_of_one_call_differ_and_are_the_same_again(engine: Any) -> None:
    async def main() -> None:
        sampler = await engine.snapshot()
        first, again = [[s.tokens.tolist() for s in await sampler.sample(PROMPT, greedy_free(), num_samples=4)] for _ in range(2)]
        assert first == again
        assert len({tuple(tokens) for tokens in first}) == 4

    run(main())


@pytest.mark.weights
def test_temperature_zero_takes_the_likeliest_token_with_certainty(engine: Any) -> None:
    async def main() -> None:
        sampler = await engine.snapshot()
        a, b = [await one(sampler, params=greedy_free(temperature=0, seed=seed)) for seed in (1, 2)]
        assert a.tokens.tolist() == b.tokens.tolist()
        assert (a.logprobs == 0).all()
        scores = [await sampler.compute_logprobs([*PROMPT, token]) for token in range(64)]
        assert int(np.argmax([score[-1] for score in scores])) == a.tokens[0]

    run(main())


def test_a_stop_id_ends_the_sample_and_stays_in_it(engine: Any) -> None:
    async def main() -> None:
        sampler = await engine.snapshot()
        free = await one(sampler, params=greedy_free(30))
        stop = int(free.tokens[10])
        cut = await one(sampler, params=greedy_free(30, stop=(stop,)))
        end = free.tokens.tolist().index(stop) + 1
        assert cut.tokens.tolist() == free.tokens.tolist()[:end]
        assert cut.stop_reason == "stop"

    run(main())


def test_a_stop_string_over_several_tokens_ends_the_sample_and_stays_in_it(engine: Any) -> None:
    if "strings" not in engine.capabilities.stop_types:
        pytest.skip("no stop strings")

    async def main() -> None:
        sampler = await engine.snapshot()
        free = await one(sampler, params=greedy_free(40))
        text = engine.tokenizer.decode(free.tokens)
        stop = text[12:15]
        cut = await one(sampler, params=greedy_free(40, stop=("never seen", stop)))
        assert engine.tokenizer.decode(cut.tokens) == text[: text.index(stop) + 3]
        assert cut.stop_reason == "stop"

    run(main())


def test_too_long_a_request_is_refused_with_its_three_numbers(engine: Any) -> None:
    async def main() -> None:
        sampler = await engine.snapshot()
        context = engine.capabilities.context_length
        with pytest.raises(ContextOverflow) as caught:
            await sampler.sample(PROMPT, SamplingParams(max_tokens=context))
        assert all(str(number) in str(caught.value) for number in (len(PROMPT), context))

    run(main())


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.6}, {"temperature": 1.0}, {"temperature": 1.7}, {"top_k": 5}, {"top_p": 0.7}, {"top_k": 8, "top_p": 0.8}],
    ids=str,
)
def test_exp_logprob_is_the_frequency_with_which_a_token_comes(engine: Any, options: dict[str, Any]) -> None:
    """2000 draws of one token. Each count must lie within 5 standard deviations, and the probabilities seen sum to at most 1."""

    async def main() -> None:
        draws = 2000
        samples = await (await engine.snapshot()).sample(PROMPT, SamplingParams(max_tokens=1, seed=11, **options), num_samples=draws)
        counts: dict[int, int] = {}
        probability: dict[int, float] = {}
        for sample in samples:
            token = int(sample.tokens[0])
            counts[token] = counts.get(token, 0) + 1
            probability.setdefault(token, math.exp(sample.logprobs[0]))
            assert math.exp(sample.logprobs[0]) == pytest.approx(probability[token], abs=1e-5)
        assert sum(probability.values()) <= 1 + 1e-4
        assert sum(probability.values()) > 0.95
        if "top_k" in options:
            assert len(counts) <= options["top_k"]
            assert sum(probability.values()) == pytest.approx(1, abs=1e-4)
        for token, p in probability.items():
            spread = math.sqrt(draws * p * (1 - p)) + 1
            assert abs(counts[token] - draws * p) < 5 * spread, (token, counts[token], draws * p)

    run(main())


@pytest.mark.weights
def test_compute_logprobs_agrees_with_the_sampler_and_starts_with_nan(engine: Any) -> None:
    async def main() -> None:
        sampler = await trained(engine)
        sample = await one(sampler)
        scores = await sampler.compute_logprobs([*PROMPT, *sample.tokens.tolist()])
        assert len(scores) == len(PROMPT) + len(sample.tokens)
        assert math.isnan(scores[0]) and np.isfinite(scores[1:]).all()
        np.testing.assert_allclose(scores[len(PROMPT) :], sample.logprobs, atol=1e-4)

    run(main())


@pytest.mark.weights
def test_a_turn_that_extends_the_last_has_the_logprobs_of_a_fresh_start(engine: Any) -> None:
    """Three rounds of one growing conversation, long enough for several cache pages."""

    async def main() -> None:
        sampler = await trained(engine)
        random = np.random.default_rng(0)
        prompt = random.integers(0, 64, 150).tolist()
        for round_ in range(3):
            sample = await one(sampler, prompt, greedy_free(60, seed=round_))
            fresh = await sampler.compute_logprobs([*prompt, *sample.tokens.tolist()])
            np.testing.assert_allclose(sample.logprobs, fresh[len(prompt) :], atol=1e-4)
            prompt = [*prompt, *sample.tokens.tolist(), *random.integers(0, 64, 70).tolist()]

    run(main())


@pytest.mark.weights
def test_many_at_once_get_what_each_would_get_alone(engine: Any) -> None:
    """Same distributions to rounding; requests of different lengths join and leave one batch."""

    async def main() -> None:
        sampler = await trained(engine)
        random = np.random.default_rng(1)
        prompts = [random.integers(0, 64, size).tolist() for size in (1, 5, 127, 128, 129, 300, 40, 8, 8, 260)]
        limits = [50, 3, 20, 200, 10, 30, 1, 7, 140, 5]
        jobs = [one(sampler, p, greedy_free(n, seed=i)) for i, (p, n) in enumerate(zip(prompts, limits, strict=True))]
        for prompt, sample in zip(prompts, await asyncio.gather(*jobs), strict=True):
            alone = await sampler.compute_logprobs([*prompt, *sample.tokens.tolist()])
            np.testing.assert_allclose(sample.logprobs, alone[len(prompt) :], atol=1e-4)

    run(main())


def test_deterministic_results_depend_on_seeds_alone(make_engine: Callable[..., Any]) -> None:
    """Alone, in company, after company, and from a warm cache: the same tokens and the same bits."""
    engine = make_engine(deterministic=True)
    if not engine.capabilities.deterministic:
        pytest.skip("not deterministic")

    async def main() -> None:
        sampler = await trained(engine)
        random = np.random.default_rng(2)
        prompts = [random.integers(0, 64, size).tolist() for size in (9, 140, 300, 140)]
        prompts[3][:130] = prompts[1][:130]

        def ask(i: int) -> Any:
            return one(sampler, prompts[i], greedy_free(40, seed=i))

        alone = [await ask(i) for i in range(4)]
        together = await asyncio.gather(*(ask(i) for i in (3, 1, 0, 2)))
        for i, other in zip((3, 1, 0, 2), together, strict=True):
            assert alone[i].tokens.tolist() == other.tokens.tolist()
            assert alone[i].logprobs.tolist() == other.logprobs.tolist()
        # The next turn, once with its past cached and once computed afresh by weights that are equal but not the same.
        longer = [*prompts[2], *alone[2].tokens.tolist(), *prompts[0]]
        warm = await one(sampler, longer, greedy_free(40))
        cold = await one(await engine.snapshot(), longer, greedy_free(40))
        assert warm.tokens.tolist() == cold.tokens.tolist()
        assert warm.logprobs.tolist() == cold.logprobs.tolist()

    run(main())


# -- training -------------------------------------------------------------------------------------------------------------------------


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
