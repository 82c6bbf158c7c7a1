"""Stress that is short in the quick tier and as long as MOOT_STRESS_SECONDS asks elsewhere, and waits that fail instead of hanging."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
SECONDS = float(os.environ.get("MOOT_STRESS_SECONDS", "0"))
PATIENCE_S = 60.0
"""Far more than anything here takes on a busy machine: who waits longer waits for ever."""


def seeds(least: int) -> Iterator[int]:
    """At least so many, then on until the time asked for is over."""
    started = time.monotonic()
    seed = int(os.environ.get("MOOT_STRESS_SEED", "0"))
    last = seed + least
    while seed < last or time.monotonic() - started < SECONDS:
        yield seed
        seed += 1


async def answered(work: Awaitable[T], what: str) -> T:
    """The outcome. Whoever is never answered fails the test with its name."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
    if not done:
        raise AssertionError(f"lost: {what} has waited {PATIENCE_S:.0f} s")
    return task.result()


@contextmanager
def quick_switches() -> Iterator[None]:
    """Threads give way to each other as often as they can, so that narrow windows are met."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def tell(name: str, counts: Counter[str]) -> None:
    """For a long run, with `-s`."""
    if SECONDS:
        print(f"\n{name}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
