"""Does debate teach? One honest experiment, from one command.

    python recipes/experiment.py                      # everything, on whatever device there is; a day on a CPU
    python recipes/experiment.py --jobs 15 --cache-gib 3 --token-budget 12288 --gradient-checkpointing    # on one large GPU: minutes
    python recipes/experiment.py --engine scripted --questions 8 --tokens 20000 --seeds 0 --warm-questions 16    # tries the plumbing out

For each seed one warm start, then self-play from those same weights under peer votes, majority and truth, at equal sampled tokens, and
two remedies. The untrained model, each warm start and each end are evaluated on the same held-out questions. The plan, with what would
count as success, stands in docs/experiment.md. Whatever is there already is not done again. Options not listed below go to `moot train`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WARM: dict[str, list[str]] = {"warm": [], "warm-mistakes": ["--warm-wrong", "sampled"]}
ARMS: dict[str, tuple[str, list[str]]] = {  # which warm start, and what is different
    "peers": ("warm", []),
    "majority": ("warm", ["--reward", "majority"]),
    "truth": ("warm", ["--reward", "truth"]),
    # The remedies.
    "peers-mix": ("warm", ["--reward-mix", "0.5"]),
    "peers-mistakes": ("warm-mistakes", ["--warm-wrong", "sampled"]),
}
COMMON = [
    "--preset", "demo", "--task", "arithmetic:operands=3", "--num-agents", "4", "--max-rounds", "2", "--max-tokens", "176",
    "--judge-consensus", "leave_one_out", "--warm-questions", "1024", "--warm-batch-size", "16", "--warm-learning-rate", "5e-4",
    "--batch-size", "32", "--num-substeps", "1", "--eval-every", "0", "--save-every", "0",
]  # fmt: skip
MODES = ["direct", "vote", "debate", "debate+vote"]


def moot(arguments: list[str], log: Path) -> bool:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.run([sys.executable, "-m", "moot", *arguments], stdout=file, stderr=subprocess.STDOUT).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=Path("runs/experiment"))
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=list(ARMS), help="none: only the warm starts")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--tokens", type=int, default=1_100_000, help="sampled in self-play, for every run")
    parser.add_argument("--learning-rate", default="1e-4", help="of self-play")
    parser.add_argument("--questions", type=int, default=200, help="held out, for every evaluation")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--device", default="auto")
    args, others = parser.parse_known_args()
    settings = [*COMMON, "--device", args.device, *others]
    keep_settings(args.out, {"tokens": args.tokens, "learning_rate": args.learning_rate, "questions": args.questions, "others": others})
    began, unfinished, lock = time.time(), set[Path](), threading.Lock()

    def say(text: str) -> None:
        with lock:
            print(f"{time.time() - began:6.0f} s  {text}", flush=True)

    def evaluated(run: Path, name: str = "final") -> bool:
        return (run / "evals" / name / "report.json").exists()

    def do(what: str, run: Path, arguments: list[str]) -> bool:
        say(f"{run.name}: {what}")
        done = moot(arguments, args.out / "logs" / f"{run.name}.log")
        if not done:
            unfinished.add(run)
            say(f"{run.name}: {what} failed, see its log in {args.out / 'logs'}")
        return done

    def train(run: Path, own: list[str]) -> bool:
        return evaluated(run) or do("training", run, ["train", *settings, *own, "--run", str(run)])

    def evaluate(run: Path, name: str, step: list[str]) -> None:
        asked = ["--modes", *MODES, "--questions", str(args.questions), "--name", name, "--device", args.device, *step]
        if not evaluated(run, name):
            do(f"evaluating, {name}", run, ["eval", str(run), *asked])

    def lend(source: Path, run: Path, name: str, as_name: str) -> None:
        """The same weights were evaluated there, on the same questions: so that a run can be compared with its own beginning."""
        if evaluated(source, name) and not evaluated(run, as_name):
            shutil.copytree(source / "evals" / name, run / "evals" / as_name, dirs_exist_ok=True)

    def warm(kind: str, seed: int) -> None:
        run = place(kind, seed)
        if train(run, [*WARM[kind], "--seed", str(seed), "--num-train-datapoints", "0"]):
            evaluate(run, "final", [])
            if run == first:
                evaluate(run, "base", ["--step", "0"])  # before training every run is the same model

    def arm(name: str, seed: int) -> None:
        kind, own = ARMS[name]
        run, start = place(name, seed), place(kind, seed)
        own = [*own, "--seed", str(seed), "--learning-rate", args.learning_rate, "--warm-from", str(start)]
        own += ["--max-sampled-tokens", str(args.tokens), "--num-train-datapoints", "1000000"]
        if train(run, own):
            evaluate(run, "final", [])
            lend(start, run, "final", "warm")

    def all_of(action: Callable[[str, int], None], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(lambda item: action(*item), [(name, seed) for name in names for seed in args.seeds]))

    def place(name: str, seed: int) -> Path:
        return args.out / f"{name}-seed{seed}"

    def compare(names: Iterable[str], evals: list[str], into: str) -> None:
        runs = [str(run) for name in names for seed in args.seeds if evaluated(run := place(name, seed))]
        target = args.out / "tables" / into
        asked = ["compare", *runs, "--evals", *evals, "--against", "tokens", "--out", str(target)]
        if runs and moot(asked, args.out / "logs" / "compare.log"):
            say(f"tables and curves: {target}")
        elif runs:
            unfinished.add(target)

    kinds = [kind for kind in WARM if not args.arms or kind in {ARMS[name][0] for name in args.arms}]
    first = place(kinds[0], args.seeds[0])
    all_of(warm, kinds)
    for kind in kinds:
        for seed in args.seeds:
            lend(first, place(kind, seed), "base", "base")
    all_of(arm, args.arms)
    compare(kinds, ["base", "final"], "warm-start")
    compare(args.arms, ["warm", "final"], "self-play")
    compare(args.arms, ["final"], "arms")
    if unfinished:
        say(f"NOT DONE: {', '.join(sorted(path.name for path in unfinished))}; the same command again continues")
    sys.exit(bool(unfinished))


def keep_settings(out: Path, given: dict[str, object]) -> None:
    """One folder, one experiment: runs of other settings would be taken for this one's."""
    file = out / "experiment.json"
    if file.exists() and (before := json.loads(file.read_text())) != given:
        changed = ", ".join(f"{name} {before[name]} -> {given[name]}" for name in given if before[name] != given[name])
        sys.exit(f"{out} holds an experiment with other settings ({changed}); name another --out")
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(given))


if __name__ == "__main__":
    main()
