"""Continuous batching, prefix reuse and the bounded cache, seen from outside and by their counters."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moot.engine.local.pages import PAGE
from moot.engine.protocol import SamplingParams
from moot.errors import EngineError
from support.engine_calls import trainer_logprobs

GIB = 1 << 30
PAGE_BYTES = 2 * 2 * 2 * PAGE * 8 * 4
"""Of the tiny model: layers, keys and values, kv heads, tokens, head size, float32."""


def prompts(*sizes: int) -> list[list[int]]:
    random = np.random.default_rng(0)
    return [random.integers(0, 64, size).tolist() for size in sizes]


async def check(sampler: Any, prompt: list[int], tokens: int, seed: int = 0) -> list[int]:
    """Sample, and compare its logprobs with a forward pass that uses no cache."""
    (sample,) = await sampler.sample(prompt, SamplingParams(max_tokens=tokens, seed=seed))
    fresh = await trainer_logprobs(sampler._engine, [*prompt, *sample.tokens.tolist()])
    np.testing.assert_allclose(sample.logprobs, fresh[len(prompt) :], atol=1e-4)
    return [*prompt, *sample.tokens.tolist()]


def test_a_longer_prompt_prefills_only_what_is_new(make_engine: Callable[..., Any]) -> None:
    """Prompt 300, 50 sampled (the last one's keys are not computed), suffix 20: 1 + 20 tokens to prefill."""
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        (prompt, suffix) = prompts(300, 20)
        grown = [*await check(sampler, prompt, 50), *suffix]
        assert engine.statistics["prefilled"] == 300
        await check(sampler, grown, 5)
        assert engine.statistics["prefilled"] == 300 + 21
        assert engine.statistics["reused"] == 349

    asyncio.run(main())


def test_samples_of_one_prompt_share_its_prefill(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        await sampler.sample(prompts(300)[0], SamplingParams(max_tokens=4, seed=0), num_samples=5)
        assert engine.statistics["prefilled"] == 300 + 4

    asyncio.run(main())


def test_other_weights_reuse_nothing(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        for sampler in (await engine.snapshot(), await engine.snapshot()):
            await sampler.sample(prompts(200)[0], SamplingParams(max_tokens=1, seed=0))
        assert engine.statistics["reused"] == 0

    asyncio.run(main())


def test_a_tiny_cache_evicts_and_is_still_right(make_engine: Callable[..., Any]) -> None:
    """6 pages for conversations that need 4 pages each, taken in turns."""
    engine = make_engine(max_cache_gib=6 * PAGE_BYTES / GIB)
    assert engine.capabilities.context_length == 6 * PAGE

    async def main() -> None:
        sampler = await engine.snapshot()
        talks = prompts(200, 210, 220)
        for round_ in range(3):
            talks = [[*await check(sampler, talk, 40, seed=round_), *prompts(30)[0]] for talk in talks]
        assert engine.statistics["evictions"] > 0

    asyncio.run(main())


def test_what_others_wait_for_is_forgotten_last(make_engine: Callable[..., Any]) -> None:
    """6 agents one by one: 2 pages each in the first round, 4 in the second, and 16 for all. Those who spoke are forgotten, not those who
    will: each continues from what it said. By age alone, three of them would have been forgotten just before their turn."""
    engine = make_engine(max_cache_gib=16 * PAGE_BYTES / GIB, max_batch=1)

    async def main() -> None:
        sampler = await engine.snapshot()
        texts = [text[:200] for text in prompts(*[400] * 6)]
        params = SamplingParams(max_tokens=8, seed=0)
        said = await asyncio.gather(*(sampler.sample(text, params) for text in texts))
        assert (engine.statistics["prefilled"], engine.statistics["reused"]) == (6 * 200, 0)
        grown = [[*text, *one.tokens.tolist(), *prompts(200)[0]] for text, (one,) in zip(texts, said, strict=True)]
        await asyncio.gather(*(sampler.sample(text, params) for text in grown))
        assert engine.statistics["evictions"] > 0
        assert (engine.statistics["prefilled"], engine.statistics["reused"]) == (6 * (200 + 201), 6 * 207)

    asyncio.run(main())


def test_when_everyone_runs_and_no_page_is_left_the_youngest_waits_and_is_still_right(
    make_engine: Callable[..., Any],
) -> None:
    """5 requests that grow to 3 pages each share 8 pages."""
    engine = make_engine(max_cache_gib=8 * PAGE_BYTES / GIB)

    async def main() -> None:
        sampler = await engine.snapshot()
        await asyncio.gather(
            *(check(sampler, talk, 260, seed=i) for i, talk in enumerate(prompts(100, 90, 80, 70, 60)))
        )
        assert engine.statistics["preempted"] > 0

    asyncio.run(main())


def test_preemption_does_not_change_what_a_seed_gives(make_engine: Callable[..., Any]) -> None:
    async def main() -> None:
        results = []
        for pages in (8, 100):
            engine = make_engine(max_cache_gib=pages * PAGE_BYTES / GIB)
            sampler = await engine.snapshot()
            params = [SamplingParams(max_tokens=200, seed=i) for i in range(5)]
            samples = await asyncio.gather(
                *(sampler.sample(p, q) for p, q in zip(prompts(100, 90, 80, 70, 60), params, strict=True))
            )
            results.append([sample.tokens.tolist() for (sample,) in samples])
        assert results[0] == results[1]

    asyncio.run(main())


def test_a_cancelled_request_leaves_and_the_others_stay(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        (a, b) = prompts(20, 30)
        doomed = asyncio.create_task(sampler.sample(a, SamplingParams(max_tokens=900, seed=0)))
        stays = asyncio.create_task(check(sampler, b, 30))
        await asyncio.sleep(0.05)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        assert len(await stays) == 60
        before = engine.statistics["decoded"]
        await check(sampler, b, 5)
        assert engine.statistics["decoded"] - before < 50
        assert not engine._scheduler.batches

    asyncio.run(main())


def test_one_engine_serves_several_event_loops(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()
    sampler = engine.snapshot().result()
    results = [
        asyncio.run(sampler.sample([1, 2, 3], SamplingParams(max_tokens=5, seed=0)))[0].tokens.tolist()
        for _ in range(2)
    ]
    assert results[0] == results[1]


def test_closing_fails_those_who_still_wait(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        task = asyncio.create_task(sampler.sample([1, 2, 3], SamplingParams(max_tokens=1000, seed=0)))
        await asyncio.sleep(0.02)
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await task

    asyncio.run(main())


def test_trouble_in_a_step_fails_its_requests_and_not_the_engine(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        with monkeypatch.context() as patch:
            patch.setattr(engine._network, "logits", lambda hidden: 1 / 0)
            with pytest.raises(EngineError, match="ZeroDivisionError"):
                await sampler.sample([1, 2, 3], SamplingParams(max_tokens=5))
        await check(sampler, [1, 2, 3], 5)

    asyncio.run(main())


def test_trouble_after_a_request_joined_does_not_reach_those_who_run(make_engine: Callable[..., Any]) -> None:
    """Its stop condition breaks on the first token, in the pass that admits it."""
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        runs = asyncio.create_task(check(sampler, [1, 2, 3], 300))
        await asyncio.sleep(0.05)

        class Broken:
            def decode(self, *_: Any, **__: Any) -> str:
                raise LookupError("no such token")

        engine.tokenizer = Broken()
        with pytest.raises(EngineError, match="no such token"):
            await sampler.sample([4, 5], SamplingParams(max_tokens=5, stop=("x",)))
        assert len(await runs) == 303

    asyncio.run(main())


def test_logits_that_are_not_finite_are_an_engine_error(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        with monkeypatch.context() as patch:
            logits = engine._network.logits
            patch.setattr(engine._network, "logits", lambda hidden: logits(hidden) * float("nan"))
            for temperature in (0.0, 1.0):
                with pytest.raises(EngineError, match="not finite"):
                    await sampler.sample([1, 2, 3], SamplingParams(max_tokens=5, temperature=temperature))
        await check(sampler, [1, 2, 3], 5)

    asyncio.run(main())


def test_a_sampler_nobody_holds_gives_its_cache_back(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        await sampler.sample(prompts(300)[0], SamplingParams(max_tokens=5, seed=0))
        del sampler
        gc.collect()
        await engine.snapshot()  # queued behind the clean-up
        assert not engine._store._sequences

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "word"),
    [({"max_tokens": 0}, "max_tokens"), ({"temperature": -1.0}, "temperature"), ({"top_p": 0.0}, "top_p"), ({"top_k": 0}, "top_k"),
     ({"stop": ("x",)}, "tokenizer")],
    ids=str,
)  # fmt: skip
def test_misuse_is_named_at_once(make_engine: Callable[..., Any], options: dict[str, Any], word: str) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        with pytest.raises(ValueError, match=word):
            await sampler.sample([1], SamplingParams(**{"max_tokens": 1, **options}))

    asyncio.run(main())
