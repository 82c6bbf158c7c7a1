"""`moot compare`: several runs and seeds in one table and one picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from moot.cli.console import Terminal
from moot.errors import ConfigError
from moot.evaluate.compare_runs import ComparedRuns, Group, compare_runs, picture
from moot.evaluate.figures import draw
from moot.evaluate.table import latex, legend, markdown, rich_tables
from moot.util.disk import write_atomically


@dataclass(frozen=True)
class Compare:
    """Put runs side by side: one table, with differences from the first run on the same questions, and one figure of
    their curves.

    Runs that differ only in their seed are one row. The table is made of what `moot eval` saved in the runs; the
    figure, and a second table, of what was measured during training.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")]
    """Folders of runs; the first one's group is what the others are compared with."""
    evals: tuple[str, ...] = ("*",)
    """Which saved evaluations, by name or pattern; of those that fit, the one of the last step. Several names (warm
    final) compare each run with itself instead: at the later ones, minus at the first."""
    step: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Only evaluations of this step."""
    out: Path = Path("compare")
    """Folder for table.md, table.tex, compare.json, curves.png and curves.svg."""
    against: Literal["step", "tokens"] = "step"
    """What the curves run over: training steps, or tokens sampled in self-play."""
    no_figure: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave the figure out; it needs matplotlib."""
    seed: int = 0
    """Seed of the bootstrap."""
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
        comparison = compare_runs(self.runs, self.evals, self.step, self.seed)
        self._write(comparison)
        drawn = [] if self.no_figure else self._draw(comparison.members, console)
        self._show(comparison, console)
        if comparison.without:
            console.say(
                f"\nNo saved evaluation: {', '.join(comparison.without)}. Make one with: moot eval RUN", "yellow"
            )
        for one, other in comparison.apart:
            why = "so nothing is subtracted; evaluate both with one --task, --seed and --questions"
            console.say(f"\n{one!r} and {other!r} have no question in common, {why}.", "yellow")
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

    def _write(self, comparison: ComparedRuns) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        write_atomically(self.out / "compare.json", json.dumps(comparison.numbers, indent=1).encode())
        captioned = (f"{caption}\n\n{markdown(header, rows)}" for header, rows, caption in comparison.tables)
        write_atomically(self.out / "table.md", "\n".join(captioned).encode())
        write_atomically(self.out / "table.tex", "\n".join(latex(*table) for table in comparison.tables).encode())

    def _show(self, comparison: ComparedRuns, console: Terminal) -> None:
        if self.json:
            print(json.dumps(comparison.numbers))
        elif self.markdown or self.latex:
            print((self.out / ("table.md" if self.markdown else "table.tex")).read_text(), end="")
        else:
            for header, rows, caption in comparison.tables:
                console.say(f"\n{caption}", "bold")
                for part in rich_tables(header, rows):
                    console.print(part)
                    console.print()
                if meanings := legend(header):
                    console.say("\n".join(meanings), "dim")
