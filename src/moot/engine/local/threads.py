"""How many threads compute on a CPU: as many as the others leave cores for.

OpenMP's threads spin while they wait for each other. Where another process takes a core, all of them wait for the one
that lost it, many
times in each layer, and a step takes twenty times as long. With a core less it takes hardly longer than beside nobody.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

WINDOW = 0.5
"""Seconds between two looks. Processor time is counted in hundredths of a second."""
LET_PASS = 0.25
"""Cores' worth of others' work that costs no thread: every machine does a little besides."""


@dataclass(frozen=True)
class Times:
    """Seconds: of the clock, and of the processor, by this process and by everybody on the cores that we may use."""

    clock: float
    ours: float
    everyone: float


def look() -> Times:
    cores = _cores()
    of_core = [times for number, times in enumerate(psutil.cpu_times(percpu=True)) if number in cores]
    kinds = ("user", "nice", "system", "irq", "softirq", "steal")
    everyone = sum(getattr(times, kind, 0.0) for times in of_core for kind in kinds)
    return Times(time.monotonic(), time.process_time(), everyone)


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


class Threads:
    """Of one engine. Call it in the thread that computes: OpenMP counts for each."""

    _set: tuple[int, int] | None = None
    """What was last set, and what it was before any of us: a new thread begins with the former."""

    def __init__(self, look: Callable[[], Times] = look) -> None:
        count = torch.get_num_threads()
        self.most = Threads._set[1] if Threads._set is not None and Threads._set[0] == count else count
        """What the user or torch chose; 1 where there is nothing to follow."""
        self.count, self._look = count, look
        try:
            self._last = look()
        except (OSError, RuntimeError, ValueError, NotImplementedError):  # a system that does not tell
            self.most = 1

    def follow(self) -> None:
        """A look, where the last one is old enough, and another number of threads where the others' work has
        changed."""
        if self.most <= 1 or time.monotonic() - self._last.clock < WINDOW:
            return
        now, last = self._look(), self._last
        self._last = now
        others = (now.everyone - last.everyone - (now.ours - last.ours)) / (now.clock - last.clock)
        wanted = max(1, min(self.most, len(_cores()) - math.ceil(max(0.0, others - LET_PASS))))
        if wanted != self.count:
            self.count = wanted
            torch.set_num_threads(wanted)
            Threads._set = wanted, self.most
