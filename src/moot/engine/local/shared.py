"""What trainers of one base model share: its weights, the cache, the scheduler, and the thread that computes."""

from __future__ import annotations

import copy
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from moot.engine.local.adapter import add_lora
from moot.engine.local.memory import free_failed, retry_on_oom
from moot.engine.local.models import Loaded, check_forward, load_model, pick_device, pick_dtype
from moot.engine.local.network import Adapter, Network
from moot.engine.local.pages import PageStore, make_store, page_size
from moot.engine.local.scheduler import Scheduler
from moot.engine.local.several import Weights, is_finite
from moot.engine.local.threads import Threads
from moot.engine.local.worker import Worker
from moot.engine.memory_estimate import CACHE_PART, CPU_PASS, FIRST_PART, GIB, Place, Shape, pass_bytes, pass_tokens
from moot.engine.protocol import Capabilities, in_words


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


class SharedModel:
    """The base model, and what runs it for all of its trainers. Made in the worker's thread."""

    def __init__(self, worker: Worker, loaded: Loaded, wrapped: Any, settings: LocalSettings) -> None:
        """`wrapped`: the loaded model with an adapter, behind whose like each matrix gets room for one."""
        self.worker, self.settings, self.tokenizer = worker, settings, loaded.tokenizer
        self._bare, self._keys = loaded.model, itertools.count()
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._leaving = threading.Lock()
        deterministic = settings.deterministic
        weights = sum(parameter.nbytes for parameter in loaded.model.parameters())
        network = self.network = Network(
            wrapped.base_model.model, pack=weights < _free_memory(loaded.model.device) // 4
        )
        device = network.device
        if settings.max_cache_gib is None:
            bound, first_part = retry_on_oom(lambda: _cache_bound(network))
        else:  # who names a size wants it, and hears at once if it is not there
            bound, first_part = int(settings.max_cache_gib * GIB), 1
        store, shortened = make_store(
            len(network.layers), network.kv_heads, network.head_dim, network.dtype, device, bound, first_part
        )
        self.store, self.token_budget = store, settings.token_budget or CPU_PASS
        if not settings.token_budget and device.type != "cpu":
            per_token = pass_bytes(
                Shape.of(wrapped.config), settings.lora_rank, network.dtype.itemsize, settings.gradient_checkpointing
            )
            self.token_budget = pass_tokens(_free_memory(device) - store.to_come, per_token)
        context_length, notes = min(loaded.context_length, store.tokens), (*loaded.notes, *shortened)
        if context_length < loaded.context_length:
            told = f"the cache bound shortens the context from {loaded.context_length} to {context_length} tokens"
            notes = (*notes, told)
        rows = 1 if deterministic else settings.max_batch
        decoder = None
        if device.type == "cuda" and settings.graphs and not deterministic:
            decoder, reason = _captured(network, store, rows, context_length)
            notes = (*notes, *reason)
        self.scheduler = Scheduler(network, store, rows, deterministic, decoder)
        self.before_pass: Callable[[], None] = lambda: None
        if device.type == "cpu" and not deterministic:  # other threads round otherwise
            self.before_pass = Threads().follow
        worker.serve(self.scheduler, self.before_pass)
        self.capabilities = Capabilities(
            model=loaded.name,
            context_length=context_length,
            tempered_training=True,
            stop_types=("strings", "ids") if loaded.tokenizer is not None else ("ids",),
            deterministic=deterministic,
            shares_prefixes=not deterministic,
            averages=True,
            siblings=True,
            notes=notes,
        )

    def with_adapter(self, seed: int) -> Any:
        return _with_adapter(self._bare, self.settings, seed)

    def weights(self, adapter: Adapter) -> Weights:
        return Weights(next(self._keys), adapter, is_finite(adapter))

    def join(self, user: object) -> None:
        self._users.add(user)

    def leave(self, user: object) -> bool:
        """Whether nobody uses it any more."""
        with self._leaving:
            self._users.discard(user)
            return not self._users


def load_shared(worker: Worker, name: str, settings: LocalSettings) -> tuple[SharedModel, Any]:
    """In the worker's thread. And the model with its first adapter."""
    device = pick_device(settings.device)
    dtype = pick_dtype(settings.dtype, device, settings.deterministic)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # of this thread: kernels of our own go to the current device
    loaded = load_model(name, device, dtype)
    check_forward(loaded.model, Network(loaded.model))
    wrapped = _with_adapter(loaded.model, settings, settings.seed)
    return SharedModel(worker, loaded, wrapped, settings), wrapped


def _with_adapter(model: Any, settings: LocalSettings, seed: int) -> Any:
    """A copy of the model's modules, not of its weights, with an adapter of its own."""
    held = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
    twin = copy.deepcopy(model, held)
    return add_lora(twin, settings.lora_rank, settings.lora_alpha, settings.lora_targets, seed)


def _captured(network: Network, store: PageStore, rows: int, length: int) -> tuple[Any, tuple[str, ...]]:
    try:
        from moot.engine.local.graphs import (
            GraphDecoder,
        )  # needs triton, which torch brings along only where there is a GPU

        decoder = GraphDecoder(network, store, rows, length)
        return decoder, decoder.notes
    except Exception as error:  # whatever is missing or refused: sampling works without it
        free_failed(error)
        return None, (f"decode steps could not be captured, so sampling is slower: {in_words(error)}",)


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
