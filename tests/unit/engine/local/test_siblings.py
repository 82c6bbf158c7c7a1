"""Siblings share what is large, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from moot.engine.local.adapter import lora_parameters
from moot.engine.protocol import AdamParams
from moot.errors import EngineError
from support.datums import sampled_datum
from support.engine_calls import PROMPT, greedy_free, one, until


def test_base_weights_are_held_once_and_adapters_by_each(make_engine: Callable[..., Any]) -> None:
    first = make_engine()
    other = first.sibling(1)
    plain, theirs = [
        {
            name.replace("base_layer.", ""): parameter.data_ptr()
            for name, parameter in engine._wrapped.named_parameters()
            if "lora_" not in name
        }
        for engine in (first, other)
    ]
    assert plain == theirs
    own, others = [{p.data_ptr() for p in lora_parameters(engine._wrapped).values()} for engine in (first, other)]
    assert len(own) == len(others) and not own & others
    assert first._store is other._store and first._scheduler is other._scheduler


def test_who_waits_for_a_closed_sibling_hears_of_it_and_others_get_their_answers(
    make_engine: Callable[..., Any],
) -> None:
    first = make_engine()
    other = first.sibling(1)

    async def main() -> None:
        here, there = await first.snapshot(), await other.snapshot()
        going_on = [asyncio.create_task(one(here, params=greedy_free(200, seed=seed))) for seed in range(3)]
        given_up = [asyncio.create_task(one(there, params=greedy_free(900, seed=seed))) for seed in range(3)]
        await until(lambda: first.statistics["decoded"] >= 12)
        await other.close()
        for task in given_up:
            with pytest.raises(EngineError, match="closed"):
                await task
        assert [len((await task).tokens) for task in going_on] == [200] * 3
        await until(lambda: not first._scheduler.has_work())

    asyncio.run(main())


def test_a_siblings_pass_and_what_it_has_queued_end_with_it_and_no_other(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_engine()
    other = first.sibling(1)
    reached, closing = threading.Event(), threading.Event()

    async def main() -> None:
        item = sampled_datum(PROMPT, await one(await first.snapshot()))

        def wait_in_pass() -> None:
            reached.set()
            closing.wait(60)

        other._trainer.before_pass = wait_in_pass
        under_way = other.forward_backward([item], "cross_entropy")
        queued = [other.optim_step(AdamParams()), first.forward_backward([item], "cross_entropy")]
        await asyncio.to_thread(reached.wait, 60)
        ended = asyncio.create_task(other.close())
        await until(lambda: other._closed)
        assert not ended.done(), "nobody may use its files while its pass still runs"
        closing.set()
        with pytest.raises(EngineError, match="closed in the middle of a pass"):
            await under_way
        with pytest.raises(EngineError, match="closed before this ran"):
            await queued[0]
        assert (await queued[1]).loss > 0
        await ended

    asyncio.run(main())
