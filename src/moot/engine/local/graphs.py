"""Decoding on a GPU: attention and picking in kernels of their own, and the whole step captured as a CUDA graph.

One token through a small model is a thousand kernels of a few microseconds each. Python takes longer to start them than
the GPU to run them, however many rows the batch has. A captured step starts all of them at once, from the input tokens
to the picked ones. It always reads the same memory, so each step first puts its state, pages and adapter there. Batches
are filled up to a few sizes; rows that only fill write to a page that nobody owns.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moot.engine.local.batch import PendingTokens, Request
from moot.engine.local.memory import free_failed, upload
from moot.engine.local.network import Attend, Network
from moot.engine.local.paged import Pass, block_rows, paged_attention, paged_prefill, write_pages
from moot.engine.local.pages import PAGE, PageStore
from moot.engine.local.sampling import Picker, pick
from moot.engine.local.sampling_triton import choose
from moot.engine.local.several import Kind, Seats, Together
from moot.engine.protocol import in_words

SIZES = (8, 16, 32, 64, 96, 128, 192, 256)
"""Rows of a captured batch; above the last, multiples of half of it. More sizes waste less, but each takes a moment to
capture."""
STATE = 6
SOURCE, GIVEN, POSITION, DRAW, TEMPERATURE, SLOT = range(STATE)
"""What a step is told of each row, 8 bytes each: where in the last step its token was picked, or -1 and the token
itself; the token's position; the draw and the temperature, both as float64; and where its adapter stands, if there are
several."""
PATIENCE = 16
"""Steps for which a larger size that is captured will do, before the one that is wanted is captured too: a batch that
fills again, or runs dry, passes sizes on the way."""
TRY_AGAIN = 1024
"""Steps that run as they are, kernel by kernel, before one that could not be captured is tried again: memory may be
there by then."""
_CAPTURING = threading.Lock()
"""A process captures one thing at a time; a second engine in it has a thread of its own."""

Captured = Callable[[], Tensor]
"""Runs a step, and gives its logits where it does not pick from them."""


def size_for(rows: int) -> int:
    half = SIZES[-1] // 2
    return next((size for size in SIZES if size >= rows), -(-rows // half) * half)


class GraphDecoder:
    def __init__(self, network: Network, store: PageStore, max_batch: int, max_length: int) -> None:
        """`max_length`: of a sequence.

        Captures one size at once, so that a device that cannot do this says so here.
        """
        self._network, self._store, self.device = network, store, network.device
        self.rows, self.pages = size_for(max_batch), -(-max_length // PAGE)
        self.scratch, self.vocab_size = store.scratch, network.vocab_size
        network.reserve(max_length)  # a captured step keeps reading the table it was captured with
        self._state = torch.zeros(STATE, self.rows, dtype=torch.long, device=self.device)
        self._previous = torch.zeros(2 * self.rows, dtype=torch.long, device=self.device)
        self._table = torch.full((self.rows, self.pages), store.scratch, dtype=torch.int32, device=self.device)
        self._tokens = torch.zeros(self.rows, dtype=torch.long, device=self.device)
        self._logprobs = torch.zeros(self.rows, dtype=torch.float64, device=self.device)
        self.seats = Seats(network, captures=True)
        self._graphs: dict[Kind, Captured] = {}
        self._wanted: Counter[Kind] = Counter()
        self._version = store.version
        self._pick = choose
        self.table_of: object = None
        """Whose pages are in the table."""
        self.notes: tuple[str, ...] = ()
        self._begin()
        with torch.inference_mode():
            self._graphs[(), SIZES[0], True] = self._first_capture()
            self.prefills = self._can_prefill()

    def _first_capture(self) -> Captured:
        try:
            return self._capture(SIZES[0], Together((), ()), True)
        except Exception as error:
            free_failed(error)
            self._pick = pick
            captured = self._capture(SIZES[0], Together((), ()), True)
            self.notes = (
                *self.notes,
                f"the kernel that picks tokens does not run, so sampling is slower: {in_words(error)}",
            )
            return captured

    def _can_prefill(self) -> bool:
        """Whether the kernel runs here. It works on the scratch page."""
        try:
            shape = (2, self._network.heads, self._network.head_dim)
            q = torch.zeros(shape, dtype=self._network.dtype, device=self.device)
            k = q[:, : self._network.kv_heads].contiguous()
            self.prefill([([self.scratch], 0, 2)])(0, q, k, k)
            self.finish()
            return True
        except Exception as error:
            free_failed(error)
            self.notes = (
                *self.notes,
                f"the kernel for new prompts does not run, so they are slower: {in_words(error)}",
            )
            return False

    def prefill(self, parts: Sequence[tuple[Sequence[int], int, int]]) -> Attend:
        """As `attention.prefill_attention`. Of each sequence: its pages, how many tokens they hold, how many are
        new."""
        plan = Pass.of(parts, PAGE, block_rows(self._network.dtype), self.device)
        return paged_prefill(self._store.keys, self._store.values, plan)

    def pick(self, logits: Tensor, requests: Sequence[Request]) -> tuple[Tensor, Tensor]:
        """The first token of each."""
        draws = upload(np.array([request.draw() for request in requests]), self.device)
        if any(filtered(request) for request in requests):
            return Picker([request.params for request in requests], self.vocab_size, self.device).pick(logits, draws)
        temperatures = upload(np.array([request.params.temperature for request in requests], np.float64), self.device)
        tokens = torch.empty(len(requests), dtype=torch.long, device=self.device)
        logprobs = torch.empty(len(requests), dtype=torch.float64, device=self.device)
        self._pick(logits, temperatures, draws, tokens, logprobs)
        return tokens, logprobs

    def size(self, rows: int, together: Together, picks: bool) -> int:
        """Of the step that runs so many rows."""
        self._leave_moved()
        wanted, kind = size_for(rows), together.kind
        if (kind, wanted, picks) in self._graphs:
            return wanted
        self._wanted[kind, wanted, picks] += 1
        larger = [size for of, size, picking in self._graphs if (of, picking) == (kind, picks) and size > wanted]
        return min(larger) if larger and self._wanted[kind, wanted, picks] < PATIENCE else wanted

    def set_table(self, table: Tensor, owner: object) -> None:
        self._table[: len(table), : table.shape[1]] = table
        self.table_of = owner

    def set_state(self, state: Tensor, previous: Tensor) -> None:
        self._state.copy_(state)
        self._previous.copy_(previous)

    def step(self, size: int, together: Together) -> tuple[Tensor, Tensor]:
        """The next tokens and their logprobs, in memory that the next call overwrites."""
        self._run(size, together, True)
        return self._tokens[:size], self._logprobs[:size]

    def logits(self, size: int, together: Together) -> Tensor:
        return self._run(size, together, False)

    def _run(self, size: int, together: Together, picks: bool) -> Tensor:
        step = (together.kind, size, picks)
        if step not in self._graphs:
            self._graphs[step] = self._try_capture(size, together, picks)
        return self._graphs[step]()

    def _leave_moved(self) -> None:
        """Captured steps read pages where they no longer are."""
        if self._version != self._store.version:
            self.finish()  # none may be on its way
            self._graphs.clear()
            self._begin()  # torch may refuse to capture into a pool whose graphs are gone
            self._version = self._store.version

    def _try_capture(self, size: int, together: Together, picks: bool) -> Captured:
        try:
            return self._capture(size, together, picks)
        except Exception as error:
            free_failed(error)
            warnings.warn(
                f"a step of {size} rows could not be captured, so it is slower: {in_words(error)}", stacklevel=2
            )
        step, left, graphs = self._whole_step(size, together, picks), TRY_AGAIN, self._graphs

        def uncaptured() -> Tensor:
            nonlocal left
            left -= 1
            if not left:
                graphs.pop((together.kind, size, picks), None)
            return step()

        return uncaptured

    def _capture(self, size: int, together: Together, picks: bool) -> Captured:
        with _CAPTURING:
            return self._record(self._whole_step(size, together, picks))

    def _whole_step(self, size: int, together: Together, picks: bool) -> Captured:
        source, given, positions, slots = (self._state[row, :size] for row in (SOURCE, GIVEN, POSITION, SLOT))
        draws, temperatures = (self._state[row, :size].view(torch.float64) for row in (DRAW, TEMPERATURE))
        table = self._table[:size]

        def step() -> Tensor:
            tokens = torch.where(source >= 0, self._previous[source.clamp_min(0)], given)
            page_ids = table.gather(1, (positions // PAGE)[:, None]).squeeze(1).long()
            within = positions % PAGE

            def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                keys, values = self._store.keys[layer], self._store.values[layer]
                write_pages(k, v, keys, values, page_ids, within)
                return paged_attention(q, keys, values, table, positions)

            adapter = together.of_tokens(slots) if together.slots else together.adapter
            logits = self._network.logits(self._network.hidden(tokens, positions, attend, adapter))
            if not picks:
                return logits
            self._pick(logits, temperatures, draws, self._tokens[:size], self._logprobs[:size])
            return self._tokens  # not the logits: memory that a captured step gives out is lost to the others

        return step

    def look(self, requests: list[Request], tokens: Tensor, logprobs: Tensor) -> PendingTokens:
        """Starts the way to the host; reading waits for its end."""
        both = self.later(torch.stack([tokens.double(), logprobs.double()]))

        def read() -> tuple[list[int], list[float]]:
            host = both()
            return host[0].long().tolist(), host[1].tolist()

        return PendingTokens(requests, read)

    def later(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Starts the way to the host; the call waits for its end."""
        host, arrived = self._to_host(tensor)

        def read() -> Tensor:
            arrived()
            return host

        return read

    # What is CUDA's own; a test does without it.

    def _begin(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        torch.cuda.synchronize()

    def _to_host(self, tensor: Tensor) -> tuple[Tensor, Callable[[], None]]:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record()  # blocking: a thread that waits leaves its core to the other runs
        return host, event.synchronize

    def _record(self, step: Captured) -> Captured:
        before = torch.cuda.current_stream()
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):  # kernels are compiled and libraries made ready outside of the capture
            step()
        before.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            logits = step()

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay


def filtered(request: Request) -> bool:
    """Top-k and top-p sort the vocabulary, which the captured step does not."""
    return request.params.top_p < 1 or request.params.top_k != -1
