"""Runs started together: do all of them end well, and what does one process for all of them save?

    python bench/together.py --model FOLDER                20 runs of 3 steps each, on arithmetic, a process for each
    python bench/together.py --model FOLDER --runs 2 --questions 4 --max-tokens 16
    python bench/together.py --compare --runs 3 --rounds 2    the same runs as seeds of one process, and as processes

Nobody is told how much memory to take. Without `--compare` the last run is in float32, for its agreement of sampler and trainer
(`optim/kl_sample_train_v2`). With it both ways take turns, and each begins first in every second round: seconds from the start to the end of the
last run, processor seconds (beside others' work three processes get three times the processor, and only these compare), and the most memory
that all processes held at once (PSS: what processes share counts once). Ends with status 1 if a run did.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

WAYS = ("one process", "a process for each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--questions", type=int, default=48, help="of each run")
    parser.add_argument("--batch-size", type=int, default=16, help="questions of a step")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--limit", type=float, default=600, help="seconds for all of them")
    parser.add_argument("--compare", action="store_true", help="one process for all, beside a process for each")
    parser.add_argument("--rounds", type=int, default=2, help="with --compare: how often each way is taken")
    parser.add_argument("--out", default="together.json")
    args = parser.parse_args()
    result = compare(args) if args.compare else together(args)
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {args.out}")
    sys.exit(any(run["status"] != 0 for run in result["runs"]))


def together(args: argparse.Namespace) -> dict[str, Any]:
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        seeds = [[seed] for seed in range(args.runs)]
        extra = [["--dtype", "fp32"] if seed == args.runs - 1 else [] for seed in range(args.runs)]
        codes = ended([start(args, Path(folder), *of_run) for of_run in zip(seeds, extra, strict=True)], args.limit)
        runs = [{"run": seed, "status": codes[seed], **told(Path(folder), seed)} for seed in range(args.runs)]
    for run in runs:
        print(f"run {run['run']}: status {run['status']}, {run['steps']} steps, KL {run['kl']}, {run['last']}")
    well = sum(run["status"] == 0 for run in runs)
    print(f"{well} of {len(runs)} runs ended well in {time.perf_counter() - begin:.0f} s")
    return {"runs": runs}


def compare(args: argparse.Namespace) -> dict[str, Any]:
    seeds = list(range(args.runs))
    groups = {WAYS[0]: [seeds], WAYS[1]: [[seed] for seed in seeds]}
    measured: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    runs = []
    for number in range(args.rounds):
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
                processes = [start(args, Path(folder), group) for group in groups[way]]
                with Memory(processes) as memory:
                    codes = ended(processes, args.limit)
                seconds = time.perf_counter() - begin
                spent = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
                measured[way].append({"seconds": seconds, "CPU seconds": cpu, "GiB": memory.most / (1 << 30)})
                told_of = [told(Path(folder), seed, group[0]) for group in groups[way] for seed in group]
            runs += [{"way": way, "status": max(codes), **run} for run in told_of]
            print(
                f"round {number}, {way}: {seconds:.0f} s, {cpu:.0f} CPU seconds, {memory.most / (1 << 30):.2f} GiB, status {codes}",
                flush=True,
            )
    for what in ("seconds", "CPU seconds", "GiB"):
        one, several = (statistics.median(round_[what] for round_ in measured[way]) for way in WAYS)
        print(f"{what}: {one:.3g} in one process, {several:.3g} in {args.runs}: {several / one:.2f} times")
    return {"measured": measured, "runs": runs}


class Memory:
    """The most that some processes held at once, looked at twice a second."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = [psutil.Process(process.pid) for process in processes]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most = 0

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            held = 0
            for process in self._processes:
                with contextlib.suppress(psutil.Error):
                    held += process.memory_full_info().pss
            self.most = max(self.most, held)


def ended(processes: list[subprocess.Popen[bytes]], limit: float) -> list[int]:
    end, codes = time.perf_counter() + limit, []
    for process in processes:
        try:
            codes.append(process.wait(max(0.1, end - time.perf_counter())))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append(process.wait())
    return codes


def start(args: argparse.Namespace, folder: Path, seeds: list[int], extra: list[str] = []) -> subprocess.Popen[bytes]:  # noqa: B006
    """One process, with a run for each of the seeds."""
    command = [sys.executable, "-m", "moot", "train", "--preset", "easy", "--model", args.model, "--task", "arithmetic"]
    command += [
        "--sections",
        "asked",
        "--no-personas",
        "--num-agents",
        "5",
        "--max-rounds",
        "2",
        "--learning-rate",
        "1e-4",
    ]
    command += ["--batch-size", str(args.batch_size), "--num-train-datapoints", str(args.questions)]
    command += [
        "--max-tokens",
        str(args.max_tokens),
        "--eval-every",
        "0",
        "--save-every",
        "0",
        "--warm-questions",
        "0",
        *extra,
    ]
    command += ["--seeds", *map(str, seeds), "--run", str(folder / "run")]
    with (folder / f"{seeds[0]}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def told(folder: Path, seed: int, log: int | None = None) -> dict[str, Any]:
    """What came of a run; `log`: the first seed of its process."""
    words = (folder / f"{seed if log is None else log}.log").read_text(errors="replace")
    metrics = folder / f"run-seed{seed}" / "metrics.jsonl"
    steps = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    found = [step["optim/kl_sample_train_v2"] for step in steps if "optim/kl_sample_train_v2" in step]
    last = [line for line in words.splitlines() if line.strip()][-1:]
    return {"steps": len(found), "kl": max(found, default=None), "last": "".join(last)[:200]}


if __name__ == "__main__":
    main()
