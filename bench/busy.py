"""What busy processes beside it cost the local engine on a CPU: threads that follow the load, and as many threads as ever.

    python bench/busy.py [--busy 2] [--sequences 16] [--seconds 10] [--rounds 3]

Both ways take turns in one process with one engine, alone and beside processes that do nothing but count, so that whatever else the machine
does falls on both. "alone" means something on an idle machine only: the first line says how idle it was.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import torch

from moot.engine.local import LocalEngine
from moot.engine.local.threads import Threads
from moot.engine.protocol import SamplingParams

WAYS = ("as ever", "following")


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(1.0 if count else 0.0)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def choose(engine: Any, threads: Threads, way: str) -> None:
    """Every turn begins with all threads: what it takes to notice the others is part of the way."""

    def change() -> None:
        engine._worker._before = threads.follow if way == "following" else lambda: None
        threads.count = threads.most
        torch.set_num_threads(threads.most)

    engine._worker.submit(change).result()


async def until(true: Callable[[], bool]) -> None:
    def wait() -> None:
        while not true():
            time.sleep(0.01)

    await asyncio.to_thread(wait)


async def rate(engine: Any, sampler: Any, sequences: int, seconds: float) -> float:
    """Tokens a second of sequences that decode together, from the first step until the time is over and a few steps are made."""
    random = np.random.default_rng(0)
    prompts = [random.integers(0, 40_000, 8) for _ in range(sequences)]
    first = engine.statistics["steps"]
    asked = [asyncio.create_task(sampler.sample(prompt, SamplingParams(max_tokens=4096, seed=1))) for prompt in prompts]
    await until(lambda: engine.statistics["steps"] > first)
    start, first, before = time.perf_counter(), engine.statistics["steps"], engine.statistics["decoded"]
    await until(lambda: time.perf_counter() - start >= seconds and engine.statistics["steps"] >= first + 4)
    made = (engine.statistics["decoded"] - before) / (time.perf_counter() - start)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    return float(made)


async def measure(args: argparse.Namespace) -> None:
    print(f"{psutil.cpu_percent(1.0):.0f}% of {psutil.cpu_count()} cores were in use by others before the start")
    engine = LocalEngine.create("smollm2-135m", device="cpu", max_cache_gib=1.0)
    threads = Threads()
    sampler = await engine.snapshot()
    await rate(engine, sampler, args.sequences, 2.0)  # warm
    rates: dict[tuple[int, str], list[float]] = {(count, way): [] for count in (0, args.busy) for way in WAYS}
    for _ in range(args.rounds):
        for (count, way), measured in rates.items():
            choose(engine, threads, way)
            with busy(count):
                measured.append(await rate(engine, sampler, args.sequences, args.seconds))
    for count in (0, args.busy):
        ever, following = (statistics.median(rates[count, way]) for way in WAYS)
        where = f"beside {count} busy processes" if count else "alone"
        print(f"{where}: {ever:.0f} tokens/s as ever, {following:.0f} following the load, {following / ever:.2f} times")
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
