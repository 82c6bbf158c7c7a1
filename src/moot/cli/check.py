"""`moot check`: what should hold of a model and a task before training on it, measured."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from moot.cli import train
from moot.cli.evaluate import Bars, interruptible, place, unseen
from moot.debate.types import ConfigError
from moot.evaluate import Answers, EvalConfig, Report, evaluate
from moot.evaluate.preflight import Finding, findings
from moot.evaluate.table import rich_table
from moot.players import Players
from moot.records import Run
from moot.rl.config import PRESETS, TrainConfig
from moot.tasks import load as load_task
from moot.tasks.task import Task
from moot.terminal import plain

_STYLES = {"pass": "green", "fail": "red", "cannot tell": "yellow"}


@dataclass(frozen=True)
class Check:
    """Go through the preflight list before training: direct accuracy, valid comparisons, one agent right, judge accuracy.

    Takes the options of `moot train` and measures the model before any training; with a RUN, its newest checkpoint. A check passes or
    fails only if its whole 95% interval lies on one side of what is needed. Exit status 1 if one fails.
    """

    run_dir: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")] = None
    """A run's folder, to check what it has become, after its warm start above all."""
    preset: str = "demo"
    """Where the other defaults come from, as in `moot train`."""
    config: Annotated[TrainConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=lambda: PRESETS["demo"])
    questions: int = 40
    """Held-out questions, each answered once alone and debated once."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for the answers; where `moot eval` keeps its own, if not given."""
    json: bool = False
    """Print the findings as JSON."""
    settings_of: tyro.conf.Suppress[Path | None] = None
    """The run that the other defaults came from."""

    def run(self) -> int:
        console = Console(highlight=False, stderr=self.json)
        if self.questions < 1:
            raise ConfigError(f"questions must be at least 1, got {self.questions}")
        run = None if self.run_dir is None else Run.open(self.run_dir)
        if self.run_dir != self.settings_of:
            raise ConfigError(f"the run must come first: moot check {self.run_dir} …")
        config = self.config
        task = load_task(config.debate.task, config.seed, self.questions)
        if any(question.answer is None for question in task.held_out):
            raise ConfigError(f"task {task.name} has questions without a known answer, and the checks need answers; check on another task")
        bars = Bars(console)
        players = Players(config, run, bars.note, console.status)
        try:
            report, out = interruptible(self._measure(players, config, task, bars))
        except asyncio.CancelledError:
            console.print(Text("\nStopped. What was answered is kept; the same command goes on from there.", style="bold"))
            return 130
        return self._show(report, bars, out, console)

    async def _measure(self, players: Players, config: TrainConfig, task: Task, bars: Bars) -> tuple[Report, Path]:
        try:
            step = await players.load(None)
            questions, left_out = unseen(task, config if players.run else None, self.questions, step)
            if left_out:
                bars.note(left_out)
            out = self.out or place(players.run.path if players.run else None, config.model.model, task.name, None, step)
            answers = Answers(out / "answers.jsonl")
            settings = EvalConfig.of(config, modes=("direct", "debate"), policy=players.identity)
            with bars:
                report = await evaluate(players.sampler, players.rendering, task, settings, questions, answers=answers, watcher=bars)
            answers.close()
            return report, out
        finally:
            await players.close()

    def _show(self, report: Report, bars: Bars, out: Path, console: Console) -> int:
        found = findings(report)
        failed = any(each.verdict == "fail" for each in found)
        if self.json:
            print(json.dumps({"questions": report.rows[0].questions, "failed": failed, "checks": [each.as_dict() for each in found]}))
            return int(failed)
        table = rich_table(["check", "measured", "95% interval", "needed", "verdict"], [])
        for each in found:
            value = "–" if each.measured is None else f"{each.measured.value:.0%}"
            span = "–" if each.measured is None else f"{each.measured.low:.0%} to {each.measured.high:.0%}"
            name = each.check.name if each.check.metric != "pass@k" else f"{each.check.name} (pass@{report.settings['num_agents']})"
            table.add_row(name, value, span, f"> {each.check.above:.0%}", Text(each.verdict, style=_STYLES[each.verdict]))
        console.print()
        console.print(table)
        for each in found:
            if each.verdict != "pass":
                console.print(Text.assemble(("\n" + each.check.name, "bold"), ": ", _words(each)))
        console.print(Text(f"\n{report.rows[0].questions} questions. Answers and debates: {out / 'answers.jsonl'}", style="green"))
        if bars.errors:
            console.print(Text(f"{bars.errors} were lost to the engine ({plain(bars.first_error)}) and left out.", style="red"))
        return int(failed or report.rows[0].questions == 0)


def _words(each: Finding) -> str:
    note = f"{each.note[0].upper()}{each.note[1:]}. " if each.note else ""
    if each.verdict == "fail":
        return f"{note}{each.check.remedy}"
    if each.measured is None:
        return f"{note}Nothing could be measured; look at the other checks first."
    more = f"about {each.enough} questions (--questions) would tell" if each.enough else "the value lies at the limit itself"
    return f"{note}The interval has {each.check.above:.0%} inside it; {more}. If it fails: {each.check.remedy}"


def defaults(arguments: list[str]) -> Check:
    """The preset, or the run, is read first, so that the other options change what it says."""
    if arguments and not arguments[0].startswith("-"):
        path = Path(arguments[0])
        return Check(path, config=TrainConfig.from_dict(Run.open(path).config), settings_of=path)
    read = train.defaults(arguments)
    return Check(preset=read.preset, config=read.config)
