"""What every engine promises of sampling."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moot.engine.protocol import SamplingParams
from moot.errors import ContextOverflow
from support.engine_calls import PROMPT, greedy_free, one, trained

run = asyncio.run


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
        first, again, *others = [
            (await one(sampler, params=greedy_free(60, seed=seed))).tokens.tolist() for seed in (1, 1, 2, 3, 4)
        ]
        assert first == again
        assert any(other != first for other in others)  # a script has eight answers, and two seeds may meet

    run(main())


@pytest.mark.weights
def test_samples_of_one_call_differ_and_are_the_same_again(engine: Any) -> None:
    async def main() -> None:
        sampler = await engine.snapshot()
        first, again = [
            [s.tokens.tolist() for s in await sampler.sample(PROMPT, greedy_free(), num_samples=4)] for _ in range(2)
        ]
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
    [
        {"temperature": 0.6},
        {"temperature": 1.0},
        {"temperature": 1.7},
        {"top_k": 5},
        {"top_p": 0.7},
        {"top_k": 8, "top_p": 0.8},
    ],
    ids=str,
)
def test_exp_logprob_is_the_frequency_with_which_a_token_comes(engine: Any, options: dict[str, Any]) -> None:
    """2000 draws of one token. Each count must lie within 5 standard deviations, and the probabilities seen sum to at most 1."""

    async def main() -> None:
        draws = 2000
        samples = await (await engine.snapshot()).sample(
            PROMPT, SamplingParams(max_tokens=1, seed=11, **options), num_samples=draws
        )
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
def test_from_a_start_on_logprobs_are_those_of_the_whole(engine: Any) -> None:
    async def main() -> None:
        sampler = await trained(engine)
        tokens = np.random.default_rng(4).integers(0, 64, 200).tolist()
        whole = await sampler.compute_logprobs(tokens)
        for start, first in ((0, 1), (1, 1), (2, 2), (150, 150), (199, 199), (200, 200)):
            tail = await sampler.compute_logprobs(tokens, 1.0, start)
            assert len(tail) == 200 and np.isnan(tail[:first]).all()
            np.testing.assert_allclose(tail[first:], whole[first:], atol=1e-5)
        with pytest.raises(ValueError, match=r"start must be 0 or more, got -1"):
            await sampler.compute_logprobs(tokens, 1.0, -1)

    run(main())


@pytest.mark.weights
def test_the_scores_of_candidates_are_their_logprobs_after_the_prompt(engine: Any) -> None:
    """After a sampled turn, as a judge asks: of one token, of several, twice the same, and one that begins another."""
    candidates = [[5], [63], [5, 6], [5, 7], [9, 9, 9], [5], [9, 9]]

    async def main() -> None:
        sampler = await trained(engine)
        sample = await one(sampler, params=greedy_free(40))
        prompt = [*PROMPT, *sample.tokens.tolist(), 8, 8]
        scores = await sampler.score_continuations(prompt, candidates)
        for candidate, score in zip(candidates, scores, strict=True):
            whole = await sampler.compute_logprobs([*prompt, *candidate])
            assert score == pytest.approx(whole[len(prompt) :].sum(), abs=1e-5)
        every = await sampler.score_continuations(prompt, [[token] for token in range(64)])
        assert sum(map(math.exp, every)) == pytest.approx(1, abs=1e-4)

    run(main())


def test_scores_are_the_same_again_one_for_each_candidate_and_none_above_zero(engine: Any) -> None:
    async def main() -> None:
        sampler = await engine.snapshot()
        first, again = [await sampler.score_continuations(PROMPT, [[1], [2], [3, 4]]) for _ in range(2)]
        assert len(first) == 3 and len(set(first)) == 3 and all(score <= 0 for score in first)
        np.testing.assert_allclose(first, again, atol=1e-5)
        assert await sampler.score_continuations(PROMPT, []) == []
        with pytest.raises(ValueError, match="candidate 1 has no tokens"):
            await sampler.score_continuations(PROMPT, [[1], []])

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
