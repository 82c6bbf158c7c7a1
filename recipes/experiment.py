"""Does debate teach? One honest experiment, from one command.

    python recipes/experiment.py                      # everything, on whatever device there is; hours on a CPU
    python recipes/experiment.py --jobs 15            # on one GPU: many runs at once, minutes
    python recipes/experiment.py --engine scripted --questions 8 --tokens 20000 --seeds 0    # tries the plumbing out, in a minute

Warm start, then self-play under peer votes, majority and truth, at equal sampled tokens, three seeds each, and two remedies. Every run
is evaluated on the same held-out questions before training, after the warm start and at the end. The plan, with what would count as
success, stands in docs/experiment.md; it was written before the first run. Whatever is there already is not done again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARMS: dict[str, list[str]] = {
    "peers": [],
    "majority": ["--reward", "majority"],
    "truth": ["--reward", "truth"],
    # The remedies.
    "peers-mix": ["--reward-mix", "0.5"],
    "peers-mistakes": ["--warm-questions", "512", "--warm-wrong", "sampled"],
}
COMMON = [
    "--preset", "demo", "--task", "arithmetic", "--num-agents", "5", "--max-rounds", "2", "--max-tokens", "176",
    "--judge-consensus", "leave_one_out", "--warm-questions", "256", "--warm-batch-size", "8", "--warm-learning-rate", "5e-4",
    "--batch-size", "32", "--num-substeps", "2", "--learning-rate", "3e-4", "--num-train-datapoints", "1600",
    "--eval-every", "0", "--save-every", "0",
]  # fmt: skip
MODES = ["direct", "vote", "debate", "debate+vote"]


def moot(arguments: list[str], log: Path) -> bool:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.run([sys.executable, "-m", "moot", *arguments], stdout=file, stderr=subprocess.STDOUT).returncode == 0


def warm_steps(run: Path) -> int:
    warm = json.loads((run / "run.json").read_text())["config"]["warm"]
    return -(-warm["warm_questions"] // warm["warm_batch_size"]) * warm["warm_epochs"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/experiment"))
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--tokens", type=int, default=480_000, help="sampled in self-play, for every run")
    parser.add_argument("--questions", type=int, default=200, help="held out, for every evaluation")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cache-gib", default="0", help="of each run, when several share a device")
    parser.add_argument("--token-budget", default="0")
    args = parser.parse_args()
    model = ["--engine", args.engine, "--model", args.model, "--device", args.device]
    memory = ["--cache-gib", args.cache_gib, "--token-budget", args.token_budget]
    runs = {(arm, seed): args.out / f"{arm}-seed{seed}" for arm in args.arms for seed in args.seeds}
    began, failed, lock = time.time(), [], threading.Lock()

    def say(text: str) -> None:
        with lock:
            print(f"{time.time() - began:6.0f} s  {text}", flush=True)

    def one(arm: str, seed: int) -> None:
        run = runs[arm, seed]
        log = args.out / "logs" / f"{run.name}.log"
        settings = [*COMMON, *ARMS[arm], "--seed", str(seed), "--max-sampled-tokens", str(args.tokens), "--run", str(run)]
        say(f"{run.name}: training")
        if not moot(["train", *model, *memory, *settings], log):
            say(f"{run.name}: training failed, see {log}")
            failed.append(run.name)
            return
        # Before training every run is the same model, so one evaluation of it will do; the warm start depends on seed and arm.
        phases = {"warm": ["--step", str(warm_steps(run))], "final": []}
        if (arm, seed) == next(iter(runs)):
            phases = {"base": ["--step", "0"], **phases}
        for phase, step in phases.items():
            say(f"{run.name}: evaluating, {phase}")
            asked = ["--modes", *MODES, "--questions", str(args.questions), "--name", phase, *step]
            if not moot(["eval", str(run), "--device", args.device, *asked], log):
                say(f"{run.name}: evaluation {phase} failed, see {log}")
                failed.append(run.name)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda item: one(*item), runs))
    whole = [str(run) for run in runs.values() if run.name not in failed]
    for phase in ("warm", "final"):
        moot(
            ["compare", *whole, "--evals", phase, "--against", "tokens", "--out", str(args.out / phase)], args.out / "logs" / "compare.log"
        )
    say(f"tables and curves: {args.out / 'final'}, {args.out / 'gain'}; logs: {args.out / 'logs'}")
    if failed:
        say(f"FAILED: {', '.join(failed)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
