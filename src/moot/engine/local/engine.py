"""The verbs of the Tinker API, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from moot.engine.local import checkpoint
from moot.engine.local.adapter import freeze
from moot.engine.local.batch import Request
from moot.engine.local.losses import find_loss
from moot.engine.local.memory import retry_on_oom
from moot.engine.local.network import Adapter
from moot.engine.local.pages import PageStore
from moot.engine.local.sampling import StopCheck
from moot.engine.local.scoring import Asked
from moot.engine.local.several import Weights
from moot.engine.local.shared import LocalSettings, SharedModel, load_shared
from moot.engine.local.trainer import LoraTrainer, averaged_weights, move_average
from moot.engine.local.worker import Worker
from moot.engine.pending import Pending, outcome, settle
from moot.engine.protocol import (
    AdamParams,
    Datum,
    Floats,
    Ints,
    LossOutput,
    Sample,
    SamplingParams,
    StepOutput,
    by_beginning,
    check_datums,
    check_prompt,
    check_start,
)
from moot.errors import EngineError

T = TypeVar("T")


class LocalEngine:
    """A `Trainer`. Make one with `LocalEngine.create`, and `close` it when done."""

    def __init__(self, shared: SharedModel, wrapped: Any, seed: int) -> None:
        """In the worker's thread, which alone touches torch. `wrapped`: the shared model with an adapter of our own."""
        self._shared, self._wrapped = shared, wrapped
        self._worker, self._network, self._store = shared.worker, shared.network, shared.store
        self._scheduler, self.tokenizer, self.capabilities = shared.scheduler, shared.tokenizer, shared.capabilities
        checkpointing, share = shared.settings.gradient_checkpointing, shared.capabilities.shares_prefixes
        self._trainer = LoraTrainer(wrapped, shared.network, shared.token_budget, checkpointing, share)
        self._trainer.make_room, self._trainer.before_pass = shared.store.shrink, shared.before_pass
        self._seeds = np.random.SeedSequence(seed)
        self._closed, self._at_work = False, threading.Lock()
        self._requests: set[Request] = set()
        """Those that are not answered."""
        shared.join(self)

    @classmethod
    def create(cls, model: str = "smollm2-135m", **settings: Any) -> LocalEngine:
        """Load `model` (a hub id, a directory, or `smollm2-135m`); `settings` are the fields of LocalSettings."""
        given = LocalSettings(**settings)
        worker = Worker()
        try:
            return worker.submit(lambda: cls(*load_shared(worker, model, given), given.seed)).result()
        except BaseException:
            worker.close()
            raise

    def sibling(self, seed: int) -> LocalEngine:
        def make() -> LocalEngine:
            return LocalEngine(self._shared, self._shared.with_adapter(seed), seed)

        return self._submit(make).result()

    @property
    def statistics(self) -> dict[str, int]:
        """Tokens prefilled, reused and decoded so far; steps, preemptions, evictions, how often memory ran out and how
        often there was none for a larger cache."""
        return {**self._scheduler.stats, "evictions": self._store.evictions, "refused": self._store.refused}

    @property
    def faults(self) -> dict[str, int]:
        """How often memory ran out so far, in training, in sampling and when the cache was to grow. Each time it went
        on with less."""
        return {
            "out_of_memory": self._trainer.out_of_memory + self._scheduler.stats["out_of_memory"] + self._store.refused
        }

    # -- training
    # ----------------------------------------------------------------------------------------------------------------

    def forward(self, datums: Sequence[Datum], loss: str = "cross_entropy") -> Pending[LossOutput]:
        """Logprobs are 0 where the mask is 0: no logits are computed there."""
        function, items = find_loss(loss, None), self._checked(datums)
        return self._submit(lambda: self._trainer.run(items, function, backward=False))

    def forward_backward(
        self, datums: Sequence[Datum], loss: str, loss_config: dict[str, float] | None = None
    ) -> Pending[LossOutput]:
        """Logprobs are 0 where the mask is 0: no logits are computed there."""
        function, items = find_loss(loss, loss_config), self._checked(datums)
        return self._submit(lambda: self._trainer.run(items, function, backward=True))

    def optim_step(self, params: AdamParams) -> Pending[StepOutput]:
        return self._submit(lambda: self._trainer.step(params))

    def save_state(self, path: str) -> Pending[str]:
        return self._submit(lambda: self._save(path, with_optimizer=True))

    def load_state(self, path: str, optimizer: bool = True) -> Pending[None]:
        return self._submit(lambda: checkpoint.load(Path(path), self._trainer, self._about(), optimizer))

    def snapshot(self, path: str | None = None) -> Pending[LocalSampler]:
        def make() -> LocalSampler:
            if path is not None:
                self._save(path, with_optimizer=False)
            return LocalSampler(self, self._shared.weights(self._frozen()))

        return self._submit(make)

    def base(self) -> Pending[LocalSampler]:
        """The model without its adapter."""
        return self._submit(lambda: LocalSampler(self, self._shared.weights(())))

    def average(self, decay: float) -> Pending[None]:
        """`decay` of the average stays, the rest is the weights of now. The first call starts it."""
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be from 0 to below 1, got {decay}")
        return self._submit(lambda: move_average(self._trainer, decay))

    def averaged(self) -> Pending[LocalSampler]:
        def make() -> LocalSampler:
            return LocalSampler(self, self._shared.weights(averaged_weights(self._trainer, self._frozen)))

        return self._submit(make)

    async def close(self) -> None:
        """What has not begun fails with EngineError, and so does a training pass that is under way."""
        await asyncio.to_thread(self.shut)

    def shut(self) -> None:
        self._closed = True
        if self._shared.leave(self):
            self._worker.close()
            return
        for request in list(self._requests):
            request.cancelled = True
            request.done(EngineError("the local engine was closed"))
        with self._at_work:  # until our pass under way has ended
            pass

    def _submit(self, job: Callable[[], T]) -> Pending[T]:
        if self._closed:
            raise EngineError("the local engine is closed")

        def work() -> T:
            with self._at_work:
                if self._closed:
                    raise EngineError("the local engine was closed before this ran")
                return job()

        return self._worker.submit(work, lambda: self._closed)

    def _frozen(self) -> Adapter:
        return retry_on_oom(lambda: freeze(self._wrapped, self._network.dtype), make_room=self._store.shrink)

    def _save(self, path: str, with_optimizer: bool) -> str:
        target = Path(path).absolute()
        checkpoint.save(target, self._trainer, self._about(), with_optimizer)
        return str(target)

    def _about(self) -> dict[str, Any]:
        config = self._wrapped.peft_config["default"]
        targets = sorted(config.target_modules) if not isinstance(config.target_modules, str) else config.target_modules
        return {
            "model": self.capabilities.model,
            "lora_rank": config.r,
            "lora_alpha": config.lora_alpha,
            "lora_targets": targets,
        }

    def _checked(self, datums: Sequence[Datum]) -> list[Datum]:
        check_datums(datums, self.capabilities.context_length)
        vocabulary = self._network.vocab_size
        for number, datum in enumerate(datums):
            if not datum.temperature > 0:
                raise ValueError(f"datum {number} has temperature {datum.temperature}; training needs one above 0")
            for name in ("tokens", "targets"):
                array = getattr(datum, name)
                if array.min() < 0 or array.max() >= vocabulary:
                    raise ValueError(
                        f"datum {number}: {name} must lie in [0, {vocabulary}), got {array.min()} to {array.max()}"
                    )
        return list(datums)

    # -- sampling, for LocalSampler
    # ---------------------------------------------------------------------------------------------------

    def _generators(self, seed: int | None, count: int) -> list[np.random.Generator]:
        """One stream for each sample of a call. Without a seed, the engine's own sequence continues."""
        parent = (
            self._seeds.spawn(1)[0] if seed is None else np.random.SeedSequence(abs(seed), spawn_key=(int(seed < 0),))
        )
        return [np.random.Generator(np.random.Philox(child)) for child in parent.spawn(count)]


_NO_STOP, _NO_DRAWS = StopCheck((), None), np.random.default_rng(0)
"""Of a request that samples nothing."""


class LocalSampler:
    """A `Sampler`: the adapter as it was when this was made. Base weights are shared, so one costs little."""

    def __init__(self, engine: LocalEngine, weights: Weights) -> None:
        self._engine, self._weights = engine, weights
        weakref.finalize(self, _forget, engine._worker, engine._store, weights.key).atexit = False

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        engine = self._engine
        _check_params(params, num_samples)
        tokens = self._prompt(prompt, params.max_tokens)
        stop = StopCheck(params.stop, engine.tokenizer)
        generators = engine._generators(params.seed, num_samples)
        make = partial(Request, self._weights, tokens, params, stop)
        return await self._answers([partial(make, random) for random in generators])

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Floats:
        items, first = self._prompt(tokens, 0), check_start(start)
        out = np.full(len(items), np.nan, dtype=np.float32)
        if first < len(items):
            (out[first:],) = await self._asked([Asked.tail(items, first)], temperature)
        return out

    async def score_continuations(
        self, prompt: Sequence[int] | Ints, candidates: Sequence[Sequence[int]], temperature: float = 1.0
    ) -> list[float]:
        """Candidates that differ in their last token alone are one request: those of one token share one position."""
        ends = by_beginning(candidates)
        items = self._prompt(prompt, max(map(len, candidates), default=0))
        for candidate in candidates:
            self._prompt(candidate, 0)
        scores = await self._asked([Asked.ends(items, body, last) for body, last in ends.items()], temperature)
        by_candidate = {
            (*body, end): float(score[: len(body)].sum() + score[len(body) + place])
            for (body, last), score in zip(ends.items(), scores, strict=True)
            for place, end in enumerate(last)
        }
        return [by_candidate[tuple(map(int, candidate))] for candidate in candidates]

    async def _asked(self, asked: Sequence[tuple[Ints, Asked]], temperature: float) -> list[Floats]:
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0 for logprobs, got {temperature}")
        make = partial(Request, self._weights, params=SamplingParams(0, temperature), stop=_NO_STOP, random=_NO_DRAWS)
        return await self._answers([partial(make, prompt=prompt, asked=wanted) for prompt, wanted in asked])

    async def _answers(self, makers: Sequence[Callable[..., Request]]) -> list[Any]:
        """Of requests that lack nothing but whom to tell. Those who wait no longer are not answered."""
        engine, futures = self._engine, [Future[Any]() for _ in makers]
        requests = [make(done=partial(settle, future)) for make, future in zip(makers, futures, strict=True)]
        engine._requests.update(requests)
        try:
            if engine._closed:
                raise EngineError("the local engine is closed")
            engine._scheduler.add(requests)
            return [await outcome(future) for future in futures]
        finally:
            engine._requests.difference_update(requests)
            for request in requests:
                request.cancelled = True  # of no effect on those that are done

    def _prompt(self, tokens: Sequence[int] | Ints, max_tokens: int) -> Ints:
        array = check_prompt(tokens, max_tokens, self._engine.capabilities.context_length)
        size = self._engine._network.vocab_size
        if array.min() < 0 or array.max() >= size:
            raise ValueError(f"token ids must lie in [0, {size}), got {array.min()} to {array.max()}")
        return array


def _forget(worker: Worker, store: PageStore, key: int) -> None:
    with contextlib.suppress(EngineError):  # closed: there is nothing left to free
        worker.submit(lambda: store.forget(key))


def _check_params(params: SamplingParams, num_samples: int) -> None:
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")
    if params.max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {params.max_tokens}")
    if not params.temperature >= 0:
        raise ValueError(f"temperature must be 0 (greedy) or more, got {params.temperature}")
    if not 0 < params.top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {params.top_p}")
    if params.top_k < 1 and params.top_k != -1:
        raise ValueError(f"top_k must be at least 1, or -1 for off, got {params.top_k}")
