"""Continuous batching: every concurrent `sample` call shares one decode batch; requests join and leave between steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from moot.engine.local.attention import Continuation, DecodePlan, prefill_attention
from moot.engine.local.memory import give_back, out_of_memory, pause
from moot.engine.local.network import Adapter, Network
from moot.engine.local.pages import PAGE, Cached, OutOfPages, PageStore, common_prefix
from moot.engine.local.picking import Picker, StopCheck
from moot.engine.protocol import EngineError, Ints, Sample, SamplingParams

T = TypeVar("T")
PREFILL_TOKENS = {"cpu": 2048, "cuda": 8192}
"""New tokens a prefill pass takes at most. Bounds its memory, and how long the others wait."""
LEAST_PREFILL = 16
"""What is left of it where memory ran out again and again."""
WORTH_WAITING = PAGE
"""A request waits for another's prefill if it then saves this many tokens."""


Step = Callable[[Tensor, Tensor, Adapter], Tensor]
"""(tokens, positions, adapter) -> hidden states, for one new token of each row"""
Arrange = Callable[[Sequence[Sequence[int]]], Step]
"""The pages of each row -> a step that holds until they change"""


def plain_steps(network: Network, store: PageStore, deterministic: bool) -> Arrange:
    """Kernel by kernel: on a CPU, and on a GPU where nothing better works."""
    max_gap = 2 if network.device.type == "cpu" else 256  # a product over foreign pages against the start of one more kernel

    def arrange(pages: Sequence[Sequence[int]]) -> Step:
        plan = DecodePlan(pages, PAGE, network.device, max_gap, gather=deterministic)

        def step(tokens: Tensor, positions: Tensor, adapter: Adapter) -> Tensor:
            return network.hidden(tokens, positions, plan.attend(store.keys, store.values, positions), adapter)

        return step

    return arrange


@dataclass(eq=False)
class Weights:
    """What one sampler runs. Its identity tells whose cached keys are whose."""

    key: int
    adapter: Adapter


@dataclass(eq=False)
class Request:
    """One sample to draw."""

    weights: Weights
    prompt: Ints
    params: SamplingParams
    stop: StopCheck
    random: np.random.Generator
    done: Callable[[Sample | BaseException], None]
    cancelled: bool = False
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cached: Cached | None = None

    def known(self) -> Ints:
        """Prompt and what was sampled so far: what must be in the cache, but for the last, before the next token."""
        return np.concatenate([self.prompt, np.array(self.tokens, dtype=np.int32)]) if self.tokens else self.prompt

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.tokens)


class Scheduler:
    def __init__(self, network: Network, store: PageStore, arrange: Arrange, max_batch: int, deterministic: bool) -> None:
        self.network, self.store, self.arrange, self.max_batch, self.deterministic = network, store, arrange, max_batch, deterministic
        self.prefill_tokens = self._most_prefill = PREFILL_TOKENS["cpu" if network.device.type == "cpu" else "cuda"]
        self.inbox: deque[Request] = deque()
        """Filled by other threads; everything else here belongs to the worker's."""
        self.waiting: deque[Request] = deque()
        self.batches: dict[int, Batch] = {}
        self.stats = {"prefilled": 0, "reused": 0, "decoded": 0, "steps": 0, "preempted": 0, "out_of_memory": 0}
        self.allowed = max_batch
        """Rows that run at once: fewer than `max_batch` after memory ran out, then one more with each step; the tokens of a prefill too."""
        self._attempts = 0

    def add(self, requests: list[Request]) -> None:
        self.inbox.extend(requests)

    def has_work(self) -> bool:
        return bool(self.inbox or self.waiting or self.batches)

    def step(self) -> None:
        """Admit what fits, then one token for everyone."""
        while self.inbox:
            self.waiting.append(self.inbox.popleft())
        with torch.inference_mode():
            self._leave_cancelled()
            self._admit()
            for key, batch in list(self.batches.items()):
                self._guard(self._decode, batch, batch.rows)
                if not batch.rows:
                    self.batches.pop(key, None)
            self.allowed = min(self.max_batch, self.allowed + 1)
            self.prefill_tokens = min(self._most_prefill, self.prefill_tokens + PAGE)

    def abandon(self, reason: str) -> None:
        for request in [*self.inbox, *self.waiting, *(request for batch in self.batches.values() for request in batch.rows)]:
            request.done(EngineError(reason))
        self.inbox.clear()
        self.waiting.clear()
        self.batches.clear()

    def _guard(self, action: Callable[[T], None], given: T, concerned: list[Request]) -> None:
        """Trouble in a step fails the requests in it, never the thread that serves the others."""
        try:
            action(given)
            self._attempts = 0
        except Exception as error:
            if out_of_memory(error) and self._take_less(list(concerned), error):
                return
            failure = EngineError(f"sampling failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            for request in list(concerned):
                for batch in self.batches.values():
                    batch.remove(request)
                self._fail(request, failure)

    def _take_less(self, concerned: list[Request], error: Exception) -> bool:
        """Out of memory: the same work again in smaller pieces. False where there is none smaller and waiting did not help."""
        self.stats["out_of_memory"] += 1
        give_back(error)
        running = {id(request) for batch in self.batches.values() for request in batch.rows}
        joining = [request for request in concerned if id(request) not in running]
        rows = [request for request in concerned if id(request) in running]
        if self.prefill_tokens == LEAST_PREFILL if joining else len(rows) == 1:
            if not pause(self._attempts):
                return False
            self._attempts += 1
        if joining:
            self.prefill_tokens = max(LEAST_PREFILL, min(self.prefill_tokens, sum(len(request.known()) for request in joining)) // 2)
        for request in reversed(joining):
            if request.cached is not None:
                self.store.drop(request.cached)  # its pages are written in part
                request.cached = None
            self.waiting.appendleft(request)
        self.allowed = max(1, len(rows) // 2) if rows else self.allowed
        for request in reversed(rows[self.allowed :]):
            self._preempt(request)
        return True

    def _preempt(self, request: Request) -> None:
        """Let it wait again; it is prefilled with what it has so far."""
        self._retire(request)
        self.batches[request.weights.key].remove(request)
        self.waiting.appendleft(request)
        self.stats["preempted"] += 1

    def _fail(self, request: Request, error: BaseException) -> None:
        if request.cached is not None:
            self.store.drop(request.cached, scrub=True)
            request.cached = None
        request.done(error)

    def _leave_cancelled(self) -> None:
        if any(request.cancelled for request in self.waiting):
            self.waiting = deque(request for request in self.waiting if not request.cancelled)
        for batch in self.batches.values():
            for request in [request for request in batch.rows if request.cancelled]:
                self._retire(request)
                batch.remove(request)
        self.batches = {key: batch for key, batch in self.batches.items() if batch.rows}

    # -- joining ----------------------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        while self.waiting:
            chosen = self._choose()
            if not chosen:
                return
            self._guard(self._prefill, chosen, chosen)

    def _choose(self) -> list[Request]:
        """Requests for one prefill pass, in order of arrival, all of the same weights."""
        chosen: list[Request] = []
        put_off: list[Request] = []
        budget = self.prefill_tokens
        running = sum(len(batch.rows) for batch in self.batches.values())
        while self.waiting and running + len(chosen) < self.allowed and budget > 0:
            request = self.waiting.popleft()
            known = request.known()
            source, shared = self._reusable(request, known)
            if chosen and (request.weights is not chosen[0].weights or len(known) - shared > budget or self.deterministic):
                put_off.append(request)
                break
            if any(common_prefix(other.prompt, known) - shared >= WORTH_WAITING for other in chosen):
                put_off.append(request)  # the next pass can copy what this one computes
                continue
            busy = running + len(chosen)
            if busy and self.store.free_pages < -(-len(known) // PAGE) + busy:
                put_off.append(request)  # those who run will need a page each before long
                break
            try:
                request.cached = self.store.start(request.weights.key, known, source, shared)
            except OutOfPages:
                if busy:
                    put_off.append(request)
                else:
                    self._fail(request, EngineError(f"{len(known)} tokens do not fit a cache of {self.store.tokens}"))
                break
            budget -= len(known) - shared
            self.stats["reused"] += shared
            chosen.append(request)
        self.waiting.extendleft(reversed(put_off))
        return chosen

    def _reusable(self, request: Request, known: Ints) -> tuple[Cached | None, int]:
        source, shared = self.store.find(request.weights.key, known)
        shared = min(shared, len(known) - 1)  # the last token is run again, for its logits
        if self.deterministic:
            shared -= shared % PAGE
        return (source, shared) if shared else (None, 0)

    def _prefill(self, chosen: list[Request]) -> None:
        last: Tensor
        if len(chosen) == 1:
            request = chosen[0]
            known = request.known()
            assert request.cached is not None
            at = len(request.cached.tokens)
            # One at a time, in whole pages where results must not depend on what was cached.
            size = PAGE if self.deterministic else self.prefill_tokens
            while True:
                end = min(len(known), (at // size + 1) * size if self.deterministic else at + size)
                last = self._run_prefill([(request, known[at:end])])
                at = end
                if at == len(known):
                    break
        else:
            last = self._run_prefill([(request, request.known()[len(self._cached(request).tokens) :]) for request in chosen])
        for request in chosen:
            cached = self._cached(request)
            # Bits differ between a prefilled and a decoded token, so only whole prefilled pages are reused where that matters.
            cached.reusable = len(request.prompt) // PAGE * PAGE if self.deterministic else len(cached.tokens)
        key = chosen[0].weights.key
        batch = self.batches.setdefault(key, Batch(chosen[0].weights))
        picker = Picker([request.params for request in chosen], self.network.vocab_size, self.network.device)
        tokens, logprobs = picker.pick(self.network.logits(last), self._draw(chosen))
        batch.add(list(chosen))
        self._accept(batch, list(chosen), tokens, logprobs)

    def _run_prefill(self, parts: list[tuple[Request, Ints]]) -> Tensor:
        """Hidden states of each part's last token."""
        device = self.network.device
        continuations, positions, ends, total = [], [], [], 0
        for request, new in parts:
            cached = self._cached(request)
            done = len(cached.tokens)
            pages = torch.tensor(cached.pages[: -(-(done + len(new)) // PAGE)], device=device)
            continuations.append(Continuation(pages, done, len(new)))
            positions.append(np.arange(done, done + len(new)))
            total += len(new)
            ends.append(total - 1)
            self.network.reserve(done + len(new))
        tokens = torch.from_numpy(np.concatenate([new for _, new in parts])).to(device, torch.long)
        attend = prefill_attention(self.store.keys, self.store.values, continuations)
        hidden = self.network.hidden(tokens, torch.from_numpy(np.concatenate(positions)).to(device), attend, parts[0][0].weights.adapter)
        for request, new in parts:
            cached = self._cached(request)
            cached.tokens = np.concatenate([cached.tokens, new])
        self.stats["prefilled"] += total
        return hidden[torch.tensor(ends, device=device)]

    # -- one token for everyone -------------------------------------------------------------------------------------------------------

    def _decode(self, batch: Batch) -> None:
        self._make_room(batch)
        if not batch.rows:
            return
        if batch.step is None:
            batch.make_ready(self.network, self.arrange)
        assert batch.step is not None and batch.picker is not None
        self.network.reserve(max(request.length for request in batch.rows))
        hidden = batch.step(batch.inputs, batch.positions, batch.weights.adapter)
        tokens, logprobs = batch.picker.pick(self.network.logits(hidden), self._draw(batch.rows))
        batch.inputs, batch.positions = tokens, batch.positions + 1
        self.stats["decoded"] += len(batch.rows)
        self.stats["steps"] += 1
        self._accept(batch, list(batch.rows), tokens, logprobs)

    def _make_room(self, batch: Batch) -> None:
        """A page for each next token. Where there is none, the youngest request waits again, and is prefilled with what it has so far."""
        for request in list(batch.rows):
            if request.cached is not None and -(-request.length // PAGE) == len(request.cached.pages):
                continue  # as nearly always
            while request in batch.rows:
                try:
                    if self.store.grow(self._cached(request), request.length):
                        batch.step = None
                    break
                except OutOfPages:
                    everyone = [other for any_batch in self.batches.values() for other in any_batch.rows]
                    if len(everyone) == 1:
                        raise
                    self._preempt(everyone[-1])

    def _accept(self, batch: Batch, requests: list[Request], tokens: Tensor, logprobs: Tensor) -> None:
        """Record one new token for each. This is where the device is waited for, once a step."""
        both = torch.stack([tokens.double(), logprobs.double()]).cpu().numpy()
        for request, token, logprob in zip(requests, both[0], both[1], strict=True):
            if not np.isfinite(logprob):
                batch.remove(request)
                self._fail(request, EngineError("the model's logits are not finite; its weights have probably diverged"))
                continue
            request.tokens.append(int(token))
            request.logprobs.append(float(logprob))
            stopped = request.stop(request.tokens)
            if stopped or len(request.tokens) == request.params.max_tokens:
                self._retire(request)
                batch.remove(request)
                request.done(
                    Sample(
                        tokens=np.array(request.tokens, dtype=np.int32),
                        logprobs=np.array(request.logprobs, dtype=np.float32),
                        stop_reason="stop" if stopped else "length",
                    )
                )

    def _draw(self, requests: list[Request]) -> Tensor:
        draws = torch.tensor([request.random.random() for request in requests], dtype=torch.float64)
        return draws.to(self.network.device, non_blocking=True)

    def _retire(self, request: Request) -> None:
        if request.cached is not None:
            if not self.deterministic:
                request.cached.tokens = request.known()[:-1]  # the last one's keys were never computed
                request.cached.reusable = len(request.cached.tokens)
            self.store.retire(request.cached)
            request.cached = None

    def _cached(self, request: Request) -> Cached:
        assert request.cached is not None
        return request.cached


class Batch:
    """The rows that decode together, and their state on the device, remade only when the rows or their pages change."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.rows: list[Request] = []
        self.step: Step | None = None
        self.picker: Picker | None = None
        self.inputs: Any = None
        self.positions: Any = None

    def add(self, requests: list[Request]) -> None:
        self.rows.extend(requests)
        self.step = None

    def remove(self, request: Request) -> None:
        if request in self.rows:
            self.rows.remove(request)
            self.step = None

    def make_ready(self, network: Network, arrange: Arrange) -> None:
        device = network.device
        self.step = arrange([request.cached.pages for request in self.rows if request.cached is not None])
        self.picker = Picker([request.params for request in self.rows], network.vocab_size, device)
        self.inputs = torch.tensor([request.tokens[-1] for request in self.rows], device=device)
        self.positions = torch.tensor([request.length - 1 for request in self.rows], device=device)
