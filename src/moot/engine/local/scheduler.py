"""Continuous batching: every concurrent `sample` call shares one decode batch; requests join and leave between
steps."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from moot.engine.handover import Inbox
from moot.engine.local.attention import Continuation, prefill_attention
from moot.engine.local.batch import PendingTokens, PlainBatch, Request, draws, least_of_use
from moot.engine.local.memory import free_failed, out_of_memory, pause, upload
from moot.engine.local.network import Adapter, Network
from moot.engine.local.pages import PAGE, Cached, OutOfPages, PageStore, begin_alike
from moot.engine.local.sampling import Picker
from moot.engine.local.scoring import asked_logprobs
from moot.engine.local.several import Seats, Weights, fit_together
from moot.engine.protocol import Floats, Ints, Sample, in_words
from moot.errors import EngineError

if TYPE_CHECKING:
    # Both need triton, which torch brings along only where there is a GPU.
    from moot.engine.local.gpu_batch import GpuBatch
    from moot.engine.local.graphs import GraphDecoder

    Batch = PlainBatch | GpuBatch

T = TypeVar("T")
PREFILL_TOKENS = {"cpu": 2048, "cuda": 8192}
"""New tokens a prefill pass takes at most. Bounds its memory."""
LEAST_PREFILL = 16
"""What is left of it where memory ran out again and again."""
WORTH_WAITING = PAGE
"""A request waits for another's prefill if it then saves this many tokens."""


class Scheduler:
    def __init__(
        self,
        network: Network,
        store: PageStore,
        max_batch: int,
        deterministic: bool,
        decoder: GraphDecoder | None = None,
    ) -> None:
        """`decoder`: where there is one, steps are captured, and looked at one step late."""
        self.network, self.store, self.max_batch, self.deterministic, self.decoder = (
            network,
            store,
            max_batch,
            deterministic,
            decoder,
        )
        self.prefill_tokens = self._most_prefill = PREFILL_TOKENS["cpu" if network.device.type == "cpu" else "cuda"]
        self.inbox: Inbox[Request] = Inbox()
        """Filled by other threads; everything else here belongs to the worker's."""
        self.waiting: deque[Request] = deque()
        self._owed: set[Request] = set()
        """Everyone who came in and has no answer yet, in whatever list they are: what goes wrong between two lists
        loses nobody."""
        self.batches: list[Batch] = []
        """One, but for weights that do not fit together."""
        self._seats = Seats(network, captures=False)
        self.stats = {"prefilled": 0, "reused": 0, "decoded": 0, "steps": 0, "preempted": 0, "out_of_memory": 0}
        self.allowed = max_batch
        """Rows that run at once: fewer than `max_batch` after memory ran out, then one more with each step; the tokens
        of a prefill too."""
        self._attempts = 0
        self._joined = itertools.count()
        store.least_of_use = partial(
            least_of_use, self.waiting
        )  # no method: a store and a scheduler that hold each other are freed late

    def add(self, requests: list[Request]) -> None:
        self.inbox.put(*requests)

    def has_work(self) -> bool:
        return bool(self.inbox or self.waiting or self.batches)

    def step(self) -> None:
        """Admit what fits, then one token for everyone."""
        came = self.inbox.take()
        self._owed.update(came)
        self.waiting.extend(came)
        with torch.inference_mode():
            self._leave_cancelled()
            self._admit()
            for batch in list(self.batches):
                self._guard(self._decode, batch, batch.rows, batch)
            self.batches = [batch for batch in self.batches if batch.rows or batch.looks]
            self.allowed = min(self.max_batch, self.allowed + 1)
            self.prefill_tokens = min(self._most_prefill, self.prefill_tokens + PAGE)
        if not self.has_work():
            self._attempts = 0
            if self._owed:
                self.abandon("the request was lost on its way, which is a fault of moot's; please report it")

    def abandon(self, reason: str) -> None:
        """Fails everyone who is here now. Whoever asks again when told so is here later, and stays."""
        everyone = [*self.inbox.take(), *self._owed]
        self.waiting.clear()
        self.batches.clear()
        for request in everyone:
            self._answer(request, EngineError(reason))
        for request in everyone:
            self._discard(request)

    def _everyone(self) -> list[Request]:
        """Those who run, and those whose last token is on its way."""
        requests = [request for batch in self.batches for request in (*batch.rows, *_unread(batch))]
        return list({id(request): request for request in requests}.values())

    def _guard(
        self, action: Callable[[T], None], given: T, concerned: list[Request], batch: Batch | None = None
    ) -> None:
        """Trouble in a step fails the requests in it, never the thread that serves the others."""
        try:
            action(given)
            self._attempts = 0
        except Exception as trouble:
            error = trouble
            try:
                if out_of_memory(error) and self._take_less(list(concerned), error, batch):
                    return
            except Exception as again:  # what was launched cannot be read
                error = again
            failed = [*concerned, *(_unread(batch) if batch is not None else ())]
            for request in failed:
                self._fail(request, error)
            if batch is not None:
                batch.looks.clear()  # last: until they are told, this is where some of them are known

    def _take_less(self, concerned: list[Request], error: Exception, batch: Batch | None) -> bool:
        """Out of memory: the same work again in smaller pieces. False where there is none smaller and waiting did not
        help."""
        self.stats["out_of_memory"] += 1
        free_failed(error)
        smallest = len(concerned) == 1 and (batch is not None or self.prefill_tokens == LEAST_PREFILL)
        if smallest and not self._wait_for_memory():
            return False
        if batch is None:
            self.allowed = min(
                self.allowed, sum(len(other.rows) for other in self.batches) + max(1, len(concerned) // 2)
            )
            self.prefill_tokens = max(
                LEAST_PREFILL, min(self.prefill_tokens, sum(len(request.known()) for request in concerned)) // 2
            )
            for request in reversed(concerned):
                if request.cached is not None:
                    self.store.drop(request.cached)  # its pages are written in part
                    request.cached = None
                self.waiting.appendleft(request)
            return True
        self._read(batch)
        batch.settle()
        self.allowed = max(1, len(batch.rows) // 2)
        for request in sorted(batch.rows, key=lambda request: -request.joined)[: len(batch.rows) - self.allowed]:
            self._preempt(request)
        return True

    def _wait_for_memory(self) -> bool:
        """False where that was tried often enough since something last went well: the next in line does not wait as
        long once more."""
        waited = pause(self._attempts)
        self._attempts += waited
        return waited

    def _preempt(self, request: Request) -> None:
        """Let it wait again; it is prefilled with what it has so far. Nothing of it may be on its way."""
        self.waiting.appendleft(request)
        self._leave_batch(request)
        request.source, request.sought = request.cached, True
        self._retire(request)
        self.stats["preempted"] += 1

    def _fail(self, request: Request, error: Exception) -> None:
        if request.settled:
            return
        if not isinstance(error, EngineError):
            failure = EngineError(f"sampling failed: {in_words(error)}")
            failure.__cause__ = error
            error = failure
        try:
            self._leave_batch(request)
            self._discard(request)
        finally:  # it is in no list any more
            self._answer(request, error)

    def _leave_batch(self, request: Request) -> None:
        for batch in self.batches:
            batch.remove(request)

    def _answer(self, request: Request, result: Sample | Floats | BaseException) -> None:
        self._owed.discard(request)
        request.settled = True
        request.done(result)

    def _discard(self, request: Request) -> None:
        """Its pages, with what is in them. Where the device no longer answers, others must be told all the same."""
        cached, request.cached = request.cached, None
        if cached is None:
            return
        for scrub in (True, False):
            with contextlib.suppress(Exception):
                self.store.drop(cached, scrub=scrub)
                return

    def _leave_cancelled(self) -> None:
        for request in [request for request in self.waiting if request.cancelled or request.settled]:
            self.waiting.remove(request)
            self._owed.discard(request)
        for request in self._everyone():
            if request.cancelled and not request.settled:
                self._owed.discard(request)
                request.settled = True
                self._leave_batch(request)
                self._retire(request)

    # -- joining
    # ----------------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        while self.waiting:
            chosen = self._choose()
            if not chosen:
                return
            self._guard(self._prefill, chosen, chosen)
            for batch in self.batches if self.decoder is None else ():
                if batch.looks:  # on its own: those who were read are no longer to be prefilled
                    self._guard(self._read, batch, batch.rows, batch)

    def _choose(self) -> list[Request]:
        """Requests for one prefill pass, in order of arrival, that run in one batch. The others wait on."""
        chosen, put_off = list[Request](), list[Request]()
        try:
            self._fill(chosen, put_off)
        except BaseException:
            put_off, chosen = [*chosen, *put_off], []  # nobody may be lost
            raise
        finally:
            self.waiting.extendleft(reversed(put_off))
        return chosen

    def _fill(self, chosen: list[Request], put_off: list[Request]) -> None:
        budget, beside = self.prefill_tokens, dict[int, Weights]()
        running = sum(len(batch.rows) for batch in self.batches)
        while self.waiting and running + len(chosen) < self.allowed and budget > 0:
            request = self.waiting.popleft()
            put_off.append(request)
            known = request.known()
            source, shared = self._reusable(request, known)
            fits = fit_together([*beside.values(), request.weights]) and len(known) - shared <= budget
            if chosen and (self.deterministic or not fits):
                break
            worth = shared + WORTH_WAITING
            twins = [other for other in chosen if other.weights is request.weights]
            if worth <= request.most_shared and any(begin_alike(twin.prompt, known, worth) for twin in twins):
                continue  # the next pass can copy what this one computes
            busy = running + len(chosen)
            share = self.decoder is not None and not self.deterministic  # the plain steps read each page for one row
            there = shared // PAGE if share and source is not None and source.active else 0
            if busy and self.store.free_pages < -(-len(known) // PAGE) - there + busy:
                break  # those who run will need a page each before long
            try:
                request.cached = self.store.start(request.weights.key, known, source, shared, share)
            except (OutOfPages, MemoryError, RuntimeError) as error:
                if not isinstance(error, OutOfPages):
                    if not out_of_memory(error):
                        raise
                    self.stats["out_of_memory"] += 1
                    free_failed(error)
                if not chosen and not self._everyone() and not self._wait_for_memory():
                    self._fail(put_off.pop(), self._no_room(len(known)))
                break
            budget -= len(known) - shared
            self.stats["reused"] += shared
            if not chosen:
                beside = _weights(self._batch([request.weights]))
            beside[request.weights.key] = request.weights
            chosen.append(put_off.pop())

    def _no_room(self, tokens: int) -> EngineError:
        has, most = self.store.held * PAGE, self.store.tokens
        why = f"the cache has room for {has}" + (f" and found no memory to grow to {most}" if has < most else "")
        return EngineError(f"{tokens} tokens have no room: {why}")

    def _reusable(self, request: Request, known: Ints) -> tuple[Cached | None, int]:
        source, shared = self.store.find(request.weights.key, known)
        shared = min(shared, request.most_shared)
        if self.deterministic:
            shared -= shared % PAGE
        return (source, shared) if shared else (None, 0)

    def _prefill(self, chosen: list[Request]) -> None:
        scores = list[Tensor]()
        if len(chosen) == 1:
            request, known = chosen[0], chosen[0].known()
            at = len(self._cached(request).tokens)
            while at < len(known):
                # In whole pages where results must not depend on what was cached.
                end = min(len(known), (at // PAGE + 1) * PAGE if self.deterministic else at + self.prefill_tokens)
                last = self._run_prefill([(request, known[at:end])], scores)
                at = end
        else:
            parts = [(request, request.known()[len(self._cached(request).tokens) :]) for request in chosen]
            last = self._run_prefill(parts, scores)
        for request in chosen:
            cached = self._cached(request)
            # Bits differ between a prefilled and a decoded token, so only whole prefilled pages are reused where that
            # matters.
            cached.reusable = len(request.prompt) // PAGE * PAGE if self.deterministic else len(cached.tokens)
        asking = [request for request in chosen if request.asked is not None]
        sampling = [request for request in chosen if request.asked is None]
        looks = list[PendingTokens]()
        if asking:
            whole = torch.cat(scores)
            looks.append(
                PendingTokens.of_asked(asking, whole.cpu if self.decoder is None else self.decoder.later(whole))
            )
        if sampling:
            tokens, look = self._first_tokens(sampling, last)
            looks.append(look)
        batch = self._batch([request.weights for request in chosen])
        stay = [place for place, request in enumerate(sampling) if request.left > 1]
        first = tokens[upload(np.array(stay), tokens.device)] if stay else None
        # From here on nothing may run out of memory: they would be prefilled again.
        for request in chosen:
            request.ahead, request.joined = 1, next(self._joined)
        if first is not None:
            batch.add([sampling[place] for place in stay], first)
        batch.looks.extend(looks)

    def _first_tokens(self, sampling: list[Request], last: Tensor) -> tuple[Tensor, PendingTokens]:
        logits = self.network.logits(last)
        if self.decoder is not None:
            tokens, logprobs = self.decoder.pick(logits, sampling)
            return tokens, self.decoder.look(sampling, tokens, logprobs)
        picker = Picker([request.params for request in sampling], self.network.vocab_size, self.network.device)
        tokens, logprobs = picker.pick(logits, draws(sampling, self.network.device))
        return tokens, PendingTokens.at(sampling, tokens, logprobs)

    def _batch(self, weights: list[Weights]) -> Batch:
        """The first in which they fit."""
        for batch in self.batches:
            if fit_together([*_weights(batch).values(), *weights]):
                return batch
        if self.decoder is None:
            self.batches.append(PlainBatch(self.network, self.store, self._seats, self.deterministic))
        else:
            from moot.engine.local.gpu_batch import GpuBatch  # needs triton, as the decoder does

            self.batches.append(GpuBatch(self.decoder))
        return self.batches[-1]

    def _run_prefill(self, parts: list[tuple[Request, Ints]], scores: list[Tensor]) -> Tensor:
        """Hidden states of the last token of each part to sample from. What the others ask for goes to the scores."""
        device = self.network.device
        spans = [(request, len(self._cached(request).tokens), len(new)) for request, new in parts]
        placed = [(self._cached(request).pages[: -(-(done + new) // PAGE)], done, new) for request, done, new in spans]
        self.network.reserve(max(done + new for _, done, new in placed))
        total = sum(new for _, _, new in placed)
        ends = (np.cumsum([new for _, _, new in placed]) - 1)[[request.asked is None for request, _ in parts]]
        tokens = upload(np.concatenate([new for _, new in parts]).astype(np.int64), device)
        positions = upload(np.concatenate([np.arange(done, done + new) for _, done, new in placed]), device)
        if self.decoder is not None and self.decoder.prefills:
            attend = self.decoder.prefill(placed)
        else:
            continuations = [Continuation(upload(np.array(pages), device), done, new) for pages, done, new in placed]
            attend = prefill_attention(self.store.keys, self.store.values, continuations)
        hidden = self.network.hidden(tokens, positions, attend, self._adapter(parts))
        asked = asked_logprobs(self.network, hidden, spans)
        if asked is not None:
            scores.append(asked)
        for request, new in parts:
            cached = self._cached(request)
            cached.tokens = np.concatenate([cached.tokens, new])
        self.stats["prefilled"] += total
        return hidden[upload(ends, device)] if len(ends) else hidden[:0]

    def _adapter(self, parts: list[tuple[Request, Ints]]) -> Adapter:
        """Beside those of the rows that they will join: to seat others for one pass would be to copy them twice."""
        adapters = [request.weights.adapter for request, _ in parts]
        rows = self._batch([request.weights for request, _ in parts]).rows
        seats = self._seats if self.decoder is None else self.decoder.seats
        together = seats.seat([*adapters, *(request.weights.adapter for request in rows)])
        return together.of_sequences(adapters, [len(new) for _, new in parts], self.network.device)

    # -- one token for everyone
    # -------------------------------------------------------------------------------------------------------

    def _decode(self, batch: Batch) -> None:
        self._make_room(batch)
        if not batch.rows:
            self._read(batch)
            return
        look = batch.launch()
        batch.looks.append(look)
        for request in look.requests:
            request.ahead += 1
            if not request.left:
                batch.remove(request)  # its last token is on its way
        self.stats["decoded"] += len(look.requests)
        self.stats["steps"] += 1
        self._read(batch, 0 if self.decoder is None else 1)

    def _make_room(self, batch: Batch) -> None:
        """A page for each next token. Where there is none, the youngest request waits again."""
        for request in batch.rows_needing_page():
            while request in batch.rows:
                try:
                    if self.store.grow(self._cached(request), request.length):
                        batch.grown(request)
                    break
                except OutOfPages:
                    if any(other.looks for other in self.batches):
                        for other in self.batches:
                            self._read(other)  # some of them may be done
                        continue
                    everyone = self._everyone()
                    if len(everyone) == 1:
                        if self.store.held < self.store.count and self._wait_for_memory():
                            continue
                        raise self._no_room(request.length) from None
                    self._preempt(max(everyone, key=lambda other: other.joined))

    def _read(self, batch: Batch, unread: int = 0) -> None:
        """Look at what was launched, but for the newest. This is where the device is waited for."""
        while len(batch.looks) > unread:
            tokens, logprobs = batch.looks[0].read()
            requests = batch.looks.popleft().requests
            try:
                for request, token, logprob in zip(requests, tokens, logprobs, strict=False):  # the rest only fills
                    if not request.settled:
                        request.ahead -= 1
                        self._accept(batch, request, token, logprob)
            except Exception as error:
                for request in requests:  # those whose last token this was are known nowhere else
                    self._fail(request, error)
                raise

    def _accept(self, batch: Batch, request: Request, token: int, logprob: float | Floats) -> None:
        if not (math.isfinite(logprob) if isinstance(logprob, float) else np.isfinite(logprob).all()):
            self._fail(request, EngineError("the model's logits are not finite; its weights have probably diverged"))
            return
        if not isinstance(logprob, float):
            try:
                self._retire(request)
            finally:
                self._answer(request, logprob)
            return
        request.tokens.append(token)
        request.logprobs.append(logprob)
        try:
            stopped = request.stop(request.tokens)
        except Exception as error:  # a stop condition is the caller's, and no trouble of the others
            self._fail(request, error)
            return
        if stopped or len(request.tokens) == request.params.max_tokens:
            sample = Sample(
                tokens=np.array(request.tokens, dtype=np.int32),
                logprobs=np.array(request.logprobs, dtype=np.float32),
                stop_reason="stop" if stopped else "length",
            )
            try:
                batch.remove(request)
                self._retire(request)
            finally:
                self._answer(request, sample)

    def _retire(self, request: Request) -> None:
        if request.cached is not None:
            if not self.deterministic and request.asked is None:
                request.cached.tokens = request.known()[:-1]  # the last one's keys were never computed
                request.cached.reusable = len(request.cached.tokens)
            self.store.retire(request.cached)
            request.cached = None

    def _cached(self, request: Request) -> Cached:
        assert request.cached is not None
        return request.cached


def _weights(batch: Batch) -> dict[int, Weights]:
    return {request.weights.key: request.weights for request in batch.rows}


def _unread(batch: Batch) -> list[Request]:
    return [request for look in batch.looks for request in look.requests if not request.settled]
