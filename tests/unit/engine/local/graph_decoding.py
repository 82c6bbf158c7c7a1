"""Run by test_attention.py in a process of its own: the decoder for GPUs, with triton's interpreter for its kernels and, in place of a
captured graph, the step run again into the same memory. Three adapters and the base decode at once, in more rows than one size holds.
Then one after the other: rows that stop while their next step is on its way, a cache too small for all, top-k beside none, and memory
that runs out in a step. Each must sample what the plain steps sample."""

import asyncio
import sys
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch

from moot.engine.local import LocalEngine, graphs, network
from moot.engine.local.graphs import Captured, GraphDecoder
from moot.engine.local.pages import PageStore
from moot.engine.protocol import AdamParams, Datum, Sample, SamplingParams


class Rerun(GraphDecoder):
    larger: ClassVar[set[bool]] = set()
    """Whether a step ran in a size larger than its own."""

    def size(self, rows: int, adapter: Any, picks: bool) -> int:
        size = super().size(rows, adapter, picks)
        self.larger.add(size > graphs.size_for(rows))
        return size

    def _begin(self) -> None: ...

    def finish(self) -> None: ...

    def _to_host(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None]]:
        late = tensor.clone()
        host = torch.full_like(late, float("nan"))  # nothing may be read before it arrived

        def arrive() -> None:
            host.copy_(late)

        return host, arrive

    def _record(self, step: Captured) -> Captured:
        logits, version = step().clone(), self._store.version

        def replay() -> torch.Tensor:
            assert version == self._store.version, "a captured step reads memory that is gone"
            return logits.copy_(step())

        return replay


class Refusing(Rerun):
    """Cannot capture a step of 8 rows, after the first; and one step in five finds no memory."""

    made, steps = 0, 0

    def _record(self, step: Captured) -> Captured:
        self.made += 1
        if self.made > 1:
            raise torch.OutOfMemoryError("planted")
        return super()._record(step)

    def _run(self, size: int, adapter: Any, picks: bool) -> torch.Tensor:
        self.steps += 1
        if self.steps % 5 == 0:
            raise RuntimeError("Expected mha_graph.execute(...).is_good() to be true")
        return super()._run(size, adapter, picks)


def make(model: str, decoder: type[GraphDecoder] | None, cache_gib: float = 0.002, max_batch: int = 256) -> LocalEngine:
    engine = LocalEngine.create(model, device="cpu", dtype="fp32", max_cache_gib=cache_gib, max_batch=max_batch)
    if decoder is not None:
        ours, bound = engine._network, engine._store.count * PAGE_BYTES
        parts = (len(ours.layers), ours.kv_heads, ours.head_dim, ours.dtype, ours.device, bound)
        store = PageStore(*parts, first_part=16)  # as on a GPU: it grows while sequences are sampled
        store.least_of_use = engine._store.least_of_use
        engine._store = engine._scheduler.store = store
        made = decoder(engine._network, engine._store, max_batch, engine.capabilities.context_length)
        assert not made.notes and made.prefills, made.notes
        engine._scheduler.decoder = made
    return engine


async def with_adapters(model: str, decoder: type[GraphDecoder] | None) -> list[Sample]:
    engine = make(model, decoder)
    samplers = [await engine.base()]
    for sign in (1.0, -1.0, 1.0):
        tokens = np.arange(1, 21, dtype=np.int32)
        ones = np.ones(20, dtype=np.float32)
        await engine.forward_backward([Datum(tokens, tokens + 1, 0 * ones, sign * ones, ones)], "importance_sampling")
        await engine.optim_step(AdamParams(0.05))
        samplers.append(await engine.snapshot())
    calls = [
        sampler.sample(np.arange(3, 3 + length) % 60, SamplingParams(4, temperature=0.9, seed=length))
        for sampler in samplers
        for length in (1, 5, 127, 128, 129, 30, 31, 2, 3)
    ]
    found = [each[0] for each in await asyncio.gather(*calls)]
    await engine.close()
    return found


async def with_stops(model: str, decoder: type[GraphDecoder] | None) -> list[Sample]:
    """Rows end after 1 to 14 tokens, greedy ones too, and others take their place in a batch of 3."""
    engine = make(model, decoder, max_batch=3)
    sampler = await engine.base()
    calls = [
        sampler.sample(
            np.arange(length, 2 * length) % 60,
            SamplingParams(most, temperature=0.0 if most == 9 else 1.3, seed=length, stop=(7, 11, 30, 41)),
            num_samples=1 + (most == 14),
        )
        for length, most in ((3, 14), (120, 14), (7, 9), (60, 1), (5, 2), (126, 9))
    ]
    found = [sample for each in await asyncio.gather(*calls) for sample in each]
    for _ in range(3):
        await engine.snapshot()  # queued behind the step that answered the last, and the one that was on its way
    assert not engine._scheduler.batches and all(not item.active for item in engine._store._sequences)
    await engine.close()
    assert {sample.stop_reason for sample in found} == {"stop", "length"}
    return found


async def with_filters(model: str, decoder: type[GraphDecoder] | None) -> list[Sample]:
    engine = make(model, decoder)
    sampler = await engine.base()
    calls = [
        sampler.sample(
            [5, 6, length],
            SamplingParams(6, seed=length, top_k=5 if length % 2 else -1, top_p=0.8 if length == 4 else 1.0),
        )
        for length in (1, 2, 3, 4)
    ]
    found = [each[0] for each in await asyncio.gather(*calls)]
    await engine.close()
    return found


async def with_few_pages(model: str, decoder: type[GraphDecoder] | None) -> list[Sample]:
    """3 requests that grow to 2 pages each share 5 pages."""
    engine = make(model, decoder, cache_gib=5 * PAGE_BYTES / (1 << 30))
    sampler = await engine.base()
    calls = [sampler.sample(np.arange(i, i + 123) % 60, SamplingParams(9, seed=i)) for i in range(3)]
    found = [each[0] for each in await asyncio.gather(*calls)]
    assert engine.statistics["preempted"] > 0
    assert engine._store.held == 5 and (engine._store.version > 0) == (decoder is not None)
    await engine.close()
    return found


async def with_shared_pages(model: str, decoder: type[GraphDecoder] | None) -> list[Sample]:
    """4 agents read 300 tokens, then 500, and each an end of its own: 3 pages each, then 4. With a decoder whole pages are held once: 2 and
    4 thirds; then 1 third of all and 4 fourths."""
    engine = make(model, decoder)
    sampler = await engine.base()
    transcript, found = np.arange(300) * 7 % 60, []
    for round in range(2):
        calls = [sampler.sample(np.append(transcript, [60, i, round]), SamplingParams(5, seed=i)) for i in range(4)]
        found += [each[0] for each in await asyncio.gather(*calls)]
        held = [page for item in engine._store._sequences for page in item.pages]
        assert (len(held), len(set(held))) in (((12, 6), (12 + 16, 6 + 5)) if decoder else ((12, 12), (28, 28)))[
            round : round + 1
        ], held
        transcript = np.append(transcript, np.arange(200) * 11 % 60)
    assert engine.statistics["prefilled"] == 303 + 3 * 2 + 203 + 3 * 2
    assert await engine._worker.submit(engine._store.shrink) == (
        decoder is not None
    )  # what was captured reads memory that is gone
    found += await sampler.sample(transcript, SamplingParams(5, seed=9))
    await engine.close()
    return found


PAGE_BYTES = 2 * 2 * 2 * 128 * 8 * 4


async def main(model: str) -> None:
    for play in (with_shared_pages, with_adapters, with_stops, with_filters, with_few_pages):
        expected = await play(model, None)
        for decoder in (Rerun, Refusing):
            if decoder is Refusing and play is not with_stops:
                continue
            for ours, theirs in zip(await play(model, decoder), expected, strict=True):
                assert ours.tokens.tolist() == theirs.tokens.tolist(), (play, decoder)
                assert ours.stop_reason == theirs.stop_reason
                np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)
    assert Rerun.larger == {False, True}
    print("equal")


warnings.simplefilter("ignore")
network.ROOM["cpu"] = network.SLOTS  # as on a GPU
graphs.SIZES = (2, 4, 8)  # the interpreter takes its time for each row that only fills
graphs.PATIENCE, graphs.TRY_AGAIN = 3, 4
asyncio.run(main(sys.argv[1]))
