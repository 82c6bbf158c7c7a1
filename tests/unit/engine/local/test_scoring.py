"""Logprobs of given tokens: what they cost, from a cache that is cold, warm or full, and beside those who sample."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moot.engine.local import scoring
from moot.engine.local.pages import PAGE
from moot.engine.protocol import SamplingParams
from moot.errors import ContextOverflow, EngineError
from support.engine_calls import trained, trainer_logprobs
from unit.engine.local.test_sampler import GIB, PAGE_BYTES, check, prompts

YES_NO = [[5], [6], [7], [8]]


def test_a_verdict_costs_the_new_tokens_and_one_row_of_logits(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompt 300, 50 sampled (the last one's keys are not computed), 3 tokens that ask: 4 to prefill for four candidates."""
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        said = await check(sampler, prompts(300)[0], 50)
        rows, logits = [], engine._network.logits
        monkeypatch.setattr(engine._network, "logits", lambda hidden: rows.append(len(hidden)) or logits(hidden))
        scores = await sampler.score_continuations([*said, 1, 2, 3], YES_NO)
        assert (engine.statistics["prefilled"], rows) == (300 + 4, [1])
        fresh = [(await trainer_logprobs(engine, [*said, 1, 2, 3, *candidate]))[-1] for candidate in YES_NO]
        np.testing.assert_allclose(scores, fresh, atol=1e-5)
        rows.clear()
        assert await sampler.score_continuations([*said, 1, 2, 3], YES_NO) == pytest.approx(scores, abs=1e-5)
        assert (engine.statistics["prefilled"], rows) == (300 + 4 + 1, [1])

    asyncio.run(main())


def test_verdicts_of_many_and_samples_share_one_pass(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await trained(engine)
        texts = prompts(20, 150, 33, 7)
        passes, hidden = [], engine._network.hidden
        engine._network.hidden = lambda tokens, *rest: passes.append(len(tokens)) or hidden(tokens, *rest)
        asked = [sampler.score_continuations(text, YES_NO) for text in texts[:2]]
        sampled = [sampler.sample(text, SamplingParams(max_tokens=1, seed=0)) for text in texts[2:]]
        *scores, (third,), (fourth,) = await asyncio.gather(*asked, *sampled)
        engine._network.hidden = hidden
        assert (
            sum(passes) == 20 + 150 + 33 + 7 and len(passes) <= 2
        )  # the first may be on its way before the others come
        for text, of_text in zip(texts[:2], scores, strict=True):
            fresh = [(await trainer_logprobs(engine, [*text, *candidate]))[-1] for candidate in YES_NO]
            np.testing.assert_allclose(of_text, fresh, atol=1e-5)
        for text, sample in ((texts[2], third), (texts[3], fourth)):
            fresh = await trainer_logprobs(engine, [*text, *sample.tokens])
            np.testing.assert_allclose(sample.logprobs, fresh[len(text) :], atol=1e-5)

    asyncio.run(main())


def test_whole_sequences_that_begin_alike_do_not_wait_for_each_other(make_engine: Callable[..., Any]) -> None:
    """Each of their tokens is asked for, so nothing of another's could be taken. With a start behind the beginning it can."""
    engine = make_engine()

    async def main() -> None:
        sampler = await trained(engine)
        opening, *ends = prompts(300, 20, 30, 40)
        texts = [[*opening, *end] for end in ends]
        passes, hidden = [], engine._network.hidden
        engine._network.hidden = lambda tokens, *rest: passes.append(len(tokens)) or hidden(tokens, *rest)
        whole = await asyncio.gather(*(sampler.compute_logprobs(text) for text in texts))
        assert sum(passes) == 319 + 329 + 339 and len(passes) <= 2  # the first may be on its way before the others come
        passes.clear()
        fresh_sampler = await engine.snapshot()
        tails = await asyncio.gather(*(fresh_sampler.compute_logprobs(text, 1.0, 300) for text in texts))
        assert sum(passes) == 319 + 30 + 40  # token 299 is run again, for its logits
        engine._network.hidden = hidden
        for text, ours, tail in zip(texts, whole, tails, strict=True):
            fresh = await trainer_logprobs(engine, text)
            np.testing.assert_allclose(ours[1:], fresh[1:], atol=1e-5)
            np.testing.assert_allclose(tail[300:], fresh[300:], atol=1e-5)

    asyncio.run(main())


def test_in_small_pieces_and_small_chunks_it_is_the_same(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    monkeypatch.setattr(scoring, "chunk_rows", lambda *_: 3)

    async def main() -> None:
        sampler = await trained(engine)
        (text,) = prompts(200)
        engine._scheduler.prefill_tokens = engine._scheduler._most_prefill = 17
        fresh = await trainer_logprobs(engine, text, 0.7)
        np.testing.assert_allclose((await sampler.compute_logprobs(text, 0.7))[1:], fresh[1:], atol=1e-5)
        np.testing.assert_allclose((await sampler.compute_logprobs(text, 0.7, 150))[150:], fresh[150:], atol=1e-5)

    asyncio.run(main())


def test_from_a_cache_that_evicts_beside_those_who_sample_it_is_still_right(make_engine: Callable[..., Any]) -> None:
    """6 pages, and up to 4 for each of three conversations, all asked about while they are spoken."""
    engine = make_engine(max_cache_gib=6 * PAGE_BYTES / GIB)

    async def main() -> None:
        sampler = await trained(engine)

        async def talk(text: list[int]) -> None:
            for round_ in range(3):
                text = [*await check(sampler, text, 40, seed=round_), *prompts(9)[0]]
                fresh = await trainer_logprobs(engine, [*text, 5])
                assert (await sampler.score_continuations(text, YES_NO))[0] == pytest.approx(fresh[-1], abs=2e-5)
                tail = await sampler.compute_logprobs(text, 1.0, len(text) - 30)
                np.testing.assert_allclose(tail[-30:], fresh[-31:-1], atol=2e-5)

        await asyncio.gather(*map(talk, prompts(200, 210, 220)))
        assert engine.statistics["evictions"] > 0
        assert not any(item.active for item in engine._store._sequences)

    asyncio.run(main())


def test_a_cancelled_question_leaves_and_its_pages_are_free(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        doomed = asyncio.create_task(sampler.compute_logprobs(prompts(900)[0]))
        await asyncio.sleep(0)  # it has its place
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        await check(sampler, [1, 2, 3], 5)
        assert not engine._scheduler.has_work()
        assert not any(item.active for item in engine._store._sequences)

    asyncio.run(main())


def test_deterministic_scores_are_the_same_bits_from_any_cache(make_engine: Callable[..., Any]) -> None:
    engine = make_engine(deterministic=True)

    async def main() -> None:
        warm, cold = await engine.snapshot(), await engine.snapshot()
        (text,) = prompts(300)
        await warm.sample(text[: 2 * PAGE + 5], SamplingParams(max_tokens=9, seed=0))
        again, fresh = [await sampler.score_continuations(text, YES_NO) for sampler in (warm, cold)]
        assert again == fresh
        whole = await cold.compute_logprobs([*text, 5])
        assert whole[-1] == np.float32(fresh[0])

    asyncio.run(main())


def test_logits_that_are_not_finite_and_a_closed_engine_are_engine_errors(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        with monkeypatch.context() as patch:
            logits = engine._network.logits
            patch.setattr(engine._network, "logits", lambda hidden: logits(hidden) * float("nan"))
            with pytest.raises(EngineError, match="not finite"):
                await sampler.score_continuations([1, 2, 3], YES_NO)
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await sampler.score_continuations([1, 2, 3], YES_NO)

    asyncio.run(main())


def test_misuse_is_named_at_once(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        sampler = await engine.snapshot()
        with pytest.raises(ValueError, match="temperature must be above 0"):
            await sampler.compute_logprobs([1, 2, 3], 0.0)
        with pytest.raises(ValueError, match="token ids"):
            await sampler.score_continuations([1, 2], [[3], [64]])
        with pytest.raises(ContextOverflow, match="1023"):
            await sampler.score_continuations([1] * 1023, [[3], [3, 3]])

    asyncio.run(main())
