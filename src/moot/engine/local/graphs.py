"""Decoding on a GPU: one kernel for attention, and the whole step captured as a CUDA graph.

One token through a small model is a thousand kernels of a few microseconds each. Python takes longer to start them than the GPU to run
them, however many rows the batch has. A captured step starts all of them at once. It always reads the same memory, so each step first
puts its tokens, positions, pages and adapter there. Batches are filled up to a few sizes; rows that only fill write to a page that
nobody owns.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from moot.engine.local.network import Adapter, LowRank, Network
from moot.engine.local.paged import paged_attention
from moot.engine.local.pages import PAGE, PageStore
from moot.engine.local.scheduler import Arrange, Step

SIZES = (8, 16, 32, 64, 96, 128, 192, 256)
"""Rows of a captured batch; above the last, multiples of it. More sizes waste less, but each takes a moment to capture."""
_CAPTURING = threading.Lock()
"""A process captures one thing at a time; a second engine in it has a thread of its own."""

Kind = tuple[object, ...]


def size_for(rows: int) -> int:
    return next((size for size in SIZES if size >= rows), -(-rows // SIZES[-1]) * SIZES[-1])


class GraphDecoder:
    def __init__(self, network: Network, store: PageStore, max_batch: int, max_length: int, otherwise: Arrange) -> None:
        """`max_length`: of a sequence. `otherwise` serves what cannot be captured later on, for want of memory say.

        Captures one size at once, so that a device that cannot do this says so here.
        """
        self._network, self._store, self._otherwise = network, store, otherwise
        rows, device = size_for(max_batch), network.device
        network.reserve(max_length)  # a captured step keeps reading the table it was captured with
        self._tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self._positions = torch.zeros(rows, dtype=torch.long, device=device)
        self._table = torch.full((rows, -(-max_length // PAGE)), store.scratch, dtype=torch.int32, device=device)
        self._adapters: dict[Kind, Adapter] = {}
        self._loaded: dict[Kind, Adapter] = {}
        self._graphs: dict[Kind, tuple[Callable[[], None], Tensor] | None] = {}
        """None where capturing failed."""
        self._begin()
        with torch.inference_mode():
            self._graphs[(SIZES[0],)] = self._capture(SIZES[0], ())

    def arrange(self, page_lists: Sequence[Sequence[int]]) -> Step:
        most = max(len(pages) for pages in page_lists)
        rows = [[*pages, *[self._store.scratch] * (most - len(pages))] for pages in page_lists]
        table = torch.tensor(rows, dtype=torch.int32, device=self._table.device)
        plain: list[Step] = []

        def step(tokens: Tensor, positions: Tensor, adapter: Adapter) -> Tensor:
            if (hidden := self._hidden(tokens, positions, table, adapter)) is not None:
                return hidden
            if not plain:
                plain.append(self._otherwise(page_lists))
            return plain[0](tokens, positions, adapter)

        return step

    def _hidden(self, tokens: Tensor, positions: Tensor, table: Tensor, adapter: Adapter) -> Tensor | None:
        """As `Network.hidden`, for one new token of each row. What it returns is overwritten by the next call. None: not captured."""
        rows, kind = len(tokens), _shape(adapter)
        size = size_for(rows)
        self._tokens[:rows] = tokens
        self._positions[:rows] = positions
        self._table[:rows, : table.shape[1]] = table
        self._positions[rows:size] = 0
        self._table[rows:size, 0] = self._store.scratch
        static = self._load(kind, adapter)
        if (*kind, size) not in self._graphs:
            self._graphs[*kind, size] = self._try_capture(size, static)
        if (captured := self._graphs[*kind, size]) is None:
            return None
        replay, hidden = captured
        replay()
        return hidden[:rows]

    def _load(self, kind: Kind, adapter: Adapter) -> Adapter:
        """The adapter's values, in the memory the graphs of its shape read."""
        if kind not in self._adapters:
            self._adapters[kind] = [{name: LowRank(low.a.clone(), low.b.clone()) for name, low in layer.items()} for layer in adapter]
            self._loaded[kind] = adapter
        static = self._adapters[kind]
        if self._loaded[kind] is not adapter:
            torch._foreach_copy_(_tensors(static), _tensors(adapter))
            self._loaded[kind] = adapter
        return static

    def _try_capture(self, size: int, adapter: Adapter) -> tuple[Callable[[], None], Tensor] | None:
        try:
            return self._capture(size, adapter)
        except Exception as error:
            torch.cuda.empty_cache()
            warnings.warn(f"a step of {size} rows could not be captured, so it is slower: {type(error).__name__}: {error}", stacklevel=2)
            return None

    def _capture(self, size: int, adapter: Adapter) -> tuple[Callable[[], None], Tensor]:
        tokens, positions, table = self._tokens[:size], self._positions[:size], self._table[:size]

        def step() -> Tensor:
            page_ids = table.gather(1, (positions // PAGE)[:, None]).squeeze(1).long()
            within = positions % PAGE

            def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                keys, values = self._store.keys[layer], self._store.values[layer]
                keys[page_ids, :, within] = k
                values[page_ids, :, within] = v
                return paged_attention(q, keys, values, table, positions)

            return self._network.hidden(tokens, positions, attend, adapter)

        with _CAPTURING:
            return self._record(step)

    # What is CUDA's own; a test does without it.

    def _begin(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def _record(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        before = torch.cuda.current_stream()
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):  # kernels are compiled and libraries made ready outside of the capture
            step()
        before.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            hidden = step()
        return graph.replay, hidden


def _shape(adapter: Adapter) -> Kind:
    """What must be equal for two adapters to share a graph."""
    return (tuple(sorted((name, *low.a.shape) for name, low in adapter[0].items())),) if adapter else ()


def _tensors(adapter: Adapter) -> list[Tensor]:
    return [tensor for layer in adapter for name in sorted(layer) for tensor in (layer[name].a, layer[name].b)]
