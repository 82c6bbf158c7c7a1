"""Out of memory by any name: smaller pieces, the same results, and a count of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from moot.engine.local.memory import out_of_memory, pause
from moot.engine.local.pages import make_store
from moot.engine.protocol import Datum, SamplingParams
from moot.errors import EngineError

NAMES: list[Exception] = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError(
        "Expected mha_graph.execute(handle, variant_pack, workspace_ptr.get()).is_good() to be true, but got false."
    ),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"
    ),
]


@pytest.mark.parametrize("error", NAMES, ids=str)
def test_each_name_counts(error: Exception) -> None:
    assert out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("out of resource: shared memory, Required: 300000, Hardware limit: 232448"),
        ValueError("out of memory"),
        RuntimeError(),
    ],
    ids=repr,
)
def test_other_trouble_does_not_count(error: Exception) -> None:
    assert not out_of_memory(error)


@pytest.mark.parametrize("error", NAMES, ids=str)
def test_the_trainer_halves_whatever_the_name(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A device that holds 40 tokens: 4 x 20 tokens go in pairs."""
    engine = make_engine()
    hidden = engine._network.hidden

    def limited(tokens: torch.Tensor, *rest: Any) -> Any:
        if len(tokens) > 40:
            raise error
        return hidden(tokens, *rest)

    monkeypatch.setattr(engine._network, "hidden", limited)
    tokens, ones = np.arange(20, dtype=np.int32), np.ones(20, np.float32)
    out = engine.forward_backward([Datum(tokens, tokens + 1, -ones, ones, ones)] * 4, "ppo").result()
    assert out.metrics["out_of_memory"] == 1
    assert out.metrics["micro_batches"] == 2


@pytest.mark.parametrize("error", NAMES[:5], ids=str)
def test_the_sampler_goes_on_with_fewer_rows_and_samples_the_same(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A device that holds 2 rows of a decode step and 64 tokens of a prefill, and 5 requests with prompts of 30 to 34 tokens."""
    prompts = [np.random.default_rng(i).integers(0, 64, 30 + i).tolist() for i in range(5)]

    async def sample(limit: bool) -> tuple[list[list[int]], dict[str, int]]:
        engine = make_engine()
        hidden = engine._network.hidden

        def limited(tokens: torch.Tensor, *rest: Any) -> Any:
            if 2 < len(tokens) < 30 or len(tokens) > 64:
                raise error
            return hidden(tokens, *rest)

        if limit:
            monkeypatch.setattr(engine._network, "hidden", limited)
        sampler = await engine.snapshot()
        calls = [sampler.sample(p, SamplingParams(max_tokens=40, seed=i)) for i, p in enumerate(prompts)]
        return [one.tokens.tolist() for (one,) in await asyncio.gather(*calls)], engine.statistics

    calm, _ = asyncio.run(sample(False))
    tight, statistics = asyncio.run(sample(True))
    assert tight == calm
    assert statistics["out_of_memory"] > 0 and statistics["preempted"] > 0


def test_a_copy_of_pages_that_finds_no_memory_waits_and_nobody_hears_of_it(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to end the thread that serves everybody."""
    engine = make_engine()
    copy, tries = engine._store._copy, 0

    def limited(*given: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise torch.OutOfMemoryError("no room")
        copy(*given)

    monkeypatch.setattr(engine._store, "_copy", limited)

    async def main() -> None:
        sampler = await engine.snapshot()
        await sampler.sample(np.arange(50), SamplingParams(max_tokens=4))
        (sample,) = await sampler.sample([*range(40), 60, 61], SamplingParams(max_tokens=4))
        assert len(sample.tokens) == 4

    asyncio.run(main())
    assert tries == 3 and engine.faults == {"out_of_memory": 2}


def test_trouble_outside_of_any_step_is_told_to_all_who_wait_and_the_engine_lives(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    def broken(*_: Any) -> Any:
        raise ValueError("planted")

    async def main() -> None:
        sampler = await engine.snapshot()
        with monkeypatch.context() as patch:
            patch.setattr(engine._store, "find", broken)
            calls = [sampler.sample([1, 2, i], SamplingParams(max_tokens=5)) for i in range(3)]
            for result in await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20):
                assert isinstance(result, EngineError) and "planted" in str(result)
        (sample,) = await sampler.sample([1, 2, 3], SamplingParams(max_tokens=5))
        assert len(sample.tokens) == 5

    asyncio.run(main())


def stuck(engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """3 of 96 pages are there, and no memory for more. What it gives grows with each refusal."""
    from moot.engine.local import pages

    network, refused = engine._network, list[int]()
    shape = (len(network.layers), network.kv_heads, network.head_dim, network.dtype)
    store = pages.PageStore(*shape, network.device, 96 * pages.page_size(*shape), first_part=32)
    engine._store = engine._scheduler.store = store

    def full(*_: Any) -> Any:
        refused.append(1)
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(pages, "_zeros", full)
    return refused


def test_one_that_finds_no_larger_cache_waits_and_then_hears_why(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 requests of 100 tokens, which grow to 2 pages each, take turns; one of 600 tokens waits in vain."""
    engine = make_engine()
    refused = stuck(engine, monkeypatch)

    async def main() -> None:
        sampler = await engine.snapshot()
        calls = [sampler.sample(np.arange(i, i + 100) % 60, SamplingParams(max_tokens=60, seed=i)) for i in range(12)]
        assert all(len(one.tokens) == 60 for (one,) in await asyncio.gather(*calls))
        assert len(refused) < 10, "not one per step"
        with pytest.raises(
            EngineError,
            match="600 tokens have no room: the cache has room for 384 and found no memory to grow to 12288",
        ):
            await sampler.sample(np.arange(600) % 60, SamplingParams(max_tokens=4))

    asyncio.run(main())


def test_a_sequence_that_outgrows_a_cache_which_cannot_grow_hears_why(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    stuck(engine, monkeypatch)

    async def main() -> None:
        sampler = await engine.snapshot()
        with pytest.raises(EngineError, match="385 tokens have no room"):
            await sampler.sample(np.arange(300) % 60, SamplingParams(max_tokens=200))

    asyncio.run(main())


def test_where_nothing_smaller_fits_the_request_fails_and_the_engine_lives(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    async def main() -> None:
        sampler = await engine.snapshot()
        with monkeypatch.context() as patch:
            patch.setattr(engine._network, "hidden", full)
            calls = [sampler.sample([1, 2, i], SamplingParams(max_tokens=5)) for i in range(3)]
            for result in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(result, EngineError) and "no room" in str(result)
            with pytest.raises(EngineError, match="no room"):
                await sampler.compute_logprobs([1, 2, 3])
        (sample,) = await sampler.sample([1, 2, 3], SamplingParams(max_tokens=5))
        assert len(sample.tokens) == 5

    asyncio.run(main())


def test_rows_and_prefill_grow_back_once_memory_is_there_again(make_engine: Callable[..., Any]) -> None:
    """One row and one page of prefill more with each step: 40 steps from 1 row and 128 tokens."""
    engine = make_engine(max_batch=30)
    scheduler = engine._scheduler
    scheduler.allowed, scheduler.prefill_tokens = 1, 128
    sampler = engine.snapshot().result()
    asyncio.run(sampler.sample([1, 2, 3], SamplingParams(max_tokens=41)))
    assert scheduler.allowed == 30
    assert scheduler.prefill_tokens == 2048


def test_a_cache_that_does_not_fit_is_halved_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for 1 MiB where 4 were asked for: halved twice."""
    from moot.engine.local import pages

    zeros = pages._zeros

    def limited(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        if shape[2] > 300:
            raise torch.OutOfMemoryError("no room")
        return zeros(shape, dtype, device)

    monkeypatch.setattr(pages, "_zeros", limited)
    store, notes = make_store(1, 1, 4, torch.float32, torch.device("cpu"), 4 << 20)
    assert store.count == 256  # of 2 * 128 * 4 * 4 bytes
    assert len(notes) == 1 and "cache" in notes[0]


def test_a_run_that_starts_beside_another_takes_a_smaller_cache_and_samples_and_trains_the_same(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.02 GiB are 655 pages of 32 KiB; the other run leaves room for 100, so the cache is halved three times, to 81."""
    from moot.engine.local import pages

    zeros = pages._zeros
    taken = 0

    def shared(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        nonlocal taken
        if shape[2] > 101:
            taken += 1
            raise RuntimeError("CUDA error: out of memory")
        return zeros(shape, dtype, device)

    prompts = [np.random.default_rng(i).integers(0, 64, 300).tolist() for i in range(6)]

    async def one_step(engine: Any) -> tuple[list[list[int]], float]:
        sampler = await engine.snapshot()
        calls = [sampler.sample(p, SamplingParams(max_tokens=150, seed=i)) for i, p in enumerate(prompts)]
        said = [one.tokens.tolist() for (one,) in await asyncio.gather(*calls)]
        tokens, ones = np.array(prompts[0], np.int32), np.ones(300, np.float32)
        return said, (await engine.forward_backward([Datum(tokens, tokens, -ones, ones, ones)], "ppo")).loss

    calm = make_engine()
    monkeypatch.setattr(pages, "_zeros", shared)
    tight = make_engine()
    assert taken == 3 and tight._store.count == 81
    assert "out of memory: the cache has 0.0025 GiB instead of 0.02" in tight.capabilities.notes
    assert asyncio.run(one_step(tight)) == asyncio.run(one_step(calm))


def test_where_not_even_two_pages_fit_the_run_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from moot.engine.local import pages

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(pages, "_zeros", full)
    with pytest.raises(EngineError, match=r"no room for a cache of 0.00781 MiB: OutOfMemoryError: CUDA out of memory"):
        make_store(1, 1, 4, torch.float32, torch.device("cpu"), 4 << 20)


def test_weights_that_find_no_room_wait_for_others_to_give_it_back(
    make_model: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from moot.engine.local.models import load_model

    to, tries = torch.nn.Module.to, 0

    def moved(module: Any, *args: Any, **options: Any) -> Any:
        nonlocal tries
        if args == (torch.device("cpu"),):
            tries += 1
            if tries < 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return to(module, *args, **options)

    monkeypatch.setattr(torch.nn.Module, "to", moved)
    assert load_model(make_model(), torch.device("cpu"), torch.float32).context_length == 1024
    assert tries == 3


@pytest.mark.parametrize(("used_by_others", "waits"), [(1 << 30, 4), (30 << 30, 16)])
def test_only_where_others_hold_the_memory_is_it_waited_for_long(
    monkeypatch: pytest.MonkeyPatch, used_by_others: int, waits: int
) -> None:
    slept: list[float] = []
    total, ours = 140 << 30, 100 << 30
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (total - ours - used_by_others, total))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda: ours)
    monkeypatch.setattr("time.sleep", slept.append)
    attempt = 0
    while pause(attempt):
        attempt += 1
    assert len(slept) == waits


def test_a_run_waits_for_others_to_leave_room_for_a_cache(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to end at once: the cache bound of 802816 bytes holds 0 pages."""
    free = iter([1000, 5000, 1 << 30])
    monkeypatch.setattr("moot.engine.local.shared._free_memory", lambda _: next(free, 1 << 30))
    assert make_engine(max_cache_gib=None)._store.count == (1 << 28) // (32 << 10)


def test_who_closes_an_engine_does_not_wait_for_memory(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass finds no memory, and while it waits for some the engine is closed."""
    engine, paused, pauses = make_engine(gradient_checkpointing=True), threading.Event(), 0

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def sleep(_: float) -> None:
        nonlocal pauses
        pauses += 1
        paused.set()
        while not engine._worker._closing:
            threading.Event().wait(0.01)

    monkeypatch.setattr(engine._network, "hidden", full)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (0, 100 << 30))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda: 0)
    monkeypatch.setattr("moot.engine.local.memory.time.sleep", sleep)
    tokens, ones = np.arange(20, dtype=np.int32), np.ones(20, np.float32)
    waiting = engine.forward_backward([Datum(tokens, tokens, -ones, ones, ones)], "ppo")
    assert paused.wait(20)
    engine.shut()
    with pytest.raises(EngineError, match="out of memory with a single sequence of 20 tokens"):
        waiting.result()
    assert pauses == 1, "16 without the closing"
