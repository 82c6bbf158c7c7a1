"""Requests, and the rows that decode together.

A batch launches one step for all of its rows and gives `PendingTokens`: what will be known of it. On a CPU it is read
at once. On a GPU (`gpu_batch.py`) it is read one step late, so that the device never waits for the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moot.engine.local.attention import DecodePlan
from moot.engine.local.network import Adapter, Network
from moot.engine.local.pages import PAGE, Cached, PageStore
from moot.engine.local.sampling import Picker, StopCheck
from moot.engine.local.scoring import Asked
from moot.engine.local.several import Seats, Weights
from moot.engine.protocol import Floats, Ints, Sample, SamplingParams

DRAWS = 64
"""Random numbers a request takes from its generator at a time."""


@dataclass(eq=False)
class Request:
    """One sample to draw, or logprobs that are asked for."""

    weights: Weights
    prompt: Ints
    params: SamplingParams
    stop: StopCheck
    random: np.random.Generator
    done: Callable[[Sample | Floats | BaseException], None]
    asked: Asked | None = None
    """Nothing is sampled then: the request is done with its prefill, and has no row in a batch."""
    cancelled: bool = False
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cached: Cached | None = None
    source: Cached | None = None
    """While it waits: the sequence that it will continue."""
    sought: bool = False
    """Whether one was looked for."""
    ahead: int = 0
    """Tokens launched and not yet looked at."""
    settled: bool = False
    """Answered, or given up: what is still launched for it is of no use."""
    joined: int = 0
    """When it joined its batch: the youngest gives way first."""
    slot: int = -1
    """Its row in a batch on a GPU."""
    _draws: list[float] = field(default_factory=list)

    def known(self) -> Ints:
        """Prompt and what was sampled so far: what must be in the cache, but for the last, before the next token."""
        return np.concatenate([self.prompt, np.array(self.tokens, dtype=np.int32)]) if self.tokens else self.prompt

    @property
    def most_shared(self) -> int:
        """Tokens that may come from the cache: the one before the first that is wanted is run again, for its logits."""
        return len(self.prompt) + len(self.tokens) - 1 if self.asked is None else int(self.asked.places[0])

    @property
    def length(self) -> int:
        """With what was launched."""
        return len(self.prompt) + len(self.tokens) + self.ahead

    @property
    def left(self) -> int:
        """Tokens it may still launch."""
        return self.params.max_tokens - len(self.tokens) - self.ahead

    def draw(self) -> float:
        """The random number of its next token: that of its place, however often it is asked for."""
        place = len(self.tokens) + self.ahead
        while len(self._draws) <= place:
            self._draws.extend(self.random.random(DRAWS).tolist())
        return self._draws[place]


def least_of_use(waiting: deque[Request], store: PageStore, idle: list[Cached]) -> Cached:
    """The oldest that nobody waits for; else the one whose turn comes last. A debate asks again in the order it asked
    before, so the oldest of these are needed next, and forgetting them would be to forget each just before its turn."""
    turns: dict[int, int] = {}
    for turn, request in enumerate(waiting):
        if not request.sought:
            request.source, request.sought = store.find(request.weights.key, request.known())[0], True
        if request.source is not None:
            turns.setdefault(id(request.source), turn)
    return min(idle, key=lambda item: (id(item) in turns, -turns.get(id(item), 0), item.used))


@dataclass(frozen=True)
class PendingTokens:
    """Tokens and logprobs of requests that were launched, or all that they asked for. Reading waits for the device."""

    requests: list[Request]
    read: Callable[[], tuple[Sequence[int], Sequence[float | Floats]]]

    @staticmethod
    def at(requests: list[Request], tokens: Tensor, logprobs: Tensor) -> PendingTokens:
        def read() -> tuple[list[int], list[float]]:
            both = torch.stack([tokens.double(), logprobs.double()]).cpu()
            return both[0].long().tolist(), both[1].tolist()

        return PendingTokens(requests, read)

    @staticmethod
    def of_asked(requests: list[Request], read: Callable[[], Tensor]) -> PendingTokens:
        ends = np.cumsum([len(request.asked.tokens) for request in requests if request.asked is not None])
        return PendingTokens(requests, lambda: ([-1] * len(requests), np.split(read().float().numpy(), ends[:-1])))


def draws(requests: Sequence[Request], device: torch.device) -> Tensor:
    return torch.tensor([request.draw() for request in requests], dtype=torch.float64).to(device, non_blocking=True)


class PlainBatch:
    """Kernel by kernel: on a CPU, and on a GPU where nothing better works. Its state on the device is remade when the
    rows or their pages change."""

    def __init__(self, network: Network, store: PageStore, seats: Seats, deterministic: bool) -> None:
        self.rows: list[Request] = []
        self.looks: deque[PendingTokens] = deque()
        self._network, self._store, self._seats, self._deterministic = network, store, seats, deterministic
        self._plan: DecodePlan | None = None
        self._picker: Any = None
        self._inputs: Any = None
        self._positions: Any = None

    def add(self, requests: Sequence[Request], tokens: Tensor) -> None:
        """With the first token of each, which need not be known yet."""
        self.rows.extend(requests)
        self._plan = None

    def remove(self, request: Request) -> None:
        if request in self.rows:
            self.rows.remove(request)
            self._plan = None

    def rows_needing_page(self) -> list[Request]:
        """Rows whose next token needs a page they do not have."""
        return [
            request
            for request in self.rows
            if request.cached is None or -(-request.length // PAGE) != len(request.cached.pages)
        ]

    def grown(self, request: Request) -> None:
        """Its pages changed."""
        self._plan = None

    def settle(self) -> None:
        """All looks were read, and what was launched after them failed."""
        self._plan = None

    def launch(self) -> PendingTokens:
        network = self._network
        plan = self._plan = self._plan or self._make_ready()
        network.reserve(max(request.length for request in self.rows))
        attend = plan.attend(self._store.keys, self._store.values, self._positions)
        hidden = network.hidden(self._inputs, self._positions, attend, self._adapter())
        tokens, logprobs = self._picker.pick(network.logits(hidden), draws(self.rows, network.device))
        self._inputs, self._positions = tokens, self._positions + 1
        return PendingTokens.at(list(self.rows), tokens, logprobs)

    def _adapter(self) -> Adapter:
        """Of each row its own. Asked for in every step: another batch may have seated others since."""
        adapters = [request.weights.adapter for request in self.rows]
        return self._seats.seat(adapters).of_sequences(adapters, 1, self._network.device)

    def _make_ready(self) -> DecodePlan:
        device = self._network.device
        self._picker = Picker([request.params for request in self.rows], self._network.vocab_size, device)
        self._inputs = torch.tensor([request.tokens[-1] for request in self.rows], device=device)
        self._positions = torch.tensor([request.length - 1 for request in self.rows], device=device)
        pages = [request.cached.pages for request in self.rows if request.cached is not None]
        max_gap = (
            2 if device.type == "cpu" else 256
        )  # a product over foreign pages against the start of one more kernel
        return DecodePlan(pages, PAGE, device, max_gap, gather=self._deterministic)
