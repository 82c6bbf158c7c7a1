"""What a client costs: many debates at once against a simulated server of a given latency, in another process.

    python bench/capacity.py                      10, 100, 1,000 and 10,000 debates; a table, and a timeline of 1,000 in docs/pictures
    python bench/capacity.py --debates 1000       one of them

Real parts: the protocol, rendering with SmolLM2's tokenizer, the remote engine, the tinker SDK, HTTP on loopback. Not real: the server
says turns that were written beforehand, each `--latency` seconds after it was asked, and never runs out of room.

Figures. `own` is processor time of this process a turn, less what the SDK alone needs for the same calls (measured in the same run):
that is moot's part, prompts and parsing and bookkeeping. `ideal` is how long the rounds would take if the client cost nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("TINKER_TELEMETRY", "0")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import httpx
import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from moot.debate.protocols import V2
from moot.debate.state import Debate
from moot.engine.protocol import AdamParams, Datum, Sample, SamplingParams, Scene
from moot.engine.remote import Findings, RemoteEngine
from moot.engine.scripted import well_formed
from moot.rl.rollout import rollout
from moot.tasks import load
from moot.tokens.rendering import Rendering

AGENTS, ROUNDS, CHUNKS = 3, 2, 8
FOUND = Findings("", "simulated", 1 << 20, ("importance_sampling",), ("ids",), "sum", True, True)


@dataclass
class Watch:
    """What this process holds while a run goes on, looked at ten times a second."""

    sockets: int = 0
    memory: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watch:
        self._own = psutil.Process()
        self._before = self._own.memory_info().rss
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self.stop.wait(0.1):
            links = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
            self.sockets = max(self.sockets, sum("socket:" in link for link in links))
            self.memory = max(self.memory, self._own.memory_info().rss - self._before)

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join()


class Timed:
    """A sampler that notes when each turn was asked for and when it came."""

    def __init__(self, sampler: Any) -> None:
        self._sampler, self.spans = sampler, []

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        began = time.perf_counter()
        found: list[Sample] = await self._sampler.sample(prompt, params, num_samples)
        self.spans.append((began, time.perf_counter(), len(prompt)))
        return found


def server(latency: float, tokenizer: Any, stop_id: int) -> tuple[subprocess.Popen[str], str]:
    import random

    turns = []
    for i in range(200):
        chance = random.Random(i)
        scene = Scene(agent=0, eligible=(1, 2))
        turns.append([*tokenizer.encode(well_formed(scene, chance), add_special_tokens=False), stop_id])
    file = Path(tempfile.mkstemp(suffix=".json")[1])
    file.write_text(json.dumps(turns))
    command = [sys.executable, "-m", "support.simulated_server", "--latency", str(latency), "--canned", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT / "tests")
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{process.stdout.readline().strip()}"


def connect(url: str, tokenizer: Any) -> Any:
    return RemoteEngine.create("table", base_url=url, api_key="tml-bench", tokenizer=tokenizer, findings=FOUND)


def rounds_of(count: int) -> int:
    """One round is enough to see what ten thousand cost, and takes half as long."""
    return ROUNDS if count <= 1000 else 1


async def play(engine: Any, rendering: Rendering, count: int) -> tuple[dict[str, float], list[Any]]:
    task = load("arithmetic", 0, 1)
    debates = [Debate(task.train(i), AGENTS, rounds_of(count), V2.rules) for i in range(count)]
    sampler = Timed(await engine.snapshot())
    before, started, worked = dict(engine.statistics), time.perf_counter(), time.process_time()
    with Watch() as watch:
        played = await rollout(
            debates, sampler, rendering, SamplingParams(max_tokens=512), concurrency=count, tempered=False
        )
    wall, cpu = time.perf_counter() - started, time.process_time() - worked
    failed = [item.error for item in played if item.error]
    assert not failed, failed[0]
    after, turns = engine.statistics, count * AGENTS * rounds_of(count)
    delta = {name: after.get(name, 0) - before.get(name, 0) for name in ("requests", "bytes_sent", "bytes_received")}
    return {
        "debates": count, "turns": turns, "wall_s": wall, "cpu_s": cpu, "cpu_ms_a_turn": 1000 * cpu / turns, "sockets": watch.sockets,
        "memory_mib": watch.memory / 2**20, "kib_a_debate": (delta["bytes_sent"] + delta["bytes_received"]) / 1024 / count,
        "requests_a_turn": delta["requests"] / turns, "turns_a_second": turns / wall,
    }, sampler.spans  # fmt: skip


async def floor(engine: Any, spans: list[Any], count: int) -> float:
    """Processor milliseconds a turn of the SDK alone: as many calls with prompts as long, in rounds as wide."""
    from tinker import types

    client = (await engine.snapshot()).client
    random = np.random.default_rng(0)
    lengths = [length for _, _, length in spans]
    params = types.SamplingParams(max_tokens=512, stop=[2], seed=1)
    prompts = [types.ModelInput.from_ints(random.integers(0, 40000, length).tolist()) for length in lengths]
    started, wide = time.process_time(), count * AGENTS
    for at in range(0, len(prompts), wide):
        await asyncio.gather(
            *(asyncio.wrap_future(client.sample(prompt, 1, params)) for prompt in prompts[at : at + wide])
        )
    return 1000 * (time.process_time() - started) / len(prompts)


async def chunks(engine: Any, url: str) -> dict[str, tuple[list[tuple[float, float]], list[float]]]:
    """Eight chunks of training, enqueued at once and one after the other: what the server did when, and how long it had nothing to do."""
    random = np.random.default_rng(0)

    def datum() -> Datum:
        tokens = random.integers(0, 60, 1201).astype(np.int32)
        ones = np.ones(1200, np.float32)
        return Datum(tokens[:-1], tokens[1:], -ones, ones, ones)

    batches = [[datum() for _ in range(6)] for _ in range(CHUNKS)]
    found = {}
    for name in ("enqueued", "awaited"):
        waiting: list[Any] = []
        for batch in batches:
            pair = (engine.forward_backward(batch, "importance_sampling"), engine.optim_step(AdamParams(1e-4)))
            if name == "awaited":
                await pair[0], await pair[1]
            waiting += pair
        for item in waiting:
            await item
        async with httpx.AsyncClient() as plain:
            done = (await plain.get(f"{url}/api/v1/applied")).json()[-2 * CHUNKS :]
        start = done[0][2]
        spans = [(a[2] - start, b[3] - start) for a, b in zip(done[::2], done[1::2], strict=True)]
        found[name] = (spans, [b[0] - a[1] for a, b in pairwise(spans)])
    return found


def draw(spans: list[Any], marks: dict[str, Any], latency: float, path: Path) -> None:
    """Turns in flight over time, and when each chunk's result came. Plain SVG: it is four lines and some text."""
    start = min(began for began, _, _ in spans)
    end = max(came for _, came, _ in spans) - start
    width, height, left = 760, 190, 60
    times = np.linspace(0, end, 380)
    began, came = (np.sort([span[i] - start for span in spans]) for i in (0, 1))
    flying = np.searchsorted(began, times, "right") - np.searchsorted(came, times, "right")
    asked = np.searchsorted(began, times, "right")
    top = max(1, int(asked.max()))
    x = lambda t: left + (width - left - 20) * t / end  # noqa: E731
    y = lambda n: 30 + (height - 60) * (1 - n / top)  # noqa: E731
    line = lambda values: " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in zip(times, values, strict=True))  # noqa: E731
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 130}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height + 130}" fill="white"/>',
        f'<text x="{left}" y="16">{len(spans) // (AGENTS * ROUNDS):,} debates, {end:.1f} s (latency {1000 * latency:.0f} ms)</text>',
        f'<polyline fill="none" stroke="#888" points="{line(asked)}"/>',
        f'<polyline fill="none" stroke="#c33" stroke-width="2" points="{line(flying)}"/>',
        f'<text x="{left}" y="{height - 8}" fill="#c33">in flight (most {int(flying.max()):,})</text>',
        f'<text x="{left + 200}" y="{height - 8}" fill="#888">asked for in all ({top:,})</text>',
        f'<text x="{width - 60}" y="{height - 8}">{end:.1f} s</text>',
        f'<text x="8" y="{y(top) + 4:.0f}">{top:,}</text><text x="8" y="{y(0) + 4:.0f}">0</text>',
    ]
    longest = max(worked[-1][1] for worked, _ in marks.values())
    for row, (name, words) in enumerate(
        (("enqueued", "all chunks enqueued at once"), ("awaited", "each awaited before the next"))
    ):
        at, (worked, idle) = height + 24 + 46 * row, marks[name]
        said = f"{words}: {CHUNKS} chunks in {worked[-1][1]:.2f} s, the server idle {1000 * float(np.median(idle)):.0f} ms between two"
        parts.append(f'<text x="{left}" y="{at}">{said}</text>')
        for begin, end_ in worked:
            a, b = (left + (width - left - 20) * t / longest for t in (begin, end_))
            parts.append(f'<rect x="{a:.1f}" y="{at + 6}" width="{max(1.0, b - a):.1f}" height="16" fill="#36c"/>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debates", type=int, nargs="*", default=[10, 100, 1000, 10000])
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "pictures" / "capacity.svg")
    given = parser.parse_args()
    from transformers import AutoTokenizer

    from moot.engine.local.smollm import find_smollm

    console = Console(width=140)
    tokenizer = AutoTokenizer.from_pretrained(find_smollm()[0])
    rendering = Rendering(tokenizer, "smollm2-135m")
    process, url = server(given.latency, tokenizer, rendering.stop_ids[0])
    heads = (
        "debates", "rounds", "turns", "wall s", "ideal s", "turns/s", "CPU ms/turn", "of it SDK", "own", "RSS +MiB", "sockets",
        "KiB/debate", "requests/turn",
    )  # fmt: skip
    table = Table(*heads, box=None, pad_edge=False)
    try:
        engine = connect(url, tokenizer)
        asyncio.run(play(engine, rendering, 10))  # imports and first connections
        for count in given.debates:
            row, spans = asyncio.run(play(engine, rendering, count))
            if count <= 1000:  # beyond, it would only take longer to say the same
                sdk = asyncio.run(floor(engine, spans, count))
            waits = np.array([came - began for began, came, _ in spans])
            ideal = rounds_of(count) * given.latency
            table.add_row(
                f"{count:,}", f"{rounds_of(count)}", f"{row['turns']:,}", f"{row['wall_s']:.2f}", f"{ideal:.2f}",
                f"{row['turns_a_second']:.0f}", f"{row['cpu_ms_a_turn']:.2f}", f"{sdk:.2f}", f"{row['cpu_ms_a_turn'] - sdk:.2f}",
                f"{row['memory_mib']:.0f}", f"{row['sockets']}", f"{row['kib_a_debate']:.0f}", f"{row['requests_a_turn']:.2f}",
            )  # fmt: skip
            console.print(
                f"{count:,} debates: a turn took {np.median(waits):.3f} s (median), {np.quantile(waits, 0.99):.3f} s (99th percentile)"
            )
            if count == 1000:
                marks = asyncio.run(chunks(engine, url))
                draw(spans, marks, given.latency, given.picture)
                for name, (worked, idle) in marks.items():
                    console.print(
                        f"{CHUNKS} training chunks, {name}: {worked[-1][1]:.2f} s on the server, with nothing to do between two "
                        f"for {1000 * np.median(idle):.1f} ms in the median, {1000 * max(idle):.1f} ms at most"
                    )
                console.print(f"Drawn in {given.picture.name}")
        asyncio.run(engine.close())
    finally:
        process.terminate()
        process.wait(10)
    console.print(table)


if __name__ == "__main__":
    main()
