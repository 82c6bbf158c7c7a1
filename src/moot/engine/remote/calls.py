"""Single calls to the SDK, with what servers are particular about."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import httpx

from moot.engine.protocol import AdamParams, in_words
from moot.engine.remote.wire import UNCERTAIN, pause
from moot.errors import EngineError

T = TypeVar("T")

TRIES = 10
KEPT_S = 24 * 3600
"""How long the server keeps weights that were only saved to sample from, where it keeps count of time."""


async def retry_uncertain(work: Callable[[], Awaitable[T]]) -> T:
    """For work that may be done twice: again, while it is in doubt whether it was done."""
    for attempt in range(TRIES - 1):
        try:
            return await work()
        except Exception as error:
            if str(UNCERTAIN) not in str(error):
                raise
        await asyncio.sleep(pause(attempt))
    return await work()


async def await_server(base_url: str, patience_s: float) -> None:
    """Until something answers, before the SDK is asked, which is patient for minutes and cannot be stopped."""
    started = time.monotonic()
    async with httpx.AsyncClient(base_url=base_url, timeout=10.0) as plain:
        for attempt in itertools.count():
            try:
                (await plain.get("/api/v1/healthz")).raise_for_status()
                return
            except Exception as error:
                if time.monotonic() - started > patience_s:
                    told = f"no server that speaks the Tinker API answers at {base_url} ({in_words(error)})"
                    raise EngineError(f"{told}; start one, or mend --base-url") from None
            await asyncio.sleep(pause(attempt))


def fresh_name(path: str) -> str:
    """Names are the server's, each taken once; letters, digits and dashes are what every server allows."""
    stem = "".join(c if c.isascii() and c.isalnum() else "-" for c in path.rstrip("/").rsplit("/", 1)[-1])
    return f"{stem[-40:] or 'state'}-{uuid.uuid4().hex[:12]}"


def load(client: Any, path: str, optimizer: bool = True) -> Awaitable[None]:
    """Some servers keep a half-made gradient through a load: a step of size 0 uses it up, and the load undoes that."""
    from tinker import types

    emptied = client.optim_step(types.AdamParams(learning_rate=0.0))
    loaded = client.load_state_with_optimizer(path) if optimizer else client.load_state(path)

    async def both() -> None:
        await asyncio.gather(emptied, loaded)

    return both()


def save_weights(client: Any, path: str | None = None) -> Awaitable[Any]:
    """For a sampler; with a path, for good."""
    kept_s = None if path else KEPT_S
    saving: Awaitable[Any] = client.save_weights_for_sampler(fresh_name(path or "snapshot"), ttl_seconds=kept_s)
    return saving


def adam(params: AdamParams) -> Any:
    from tinker import types

    return types.AdamParams(**asdict(params))


def gradient_norm(metrics: Mapping[str, float]) -> float | None:
    """Under whatever name the server gives it."""
    for name, value in metrics.items():
        plain = name.lower()
        if "grad" in plain and ("norm" in plain or "l2" in plain) and "mhc" not in plain:
            return float(value)
    return None
