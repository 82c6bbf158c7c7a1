"""`moot compare`: several runs and seeds in one table and one picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from moot.cli.console import Terminal
from moot.debate.types import ConfigError
from moot.evaluate.comparing import PANELS, Entry, Group, compared, ends, entries, groups, open_runs, picture
from moot.evaluate.table import latex, legend, markdown, p_value, percent, rich_tables, signed
from moot.figures import draw


@dataclass(frozen=True)
class Compare:
    """Put runs side by side: one table, with differences from the first run on the same questions, and one figure of their curves.

    Runs that differ only in their seed are one row. The table is made of what `moot eval` saved in the runs; the figure, and a
    second table, of what was measured during training.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")]
    """Folders of runs; the first one's group is what the others are compared with."""
    evals: tuple[str, ...] = ("*",)
    """Which saved evaluations, by name or pattern; of those that fit, the one of the last step. Several names (warm final) compare each run
    with itself instead: at the later ones, minus at the first."""
    step: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Only evaluations of this step."""
    out: Path = Path("compare")
    """Folder for table.md, table.tex, compare.json, curves.png and curves.svg."""
    against: Literal["step", "tokens"] = "step"
    """What the curves run over: training steps, or tokens sampled in self-play."""
    no_figure: bool = False
    """Leave the figure out; it needs matplotlib."""
    seed: int = 0
    """Of the bootstrap."""
    json: bool = False
    """Print the numbers as JSON."""
    markdown: bool = False
    """Print the tables as Markdown."""
    latex: bool = False
    """Print the tables as LaTeX."""

    def run(self) -> int:
        if not self.runs:
            raise ConfigError("name the runs to compare: moot compare RUN RUN …")
        console = Terminal(stderr=self.json or self.markdown or self.latex)
        members = groups(open_runs(self.runs))
        table = entries(members, self.evals, self.step)
        _check_same(table)
        rows = compared(table, self.seed)
        numbers = {"groups": [_about(group) for group in members], "evaluations": rows, "training": _training(members)}
        tables = [table for table in (_evaluations(rows), _curves(members)) if table[1]]
        self._write(tables, numbers)
        drawn = [] if self.no_figure else self._draw(members, console)
        self._show(tables, numbers, console)
        evaluated = {run for entry in table for run in entry.reports}
        without = [str(run.path) for group in members for run in group.runs if str(run.path) not in evaluated]
        if without:
            console.say(f"\nNo saved evaluation: {', '.join(without)}. Make one with: moot eval RUN", "yellow")
        files = ["table.md", "table.tex", "compare.json", *(path.name for path in drawn)]
        console.say(f"\nIn {self.out}: {', '.join(files)}", "green")
        return 0

    def _draw(self, members: Sequence[Group], console: Terminal) -> list[Path]:
        """The table does not wait for a package that only the figure needs."""
        axis = "step" if self.against == "step" else "tokens sampled in self-play"
        panels = picture(members, self.against)
        try:
            return draw(panels, self.out / "curves", axis=axis) if panels else []
        except ConfigError as missing:
            console.note(f"no figure: {missing}")
            return []

    def _write(self, tables: Sequence[_Table], numbers: dict[str, Any]) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "compare.json").write_text(json.dumps(numbers, indent=1))
        (self.out / "table.md").write_text("\n".join(f"{caption}\n\n{markdown(header, rows)}" for header, rows, caption in tables))
        (self.out / "table.tex").write_text("\n".join(latex(*table) for table in tables))

    def _show(self, tables: Sequence[_Table], numbers: dict[str, Any], console: Terminal) -> None:
        if self.json:
            print(json.dumps(numbers))
        elif self.markdown or self.latex:
            print((self.out / ("table.md" if self.markdown else "table.tex")).read_text(), end="")
        else:
            for header, rows, caption in tables:
                console.say(f"\n{caption}", "bold")
                for part in rich_tables(header, rows):
                    console.print(part)
                    console.print()
                console.say("\n".join(legend(header)), "dim")


_Table = tuple[list[str], list[list[str]], str]


def _check_same(table: Sequence[Entry]) -> None:
    """Accuracies on different tasks are not comparable, whatever the table would look like."""
    tasks = {report.settings["task"]: entry.label for entry in table for report in entry.reports.values()}
    if len(tasks) > 1:
        named = ", ".join(f"{task} ({label})" for task, label in tasks.items())
        raise ConfigError(f"the saved evaluations are of different tasks: {named}; choose with --evals")


def _evaluations(rows: Sequence[dict[str, Any]]) -> _Table:
    header = ["mode", "run", "seeds", "accuracy", "minus the first", "p", "format", "pass@k", "cons@k", "judges right", "tokens"]
    made = [
        [
            row["mode"],
            row["group"],
            str(row["seeds"]),
            percent(row["accuracy"], bounds=True),
            signed(row["difference"]),
            p_value(row["difference"]),
            _percent(row["format"]),
            _percent(row["pass@k"]),
            _percent(row["cons@k"]),
            percent(row["judge"], bounds=True),
            f"{row['tokens']:,.0f}",
        ]
        for row in rows
    ]
    return header, made, "On held-out questions, 95% intervals over questions and seeds"


def _curves(members: Sequence[Group]) -> _Table:
    made = []
    for panel in PANELS:
        for group in members:
            if (values := ends(group, panel)) is not None:
                made.append(
                    [panel.title, group.label, str(values["runs"]), *(_spread(values[end], panel.share) for end in ("first", "last"))]
                )
    return ["what", "run", "seeds", "first", "last"], made, "During training: mean and standard deviation over seeds"


def _spread(values: dict[str, float | None], share: bool) -> str:
    scale = 100 if share else 1
    sd = "" if values["sd"] is None else f" ± {scale * values['sd']:.1f}"
    return f"{scale * (values['mean'] or 0.0):.1f}{sd}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _training(members: Sequence[Group]) -> dict[str, Any]:
    return {group.label: {panel.title: ends(group, panel) for panel in PANELS} for group in members}


def _about(group: Group) -> dict[str, Any]:
    return {"label": group.label, "seeds": group.seeds, "runs": [str(run.path) for run in group.runs], "settings": group.settings}
