"""Does debate teach? The experiments of docs/experiment.md, each from one command. A plan is a file of recipes/plans.

    python recipes/experiment.py --plan countdown --model MODEL       # votes where a majority cannot teach
    python recipes/experiment.py --plan gsm8k --model MODEL --arms majority truth --seeds 0 1 --jobs 2 --cache-gib 14
    python recipes/experiment.py --plan sums --jobs 15 --cache-gib 3 --token-budget 12288 --gradient-checkpointing
    python recipes/experiment.py --plan countdown --engine scripted --questions 8 --tokens 20000 --seeds 0    # tries the plumbing out

Arms are alike in everything but what the plan names, and sample equally many tokens, judges' tokens included. Each end is evaluated on the
same questions as its start and paired with it: tables/result.md has one line per arm, result-NAME.md for what a plan measures besides,
thirds.md how right answers went over the run, and tables/self-play the curves. Whatever is there already is not done again, and an
interrupted run continues, so that short stretches of a GPU add up (`timeout 540 python recipes/experiment.py …`). --as-is evaluates what
there is and trains nothing. Options not listed below go to `moot train`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moot.evaluate.report import Report
from moot.evaluate.table import percent, signed
from moot.runs import Run
from moot.util.intervals import Interval, seeds_interval

PLACE = Path(__file__).parent / "plans"


@dataclass(frozen=True)
class Plan:
    settings: str
    """Of every run."""
    arms: dict[str, Any]
    """What is different: options, or a table of options and of the kind of warm start that it begins with."""
    task: str
    modes: str
    tokens: int
    questions: int
    learning_rate: str
    warm: dict[str, str] = field(default_factory=dict)
    """Kinds of warm start; none: every run starts from the model itself."""
    test: str = ""
    """What is added to the task for the last measurement."""
    evaluation: str = ""
    """How else it is evaluated."""
    also: dict[str, str] = field(default_factory=dict)
    """Further measurements of start and end, by name: options of `moot eval`."""

    @classmethod
    def read(cls, name: str) -> Plan:
        return cls(**tomllib.loads((PLACE / f"{name}.toml").read_text()))

    def arm(self, name: str) -> tuple[str, list[str]]:
        """Its warm start, and its options."""
        own = self.arms[name]
        return ("", own.split()) if isinstance(own, str) else (own["warm"], own["options"].split())


def moot(arguments: list[str], log: Path) -> bool:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return (
            subprocess.run([sys.executable, "-m", "moot", *arguments], stdout=file, stderr=subprocess.STDOUT).returncode
            == 0
        )


def main() -> None:
    chosen = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chosen.add_argument("--plan", choices=sorted(file.stem for file in PLACE.glob("*.toml")), required=True)
    name = chosen.parse_known_args()[0].plan
    plan = Plan.read(name)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, parents=[chosen]
    )
    parser.add_argument("--out", type=Path, default=Path(f"runs/{name}"))
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
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at a time; they train in one process, on one copy of the model"
    )
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
    began, unfinished, trained, lock = time.time(), set[Path](), set[Path](), threading.Lock()

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
        if args.as_is or run in trained or evaluated(run, after):
            return (run / "run.json").exists()
        return do("training", run, ["train", *settings, *own, *others, "--run", str(run)])

    def train_together(asked: list[tuple[Path, list[str]]]) -> None:
        """What does not end well here is begun or continued by itself, which tells why."""
        left = [(run, own) for run, own in asked if not evaluated(run, after)]
        if args.as_is or len(left) < 2:
            return
        say(f"training together: {', '.join(run.name for run, _ in left)}")
        beside = [word for run, own in left for word in ("--", *own, *others, "--run", str(run))]
        if moot(["train", *settings, *beside], args.out / "logs" / "together.log"):
            trained.update(run for run, _ in left)

    def evaluate(run: Path, name: str, step: str = "") -> None:
        common = ["--questions", str(args.questions), "--device", args.device]
        main = ["--modes", *args.modes, *plan.evaluation.split(), "--task", test]
        main += ["--k", "8"] if name == "start" else []  # what every arm is compared with is measured best
        further = {
            f"{name}-{also}": [*([] if "--task" in options else ["--task", test]), *options.split()]
            for also, options in plan.also.items()
        }
        for each, asked in {name: main, **further}.items():
            if not evaluated(run, each):
                who = f"{run}@{step}" if step else str(run)
                do(f"evaluating, {each}", run, ["eval", who, *asked, *common, "--name", each])

    def lend(source: Path, run: Path, name: str, as_name: str) -> None:
        """The same weights were evaluated there, on the same questions: so that a run can be compared with its own beginning."""
        for end in ("", *(f"-{also}" for also in plan.also)):
            if evaluated(source, name + end) and not evaluated(run, as_name + end):
                shutil.copytree(source / "evals" / (name + end), run / "evals" / (as_name + end), dirs_exist_ok=True)

    def warm(kind: str, seed: int) -> list[str]:
        return [*plan.warm[kind].split(), "--seed", str(seed), "--num-train-datapoints", "0"]

    def after_warm(kind: str, seed: int) -> None:
        run = place(kind, seed)
        if train(run, warm(kind, seed)):
            evaluate(run, after)
            if run == first:
                evaluate(run, "base", "0")  # before training every run is the same model

    def arm(name: str, seed: int) -> list[str]:
        kind, own = plan.arm(name)
        started = [*(["--from", str(place(kind, seed))] if kind else []), "--warm-questions", "0"]
        budget = ["--max-sampled-tokens", str(args.tokens), "--num-train-datapoints", "1000000"]
        return [*own, "--seed", str(seed), "--learning-rate", args.learning_rate, *started, *budget]

    def after_arm(name: str, seed: int) -> None:
        kind, run = plan.arm(name)[0], place(name, seed)
        if train(run, arm(name, seed)):
            evaluate(run, after, "best" if args.best else "")
            if kind:
                lend(place(kind, seed), run, after, before)

    def all_of(
        options: Callable[[str, int], list[str]], then: Callable[[str, int], None], names: Iterable[str]
    ) -> None:
        every = [(name, seed) for name in names for seed in args.seeds]
        for number in range(0, len(every), args.jobs):
            some = every[number : number + args.jobs]
            train_together([(place(*item), options(*item)) for item in some])
            with ThreadPoolExecutor(args.jobs) as pool:
                list(pool.map(lambda item: then(*item), some))

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

    kinds = [kind for kind in plan.warm if not args.arms or kind in {plan.arm(name)[0] for name in args.arms}]
    first = place(kinds[0] if kinds else args.arms[0], args.seeds[0])
    all_of(warm, after_warm, kinds)
    for run in finished(kinds):
        lend(first, run, "base", "base")
    all_of(arm, after_arm, args.arms)
    if not kinds and (ends := finished(args.arms)):
        has_start = next(iter(finished(args.arms, [after, before])), ends[0])
        evaluate(has_start, before, "0")
        for run in ends:
            lend(has_start, run, before, before)
    if kinds:
        compare(kinds, ["base", after], "warm-start")
    compare(args.arms, [before, after], "self-play")
    compare(args.arms, [after], "arms")
    for end in ("", *(f"-{also}" for also in plan.also)):
        sides = [before + end, after + end]
        if pairs := {name: runs for name in args.arms if (runs := finished([name], sides))}:
            text = result(pairs, *sides)
            (args.out / "tables" / f"result{end}.md").write_text(text)
            print(f"\n{text}")
    if runs := {name: runs for name in args.arms if (runs := finished([name]))}:
        (args.out / "tables" / "thirds.md").write_text(thirds(runs))
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

    def tokens(run: Path) -> float:
        """Of one answer."""
        rows = [
            row for row in Report.read(run / "evals" / after / "report.json").rows if row.name.split("@")[0] == one[0]
        ]
        return sum(row.tokens / max(1, row.k) for row in rows) / max(1, len(rows))

    first = next(iter(next(iter(arms.values()))))
    voted = bool(shares(first, after, "vote", "avg@k"))
    one, most, debate = (
        ("vote", "avg@k") if voted else ("direct", "accuracy"),
        ("vote", "accuracy"),
        ("debate", "accuracy"),
    )
    lines = [
        f"| arm | seeds | one answer | minus its {before} | minus the {before}'s majority | majority of k | minus its {before} | "
        f"debate | minus its {before} | tokens of an answer |",
        "|---|---|---|---|---|---|---|---|---|---|",
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
        length = sum(map(tokens, runs)) / len(runs)
        lines.append(f"| {name} | {len(runs)} | {' | '.join(told)} | {length:.0f} |")
    return "\n".join(lines) + "\n"


def thirds(arms: dict[str, list[Path]]) -> str:
    """Right answers to fresh questions, and J of the judge, in the first, middle and last third of the iterations; means over seeds."""

    def cells(runs: list[Path], wanted: Callable[[str], bool]) -> list[str]:
        columns: list[list[float]] = [[], [], []]
        for run in runs:
            rows = [row for row in Run.open(run).metrics() if row["phase"] == "self_play"]
            for place, row in enumerate(rows):
                columns[3 * place // len(rows)] += [v for name, v in row.items() if wanted(name) and v is not None]
        return [f"{100 * sum(column) / len(column):.1f}" if column else "–" for column in columns]

    lines = [
        "| arm | right, first third | middle | last | the judge's J, percent, first third | middle | last |",
        "|" + "---|" * 7,
    ]
    for name, runs in arms.items():
        right = cells(runs, lambda key: key.startswith("train_") and key.endswith("/correct"))
        told = cells(runs, lambda key: key == "trust/judge_j")
        lines.append(f"| {name} | {' | '.join([*right, *told])} |")
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
