"""`moot data check`: whether a task's right answers, grader and splits can be trusted, before anything is trained on
them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro
from rich.table import Table
from rich.text import Text

from moot.cli.console import Terminal, bar
from moot.cli.registry import TASK_NAMES
from moot.errors import ConfigError
from moot.tasks import load
from moot.tasks.check import DataReport, SplitReport, check, gather
from moot.util.safe_text import one_line

SHOWN = 10


@dataclass(frozen=True)
class Data:
    """Check a task's data: every right answer passes its own grader, a perturbed one does not, nothing is there twice,
    and no test question is trained on.

    TASK is what --task takes elsewhere; gsm8k:train=FILE,test=FILE reads files instead of the hub.
    Exit status 1 when something is wrong.
    """

    action: Annotated[Literal["check"], tyro.conf.Positional]
    """What to do with it."""
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK", help=TASK_NAMES)]
    questions: int = 0
    """Look at the first so many questions of each split; 0 is all of a set, and 1000 of a task without end."""
    seed: int = 0
    """Which questions of a task without end."""
    json: bool = False
    """Print one JSON object, with every trouble in it."""

    def run(self) -> int:
        if self.questions < 0:
            raise ConfigError(f"questions must be 0 or more, got {self.questions}")
        with Terminal(stderr=True).status(f"loading {one_line(self.task)}"):
            task = load(self.task, self.seed)
            splits = gather(task, self.questions)
        with bar("checking", sum(map(len, splits.values()))) as advance:
            report = check(task, splits, advance)
        if self.json:
            print(json.dumps(report.as_json()))
        else:
            show(report, Terminal())
        return 0 if report.good else 1


def show(report: DataReport, console: Terminal) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(report.task)
    for heading in ("questions", "right accepted", "wrong refused", "only as text", "given up", "duplicates"):
        table.add_column(heading, justify="right")
    for name, split in report.splits.items():
        tries = ((split.right_tried, split.failing), (split.wrong_tried, split.passing))
        graded = [f"{tried - len(bad)} of {tried}" if tried else "–" for tried, bad in tries]
        counted = [str(len(troubles)) if split.graded else "–" for troubles in (split.as_text, split.given_up)]
        table.add_row(name, str(split.questions), *graded, *counted, str(split.duplicates))
    console.print(table)
    for note in report.notes:
        console.print(Text(f"Note: {note}.", style="yellow"))
    for name, split in report.splits.items():
        for style, heading, lines in _troubles(split):
            _list(console, style, f"{name}: {heading}", lines)
    _list(console, "red", "questions that are trained on and tested", [f"{a} is {b}" for a, b in report.overlap])
    for name, split in report.splits.items():
        if report.wrong and split.wrong_tried:
            told = f"{name}: tried as wrong: {report.wrong}; {_others(split)}."
            console.print(Text(told, style="yellow" if split.others_accepted else ""))
    if not report.good:
        console.print(Text("Something is wrong: see above.", style="red"))
    elif report.wrong and not any(split.right_tried for split in report.splits.values()):
        console.print(Text("Nothing found; right answers were not tried.", style="yellow"))
    elif any(split.others_accepted for split in report.splits.values()):
        console.print(Text("Nothing surely wrong: see above.", style="yellow"))
    else:
        console.print(Text("Nothing wrong.", style="green"))


def _others(split: SplitReport) -> str:
    if not split.others_tried:
        return "no answer of another question is known"
    accepted = f"answers of other questions: accepted {len(split.others_accepted)} of {split.others_tried}"
    return f"{accepted} (look whether they are right there too)" if split.others_accepted else accepted


def _troubles(split: SplitReport) -> Iterator[tuple[str, str, list[str]]]:
    """Of one split: how bad each kind is, what it is, and where it was found."""
    given = "{0.id}: {0.given} for {0.right}".format
    right = "{0.id}: {0.right}".format
    yield "red", "right answers that their own grader refuses", [*map(right, split.failing)]
    yield "red", "wrong answers that it accepts", [*map(given, split.passing)]
    yield "red", "questions that stand there with different answers", list(split.contradictions)
    yield "yellow", "answers it can only compare as they stand", [*map(right, split.as_text)]
    yield "yellow", "answers that took the grader too long", [*map(given, split.given_up)]
    yield "yellow", "answers of another question that it accepts", [*map(given, split.others_accepted)]
    yield "yellow", "solutions that end in another answer", [*map(given, split.unlike)]


def _list(console: Terminal, style: str, heading: str, lines: list[str]) -> None:
    if not lines:
        return
    console.print(Text(f"{len(lines)} {heading}:", style=style))
    for line in lines[:SHOWN]:
        console.print(Text(f"  {one_line(line, 110)}"))
    if len(lines) > SHOWN:
        console.print(Text(f"  … and {len(lines) - SHOWN} more (--json lists all)"))
