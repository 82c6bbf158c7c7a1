"""The verbs of the Tinker API, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from moot.engine.local import checkpoint
from moot.engine.local.adapter import add_lora, freeze
from moot.engine.local.batch import Request, Weights
from moot.engine.local.losses import find_loss
from moot.engine.local.memory import give_back, patient
from moot.engine.local.models import check_forward, load_model, pick_device, pick_dtype
from moot.engine.local.network import Adapter, Network
from moot.engine.local.pages import PageStore, make_store, page_size
from moot.engine.local.sampling import StopCheck
from moot.engine.local.scheduler import Scheduler
from moot.engine.local.scoring import Asked
from moot.engine.local.threads import Threads
from moot.engine.local.trainer import LoraTrainer, averaged_weights, move_average
from moot.engine.local.worker import Worker
from moot.engine.memory_estimate import CACHE_PART, CPU_PASS, FIRST_PART, GIB, Place, Shape, pass_bytes, pass_tokens
from moot.engine.pending import Pending, outcome, settle
from moot.engine.protocol import (
    AdamParams,
    Capabilities,
    Datum,
    Floats,
    Ints,
    LossOutput,
    Sample,
    SamplingParams,
    StepOutput,
    check_candidates,
    check_datums,
    check_prompt,
    check_start,
    in_words,
)
from moot.errors import EngineError


@dataclass(frozen=True)
class LocalSettings:
    """How a model is loaded, sampled and trained."""

    dtype: str = "auto"
    device: str = "auto"
    lora_rank: int = 16
    lora_alpha: float = 32
    lora_targets: str | list[str] = "all-linear"
    max_cache_gib: float | None = None
    """Size of the sampler's key-value cache; None takes up to half of what a GPU has free, as it is needed, or a
    quarter of a CPU's."""
    max_batch: int = 512
    """Most sequences that decode at once."""
    token_budget: int | None = None
    """Tokens of a training micro-batch; None chooses by device."""
    deterministic: bool = False
    """Samples one request at a time in fp32: results then depend on seeds alone."""
    gradient_checkpointing: bool = False
    graphs: bool = True
    """On a GPU, starts a decode step as a whole instead of kernel by kernel."""
    seed: int = 0


class LocalEngine:
    """A `Trainer`. Make one with `LocalEngine.create`, and `close` it when done."""

    def __init__(self, worker: Worker, name: str, settings: LocalSettings) -> None:
        """In the worker's thread, which alone touches torch."""
        device = pick_device(settings.device)
        dtype = pick_dtype(settings.dtype, device, settings.deterministic)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # of this thread: kernels of our own go to the current device
        loaded = load_model(name, device, dtype)
        check_forward(loaded.model, Network(loaded.model))
        wrapped = add_lora(loaded.model, settings.lora_rank, settings.lora_alpha, settings.lora_targets, settings.seed)
        weights = sum(parameter.nbytes for parameter in loaded.model.parameters())
        network = Network(wrapped.base_model.model, pack=weights < _free_memory(device) // 4)
        if settings.max_cache_gib is None:
            bound, first_part = patient(lambda: _cache_bound(network))
        else:
            bound, first_part = (
                int(settings.max_cache_gib * GIB),
                1,
            )  # who names a size wants it, and hears at once if it is not there
        store, shortened = make_store(
            len(network.layers), network.kv_heads, network.head_dim, dtype, device, bound, first_part
        )
        token_budget = settings.token_budget or CPU_PASS
        if not settings.token_budget and device.type != "cpu":
            per_token = pass_bytes(
                Shape.of(wrapped.config), settings.lora_rank, dtype.itemsize, settings.gradient_checkpointing
            )
            token_budget = pass_tokens(_free_memory(device) - store.to_come, per_token)
        share = not settings.deterministic
        self._trainer = LoraTrainer(wrapped, network, token_budget, settings.gradient_checkpointing, share)
        self._trainer.make_room = store.shrink
        context_length, notes = min(loaded.context_length, store.tokens), (*loaded.notes, *shortened)
        if context_length < loaded.context_length:
            notes = (
                *notes,
                f"the cache bound shortens the context from {loaded.context_length} to {context_length} tokens",
            )
        rows = 1 if settings.deterministic else settings.max_batch
        decoder = None
        if device.type == "cuda" and settings.graphs and not settings.deterministic:
            decoder, reason = _captured(network, store, rows, context_length)
            notes = (*notes, *reason)
        self._scheduler = Scheduler(network, store, rows, settings.deterministic, decoder)
        if device.type == "cpu" and not settings.deterministic:  # other threads round otherwise
            self._trainer.before_pass = Threads().follow
        worker.serve(self._scheduler, self._trainer.before_pass)
        self.tokenizer = loaded.tokenizer
        self._name, self._worker, self._network, self._wrapped, self._store = name, worker, network, wrapped, store
        self._seeds = np.random.SeedSequence(settings.seed)
        self._keys = itertools.count()
        self.capabilities = Capabilities(
            model=name,
            context_length=context_length,
            tempered_training=True,
            stop_types=("strings", "ids") if loaded.tokenizer is not None else ("ids",),
            deterministic=settings.deterministic,
            shares_prefixes=share,
            averages=True,
            notes=notes,
        )

    @classmethod
    def create(cls, model: str = "smollm2-135m", **settings: Any) -> LocalEngine:
        """Load `model` (a hub id, a directory, or `smollm2-135m`); `settings` are the fields of LocalSettings."""
        given = LocalSettings(**settings)
        worker = Worker()
        try:
            return worker.submit(lambda: cls(worker, model, given)).result()
        except BaseException:
            worker.close()
            raise

    @property
    def statistics(self) -> dict[str, int]:
        """Tokens prefilled, reused and decoded so far; steps, preemptions, evictions, how often memory ran out and how
        often there was
        none for a larger cache."""
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
        return self._worker.submit(lambda: self._trainer.run(items, function, backward=False))

    def forward_backward(
        self, datums: Sequence[Datum], loss: str, loss_config: dict[str, float] | None = None
    ) -> Pending[LossOutput]:
        """Logprobs are 0 where the mask is 0: no logits are computed there."""
        function, items = find_loss(loss, loss_config), self._checked(datums)
        return self._worker.submit(lambda: self._trainer.run(items, function, backward=True))

    def optim_step(self, params: AdamParams) -> Pending[StepOutput]:
        return self._worker.submit(lambda: self._trainer.step(params))

    def save_state(self, path: str) -> Pending[str]:
        return self._worker.submit(lambda: self._save(path, with_optimizer=True))

    def load_state(self, path: str, optimizer: bool = True) -> Pending[None]:
        return self._worker.submit(lambda: checkpoint.load(Path(path), self._trainer, self._about(), optimizer))

    def snapshot(self, path: str | None = None) -> Pending[LocalSampler]:
        def make() -> LocalSampler:
            if path is not None:
                self._save(path, with_optimizer=False)
            return LocalSampler(self, Weights(next(self._keys), self._frozen()))

        return self._worker.submit(make)

    def base(self) -> Pending[LocalSampler]:
        """The model without its adapter."""
        return self._worker.submit(lambda: LocalSampler(self, Weights(next(self._keys), ())))

    def average(self, decay: float) -> Pending[None]:
        """`decay` of the average stays, the rest is the weights of now. The first call starts it."""
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be from 0 to below 1, got {decay}")
        return self._worker.submit(lambda: move_average(self._trainer, decay))

    def averaged(self) -> Pending[LocalSampler]:
        def make() -> LocalSampler:
            return LocalSampler(self, Weights(next(self._keys), averaged_weights(self._trainer, self._frozen)))

        return self._worker.submit(make)

    async def close(self) -> None:
        """What has not begun fails with EngineError, and so does a training pass that is under way."""
        await asyncio.to_thread(self.shut)

    def shut(self) -> None:
        self._worker.close()

    def _frozen(self) -> Adapter:
        return patient(lambda: freeze(self._wrapped, self._network.dtype), make_room=self._store.shrink)

    def _save(self, path: str, with_optimizer: bool) -> str:
        target = Path(path).absolute()
        checkpoint.save(target, self._trainer, self._about(), with_optimizer)
        return str(target)

    def _about(self) -> dict[str, Any]:
        config = self._wrapped.peft_config["default"]
        targets = sorted(config.target_modules) if not isinstance(config.target_modules, str) else config.target_modules
        return {"model": self._name, "lora_rank": config.r, "lora_alpha": config.lora_alpha, "lora_targets": targets}

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
        check_candidates(candidates)
        items = self._prompt(prompt, max(map(len, candidates), default=0))
        ends: dict[tuple[int, ...], list[int]] = {}
        for candidate in candidates:
            *body, end = self._prompt(candidate, 0).tolist()
            ends.setdefault(tuple(body), []).append(end)
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
        engine._scheduler.add(requests)
        try:
            return [await outcome(future) for future in futures]
        finally:
            for request in requests:
                request.cancelled = True  # of no effect on those that are done

    def _prompt(self, tokens: Sequence[int] | Ints, max_tokens: int) -> Ints:
        array = check_prompt(tokens, max_tokens, self._engine.capabilities.context_length)
        size = self._engine._network.vocab_size
        if array.min() < 0 or array.max() >= size:
            raise ValueError(f"token ids must lie in [0, {size}), got {array.min()} to {array.max()}")
        return array


def _captured(network: Network, store: PageStore, rows: int, length: int) -> tuple[Any, tuple[str, ...]]:
    try:
        from moot.engine.local.graphs import (
            GraphDecoder,
        )  # needs triton, which torch brings along only where there is a GPU

        decoder = GraphDecoder(network, store, rows, length)
        return decoder, decoder.notes
    except Exception as error:  # whatever is missing or refused: sampling works without it
        give_back(error)
        return None, (f"decode steps could not be captured, so sampling is slower: {in_words(error)}",)


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


def _cache_bound(network: Network) -> tuple[int, int]:
    """Of what is free, on a GPU taken as it is needed; on a CPU memory is taken when it is written. And
    `first_part`."""
    free = _free_memory(network.device)
    least = 2 * page_size(len(network.layers), network.kv_heads, network.head_dim, network.dtype)
    if free < 4 * least:
        raise torch.OutOfMemoryError(
            f"{free / (1 << 20):.3g} MiB are free, and a cache takes at least {least / (1 << 20):.3g}"
        )
    cpu = network.device.type == "cpu"
    return free // CACHE_PART["cpu" if cpu else "cuda"], 1 if cpu else FIRST_PART


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what torch keeps for later is free too
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 8 * GIB


def place(dtype: str, device: str, deterministic: bool) -> Place:
    """Where an engine with these settings would run, for a forecast of what it takes there."""
    found = pick_device(device)
    kind: Literal["cpu", "cuda"] = "cpu" if found.type == "cpu" else "cuda"
    return Place(kind, pick_dtype(dtype, found, deterministic).itemsize, _free_memory(found))
