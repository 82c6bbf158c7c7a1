"""Runs started together: do all of them end well, and what does one process for all of them save?

    python bench/together.py --model FOLDER                20 runs of 3 steps each, on arithmetic, a process for each
    python bench/together.py --model FOLDER --runs 2 --questions 4 --max-tokens 16
    python bench/together.py --compare --runs 3 --rounds 2    the same runs as seeds of one process, and as processes
    python bench/together.py --compare --runs 3 -- --task countdown --num-agents 8    what follows `--` is given to `moot train`

Nobody is told how much memory to take. Without `--compare` the last run is in float32, for its agreement of sampler and trainer
(`optim/kl_sample_train_v2`). With it both ways take turns, and each begins first in every second round: seconds from the start to the end of the
last run, tokens per second sampled from when every run has made its first step (models are loaded and kernels compiled by then), processor
seconds (beside others' work three processes get three times the processor, and only these compare), and the most memory that all processes
held at once (PSS: what processes share counts once; on a GPU what it had in use beyond the start, whoever else uses it). Ends with status 1
if a run did.
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
    parser.add_argument("options", nargs="*", help="after --: options of moot train")
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
                with Watch(processes, Path(folder), args.runs) as watch:
                    codes = ended(processes, args.limit)
                end = time.perf_counter()
                seconds = end - begin
                spent = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
                told_of = [told(Path(folder), seed, group[0]) for group in groups[way] for seed in group]
                rate = (sum(run["sampled"] for run in told_of) - watch.sampled) / (end - watch.begun)
                numbers = {"seconds": seconds, "tokens/s": rate, "CPU seconds": cpu, "GiB": watch.most / (1 << 30)}
                measured[way].append({**numbers, "GPU GiB": watch.most_of_gpu / (1 << 30)})
            runs += [{"way": way, "status": max(codes), **run} for run in told_of]
            print(
                f"round {number}, {way}: "
                + ", ".join(f"{what} {value:.4g}" for what, value in measured[way][-1].items())
                + f", status {codes}",
                flush=True,
            )
    for what in measured[WAYS[0]][0]:
        one, several = (statistics.median(round_[what] for round_ in measured[way]) for way in WAYS)
        if one:
            print(f"{what}: {one:.4g} in one process, {several:.4g} in {args.runs}: {several / one:.2f} times")
    return {"measured": measured, "runs": runs}


class Watch:
    """Processes, looked at twice a second: the most memory they held at once, and when each run had made its first step."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], folder: Path, runs: int) -> None:
        self._processes = [psutil.Process(process.pid) for process in processes]
        self._folder, self._runs = folder, runs
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._gpu_before = gpu_bytes()
        self.most = self.most_of_gpu = 0
        self.begun, self.sampled = time.perf_counter(), 0.0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        waiting = True
        while not self._over.wait(0.5):
            held = 0
            for process in self._processes:
                with contextlib.suppress(psutil.Error):
                    held += process.memory_full_info().pss
            self.most = max(self.most, held)
            self.most_of_gpu = max(self.most_of_gpu, gpu_bytes() - self._gpu_before)
            if waiting:
                steps = [rows(self._folder, seed) for seed in range(self._runs)]
                waiting = not all(steps)
                self.begun, self.sampled = (
                    time.perf_counter(),
                    sum(row["tokens/sampled"] for of_run in steps for row in of_run),
                )


def gpu_bytes() -> int:
    """In use on the first GPU, by anyone; 0 where there is none."""
    command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) << 20
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0


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
        *args.options,
    ]
    command += ["--seeds", *map(str, seeds), "--run", str(folder / "run")]
    with (folder / f"{seeds[0]}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def told(folder: Path, seed: int, log: int | None = None) -> dict[str, Any]:
    """What came of a run; `log`: the first seed of its process."""
    words = (folder / f"{seed if log is None else log}.log").read_text(errors="replace")
    steps = rows(folder, seed)
    found = [step["optim/kl_sample_train_v2"] for step in steps if "optim/kl_sample_train_v2" in step]
    last = [line for line in words.splitlines() if line.strip()][-1:]
    sampled = sum(step.get("tokens/sampled", 0.0) for step in steps)
    return {"steps": len(found), "sampled": sampled, "kl": max(found, default=None), "last": "".join(last)[:200]}


def rows(folder: Path, seed: int) -> list[dict[str, Any]]:
    """The steps that a run has made; not the line that is being written."""
    metrics = folder / f"run-seed{seed}" / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
    made = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row for row in made if "tokens/sampled" in row]


if __name__ == "__main__":
    main()
