"""A batch on a GPU: its tokens never leave the device before the next step is on its way.

Everything a step must be told is a few numbers for each row. They are kept in host memory, sent in one copy, and
changed in place when rows join, leave or need a page. A row's input token is what the last step wrote for it, wherever
in that step's rows it stood.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from moot.engine.local.batch import PendingTokens, Request
from moot.engine.local.graphs import (
    DRAW,
    GIVEN,
    POSITION,
    SLOT,
    SOURCE,
    STATE,
    TEMPERATURE,
    GraphDecoder,
    filtered,
)
from moot.engine.local.memory import upload
from moot.engine.local.pages import PAGE
from moot.engine.local.sampling import Picker
from moot.engine.local.several import Together


class GpuBatch:
    def __init__(self, decoder: GraphDecoder) -> None:
        self.rows: list[Request] = []
        self.looks: deque[PendingTokens] = deque()
        self._decoder = decoder
        most = decoder.rows
        self._state = np.zeros((STATE, most), np.int64)
        self._draws, self._temperatures = self._state[DRAW].view(np.float64), self._state[TEMPERATURE].view(np.float64)
        self._table = np.full((most, decoder.pages), decoder.scratch, np.int32)
        self._table_changed, self._sent = True, 0
        self._picker: Picker | None = None
        self._together: Together | None = None
        self._last = torch.zeros(2 * most, dtype=torch.long, device=decoder.device)
        """Tokens of the last step; behind them, those of the prefill passes since."""
        self._new = 0

    def add(self, requests: Sequence[Request], tokens: Tensor) -> None:
        most, count = self._decoder.rows, len(requests)
        self._last[most + self._new : most + self._new + count] = tokens
        for place, request in enumerate(requests):
            slot = request.slot = len(self.rows)
            self.rows.append(request)
            self._state[SOURCE, slot] = most + self._new + place
            self._state[POSITION, slot] = request.length - 1
            self._temperatures[slot] = request.params.temperature
            self.grown(request)
        self._new += count
        self._picker = self._together = None

    def remove(self, request: Request) -> None:
        slot = request.slot
        if not (0 <= slot < len(self.rows) and self.rows[slot] is request):
            return
        request.slot = -1
        moved = self.rows.pop()
        if moved is not request:
            self.rows[slot] = moved
            moved.slot = slot
            self._state[:, slot] = self._state[:, len(self.rows)]
            self._table[slot] = self._table[len(self.rows)]
        self._table[len(self.rows)] = self._decoder.scratch  # it may come to be a row that only fills
        self._table_changed = True
        self._picker = self._together = None

    def rows_needing_page(self) -> list[Request]:
        """A new page begins where a position is a multiple of its size."""
        return [self.rows[slot] for slot in np.flatnonzero(self._state[POSITION, : len(self.rows)] % PAGE == 0)]

    def grown(self, request: Request) -> None:
        assert request.cached is not None
        pages = request.cached.pages
        self._table[request.slot, : len(pages)] = pages
        self._table[request.slot, len(pages) :] = self._decoder.scratch
        self._table_changed = True

    def settle(self) -> None:
        """The inputs are known by now: those of the device may be gone."""
        for slot, request in enumerate(self.rows):
            self._state[SOURCE, slot], self._state[GIVEN, slot] = -1, request.tokens[-1]
            self._state[POSITION, slot] = request.length - 1
        self._new = 0

    def _seated(self) -> Together:
        """The adapters of the rows; looked for anew only if rows or seats have changed, because a step is short."""
        seats = self._decoder.seats
        if self._together is None or seats.last is not self._together:
            adapters = [request.weights.adapter for request in self.rows]
            self._together = seats.seat(adapters)
            self._state[SLOT, : len(adapters)] = [self._together.slot(adapter) for adapter in adapters]
        return self._together

    def launch(self) -> PendingTokens:
        count, decoder = len(self.rows), self._decoder
        picks = not any(filtered(request) for request in self.rows)
        together = self._seated()
        size = decoder.size(count, together, picks)
        self._draws[:count] = [request.draw() for request in self.rows]
        state = self._state.copy()
        state[:, count:] = 0
        state[SOURCE, count:] = -1
        if (
            self._table_changed or decoder.table_of is not self or size > self._sent
        ):  # rows that only fill must not write to old pages
            widest = int(self._state[POSITION, :count].max()) // PAGE + 1
            decoder.set_table(upload(self._table[:size, :widest], decoder.device), self)
            self._table_changed, self._sent = False, size
        decoder.set_state(upload(state, decoder.device), self._last)
        if picks:
            tokens, logprobs = decoder.step(size, together)
        else:
            if self._picker is None:
                self._picker = Picker([request.params for request in self.rows], decoder.vocab_size, decoder.device)
            logits = decoder.logits(size, together)[:count]
            tokens, logprobs = self._picker.pick(logits, upload(self._draws[:count].copy(), decoder.device))
        self._last[: len(tokens)] = tokens
        look = decoder.look(list(self.rows), tokens, logprobs)
        self._state[SOURCE, :count] = np.arange(count)
        self._state[POSITION, :count] += 1
        self._new = 0
        return look
