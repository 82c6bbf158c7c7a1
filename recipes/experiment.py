"""Does debate teach? The experiments of docs/experiment.md, each from one command.

    python recipes/experiment.py --plan gsm8k --model MODEL       # the fourth: a 1.5B model on GSM8K, six arms, three seeds
    python recipes/experiment.py --plan gsm8k --model MODEL --arms majority truth --seeds 0 1 --jobs 2 --cache-gib 14
    python recipes/experiment.py --jobs 15 --cache-gib 3 --token-budget 12288 --gradient-checkpointing    # the first two: sums, a 135M one
    python recipes/experiment.py --engine scripted --questions 8 --tokens 20000 --seeds 0 --warm-questions 16    # tries the plumbing out

Arms are alike in everything but what is named here, and sample equally many tokens. Each end is evaluated on the same questions as its
start and paired with it: tables/result.md has one line per arm. Whatever is there already is not done again, and an interrupted run
continues, so that short stretches of a GPU add up (`timeout 540 python recipes/experiment.py …`). --as-is evaluates what there is and
trains nothing. Options not listed below go to `moot train`.
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
from dataclasses import dataclass
from pathlib import Path

from moot.evaluate.report import Report
from moot.evaluate.table import percent, signed
from moot.util.intervals import Interval, seeds_interval


@dataclass(frozen=True)
class Plan:
    settings: str
    """Of every run."""
    arms: dict[str, tuple[str, str]]
    """Which warm start, and what is different."""
    warm: dict[str, str]
    """Kinds of warm start; none: every run starts from the model itself."""
    task: str
    test: str
    """What is added to the task for the last measurement."""
    modes: str
    evaluation: str
    """How else it is evaluated."""
    tokens: int
    questions: int
    learning_rate: str


ONE_ROUND = "--num-agents 8 --max-rounds 1 --batch-size 32"
JUDGED = "--num-agents 4 --max-rounds 1 --batch-size 48 --judge base --voters judges --reward win_rate"
PLANS = {
    "sums": Plan(
        settings="--preset demo --num-agents 4 --max-rounds 2 --max-tokens 176 --judge-consensus leave_one_out --warm-questions 1024 "
        "--with warm_start:batch_size=16,learning_rate=5e-4 --batch-size 32 --eval-every 0 --save-every 0",
        arms={
            "peers": ("warm", ""),
            "majority": ("warm", "--reward majority"),
            "truth": ("warm", "--reward truth"),
            # The remedies.
            "peers-mix": ("warm", "--reward-mix 0.5"),
            "peers-mistakes": ("warm-mistakes", "--with warm_start:batch_size=16,learning_rate=5e-4,wrong=sampled"),
        },
        warm={"warm": "", "warm-mistakes": "--with warm_start:batch_size=16,learning_rate=5e-4,wrong=sampled"},
        task="arithmetic:operands=3",
        test="",
        modes="direct vote debate debate+vote",
        evaluation="",
        tokens=1_100_000,
        questions=200,
        learning_rate="1e-4",
    ),
    "gsm8k": Plan(
        settings="--preset easy --sections asked --no-personas --temperature 0.8 --max-tokens 512 "
        "--eval-every 0 --save-every 0",
        arms={
            "majority": ("", f"{ONE_ROUND} --reward majority"),
            "truth": ("", f"{ONE_ROUND} --reward truth"),
            "frozen": ("", f"{ONE_ROUND} --reward majority --with frozen_labels:weights=start"),
            "peers": ("", "--num-agents 4 --max-rounds 2 --batch-size 24"),
            "judges": ("", JUDGED),
            # The remedy: only what a judge says in both orders counts.
            "swapped": ("", f"{JUDGED} --both-orders"),
        },
        warm={},
        task="gsm8k",
        test="held_out=test",
        modes="direct vote",
        # Debates, where they are asked for, are the same for every arm, whatever it was trained with.
        evaluation="--k 4 --num-agents 4 --max-rounds 2",
        tokens=2_200_000,
        questions=400,
        learning_rate="8e-5",
    ),
}


def moot(arguments: list[str], log: Path) -> bool:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return (
            subprocess.run([sys.executable, "-m", "moot", *arguments], stdout=file, stderr=subprocess.STDOUT).returncode
            == 0
        )


def main() -> None:
    chosen = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chosen.add_argument("--plan", choices=list(PLANS), default="sums")
    name = chosen.parse_known_args()[0].plan
    plan = PLANS[name]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, parents=[chosen]
    )
    parser.add_argument("--out", type=Path, default=Path("runs/experiment" if name == "sums" else f"runs/{name}"))
    parser.add_argument(
        "--arms", nargs="*", default=list(plan.arms), choices=list(plan.arms), help="none: only the warm starts"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--task", default=plan.task)
    parser.add_argument("--tokens", type=int, default=plan.tokens, help="sampled in self-play, for every run")
    parser.add_argument("--learning-rate", default=plan.learning_rate, help="of self-play")
    parser.add_argument("--questions", type=int, default=plan.questions, help="held out, for every evaluation")
    parser.add_argument(
        "--modes", nargs="+", default=plan.modes.split(), help="of every evaluation; vote makes the line of an arm"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument(
        "--best", action="store_true", help="evaluate each run's best checkpoint by its own evaluations, not its last"
    )
    parser.add_argument(
        "--as-is", action="store_true", help="train nothing further; evaluate and compare what there is"
    )
    parser.add_argument("--device", default="auto")
    args, others = parser.parse_known_args()
    settings = [*plan.settings.split(), "--task", args.task, "--device", args.device]
    test = args.task if not plan.test else f"{args.task}{',' if ':' in args.task else ':'}{plan.test}"
    given = {
        "plan": name,
        "task": args.task,
        "tokens": args.tokens,
        "learning_rate": args.learning_rate,
        "questions": args.questions,
    }
    keep_settings(args.out, {**given, "modes": args.modes, "others": others})
    before, after = "warm" if plan.warm else "start", "as-is" if args.as_is else "best" if args.best else "final"
    began, unfinished, lock = time.time(), set[Path](), threading.Lock()

    def say(text: str) -> None:
        with lock:
            print(f"{time.time() - began:6.0f} s  {text}", flush=True)

    def evaluated(run: Path, name: str) -> bool:
        return (run / "evals" / name / "report.json").exists()

    def do(what: str, run: Path, arguments: list[str]) -> bool:
        say(f"{run.name}: {what}")
        done = moot(arguments, args.out / "logs" / f"{run.name}.log")
        if not done:
            unfinished.add(run)
            say(f"{run.name}: {what} failed, see its log in {args.out / 'logs'}")
        return done

    def train(run: Path, own: list[str]) -> bool:
        if args.as_is or evaluated(run, after):
            return (run / "run.json").exists()
        return do("training", run, ["train", *settings, *own, *others, "--run", str(run)])

    def evaluate(run: Path, name: str, step: str = "") -> None:
        asked = ["--modes", *args.modes, *plan.evaluation.split(), "--questions", str(args.questions)]
        asked += ["--k", "8"] if name == "start" else []  # what every arm is compared with is measured best
        asked += ["--name", name, "--task", test, "--device", args.device]
        if not evaluated(run, name):
            do(f"evaluating, {name}", run, ["eval", f"{run}@{step}" if step else str(run), *asked])

    def lend(source: Path, run: Path, name: str, as_name: str) -> None:
        """The same weights were evaluated there, on the same questions: so that a run can be compared with its own beginning."""
        if evaluated(source, name) and not evaluated(run, as_name):
            shutil.copytree(source / "evals" / name, run / "evals" / as_name, dirs_exist_ok=True)

    def warm(kind: str, seed: int) -> None:
        run = place(kind, seed)
        if train(run, [*plan.warm[kind].split(), "--seed", str(seed), "--num-train-datapoints", "0"]):
            evaluate(run, after)
            if run == first:
                evaluate(run, "base", "0")  # before training every run is the same model

    def arm(name: str, seed: int) -> None:
        kind, own = plan.arms[name]
        run = place(name, seed)
        started = [*(["--from", str(place(kind, seed))] if kind else []), "--warm-questions", "0"]
        budget = ["--max-sampled-tokens", str(args.tokens), "--num-train-datapoints", "1000000"]
        if train(run, [*own.split(), "--seed", str(seed), "--learning-rate", args.learning_rate, *started, *budget]):
            evaluate(run, after, "best" if args.best else "")
            if kind:
                lend(place(kind, seed), run, after, before)

    def all_of(action: Callable[[str, int], None], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(lambda item: action(*item), [(name, seed) for name in names for seed in args.seeds]))

    def place(name: str, seed: int) -> Path:
        return args.out / f"{name}-seed{seed}"

    def finished(names: Iterable[str], evals: Iterable[str] = (after,)) -> list[Path]:
        return [
            run
            for name in names
            for seed in args.seeds
            if all(evaluated(run := place(name, seed), each) for each in evals)
        ]

    def compare(names: Iterable[str], evals: list[str], into: str) -> None:
        runs = [str(run) for run in finished(names)]
        target = args.out / "tables" / into
        asked = ["compare", *runs, "--evals", *evals, "--against", "tokens", "--out", str(target)]
        if runs and moot(asked, args.out / "logs" / "compare.log"):
            say(f"tables and curves: {target}")
        elif runs:
            unfinished.add(target)

    kinds = [kind for kind in plan.warm if not args.arms or kind in {plan.arms[name][0] for name in args.arms}]
    first = place(kinds[0] if kinds else args.arms[0], args.seeds[0])
    all_of(warm, kinds)
    for run in finished(kinds):
        lend(first, run, "base", "base")
    all_of(arm, args.arms)
    if not kinds and (ends := finished(args.arms)):
        has_start = next(iter(finished(args.arms, [after, before])), ends[0])
        evaluate(has_start, before, "0")
        for run in ends:
            lend(has_start, run, before, before)
    if kinds:
        compare(kinds, ["base", after], "warm-start")
    compare(args.arms, [before, after], "self-play")
    compare(args.arms, [after], "arms")
    if pairs := {name: runs for name in args.arms if (runs := finished([name], [before, after]))}:
        text = result(pairs, before, after)
        (args.out / "tables" / "result.md").write_text(text)
        print(f"\n{text}")
    if unfinished:
        say(f"NOT DONE: {', '.join(sorted(path.name for path in unfinished))}; the same command again continues")
    sys.exit(bool(unfinished))


def result(arms: dict[str, list[Path]], before: str, after: str) -> str:
    """One line per arm in Markdown: how it ended, minus how it started, on the same questions; intervals over questions and seeds."""

    def shares(run: Path, name: str, mode: str, metric: str) -> dict[str, float]:
        rows = [row for row in Report.read(run / "evals" / name / "report.json").rows if row.name.split("@")[0] == mode]
        return {
            question: top / bottom
            for row in rows
            for question, (top, bottom) in row.by_question.get(metric, {}).items()
            if bottom
        }

    def cell(runs: list[Path], *sides: tuple[str, str, str]) -> Interval | None:
        """Of the first side, minus the second where there is one."""
        columns = [[shares(run, *side) for side in sides] for run in runs]
        common = [question for question in columns[0][0] if all(question in side for run in columns for side in run)]
        if not common:
            return None
        return seeds_interval([[run[0][q] - (run[1][q] if len(run) > 1 else 0.0) for q in common] for run in columns])

    one, most, debate = ("vote", "avg@k"), ("vote", "accuracy"), ("debate", "accuracy")
    lines = [
        f"| arm | seeds | one answer | minus its {before} | minus the {before}'s majority | majority of k | minus its {before} | "
        f"debate | minus its {before} |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in arms.items():
        cells = [
            percent(each and each.as_dict(), bounds=True)
            for each in (cell(runs, (after, *mode)) for mode in (one, most, debate))
        ]
        gaps = [
            signed(each and each.as_dict())
            for each in (cell(runs, (after, *mode), (before, *mode)) for mode in (one, most, debate))
        ]
        against = cell(runs, (after, *one), (before, *most))
        told = [cells[0], gaps[0], signed(against and against.as_dict()), cells[1], gaps[1], cells[2], gaps[2]]
        lines.append(f"| {name} | {len(runs)} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def keep_settings(out: Path, given: dict[str, object]) -> None:
    """One folder, one experiment: runs of other settings would be taken for this one's."""
    file = out / "experiment.json"
    if file.exists() and (earlier := json.loads(file.read_text())) != given:
        changed = ", ".join(
            f"{name} {earlier.get(name)} -> {given[name]}" for name in given if earlier.get(name) != given[name]
        )
        sys.exit(f"{out} holds an experiment with other settings ({changed}); name another --out")
    (out / "tables").mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(given))


if __name__ == "__main__":
    main()
