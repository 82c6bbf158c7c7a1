"""`moot rescore`: what the votes of a run would have taught under another reward; a table for people, JSON for
programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table

from moot.cli.console import Terminal, bar
from moot.cli.ending import complain
from moot.cli.registry import PEER_PRESETS, PeerProtocol, describe, option_names
from moot.debate.protocols import preset
from moot.debate.scoring import Scoring
from moot.errors import ConfigError
from moot.rl.lookup import estimator_names
from moot.runs import Run
from moot.runs.select import pick_steps
from moot.tools.rescore import SCORING, SPOKEN, Rescored, Totals, own_scoring, rescore
from moot.util.safe_text import one_line

describe(Scoring, "advantage", f"{estimator_names()}; auto is the one that belongs to the reward.")


@dataclass(frozen=True)
class _Choices(Scoring):
    evaluation_credit: tyro.conf.Suppress[Literal["generator", "judge", "nobody"]] = "generator"
    """Decides which tokens learn, and no number here."""


@dataclass(frozen=True)
class Rescore:
    """What the votes of a run would have taught under another reward, ballot or estimator. Nothing is played again,
    nothing is changed.

    Name what should differ; all else stays as the run was trained, which moot rescore RUN --help shows. Choices that
    change what was said (contract, schedule, visible, layout, ...) cannot be made afterwards.
    """

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="run", metavar="RUN")]
    """The run's folder, or a file of debates, such as moot label writes."""
    protocol: Annotated[
        PeerProtocol | None,
        tyro.conf.arg(metavar=f"{{{','.join(PEER_PRESETS)}}}", help_behavior_hint="(default: as trained)"),
    ] = None
    """Count votes as this preset does; the debates stay as they were played. Single choices below win over it."""
    scoring: Annotated[Scoring, tyro.conf.OmitArgPrefixes] = field(default_factory=_Choices)
    steps: Annotated[str | None, tyro.conf.arg(metavar="A-B", help_behavior_hint="(default: all)")] = None
    """Only these steps: 12, or 10-20."""
    show: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """How many of the debates whose winner changes to list; --json lists up to 1000 unless this is more."""
    trust_run: bool = False
    """Run the reward and the estimator that the run itself names, where they are a file of somebody's; shows which."""
    json: bool = False
    """Print one JSON object."""
    markdown: bool = False
    """Print the table as Markdown."""
    named: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The choices that stand on the command line."""

    def run(self) -> int:
        if self.show < 0:
            raise ConfigError(f"show must be 0 or more, got {self.show}")
        if not self.run_dir.is_file():
            return self._recounted(Run.open(self.run_dir))
        from moot.page.transcripts import as_run

        with as_run(self.run_dir) as opened:
            return self._recounted(opened)

    def _recounted(self, opened: Run) -> int:
        most = max(self.show, 1000) if self.json else self.show
        steps = pick_steps(opened, self.steps)
        with bar("rescoring", len(steps)) as advance:
            rescored = rescore(
                opened,
                self.choices(),
                steps,
                most,
                lambda _: advance(),
                self.trust_run,
                lambda text: print(f"Note: {text}", file=sys.stderr),
            )
        rescored = replace(rescored, run=str(self.run_dir))  # a file is read in a folder of the moment
        if self.json:
            print(json.dumps(rescored.as_json()))
        elif self.markdown:
            print(as_markdown(rescored))
        else:
            show(rescored, Terminal())
        for damaged in rescored.damaged:
            print(f"step {damaged.step}, line {damaged.line}: {one_line(damaged.reason, 200)}", file=sys.stderr)
        if not rescored.after.debates:
            complain("there is no debate that could be scored")
        return 1 if rescored.damaged or not rescored.after.debates else 0

    def choices(self) -> dict[str, Any]:
        whole = preset(self.protocol).scoring.as_dict() if self.protocol else {}
        given = {name: value for name, value in whole.items() if name in SCORING}
        return {**given, **{name: getattr(self.scoring, name) for name in self.named}}


def respelled(arguments: list[str]) -> list[str]:
    """`--literal yes` is `--literal`, and `--literal no` is `--no-literal`."""
    spelled: list[str] = []
    for argument in arguments:
        if argument in ("yes", "no") and spelled and spelled[-1].removeprefix("--") in SWITCHES:
            spelled[-1] = f"--{'no-' * (argument == 'no')}{spelled[-1].removeprefix('--')}"
        else:
            spelled.append(argument)
    return spelled


SWITCHES = tuple(name.replace("_", "-") for name in SCORING if isinstance(getattr(Scoring(), name), bool))


def defaults(arguments: list[str]) -> Rescore:
    """What is not named stays as the run was trained. Choices that cannot be made afterwards get their own answer, not
    "unknown option"."""
    words = {word.removeprefix("--").removeprefix("no-").replace("-", "_") for word in option_names(arguments)}
    if refused := next((name for name in SPOKEN if name in words), None):
        raise ConfigError(f"{refused} cannot be changed afterwards: {SPOKEN[refused]}; train or evaluate again with it")
    run = next((Path(argument) for argument in arguments if Run.exists(Path(argument))), None)
    scoring = _Choices() if run is None else _Choices(**vars(own_scoring(Run.open(run))))
    return Rescore(tyro.MISSING, scoring=scoring, named=tuple(name for name in SCORING if name in words))


ROWS: tuple[tuple[str, Callable[[Totals], float | None], str], ...] = (
    ("reward of an agent, mean", lambda t: t.reward_mean, "+.3f"),
    ("debates with a signal", lambda t: t.with_signal, ".1%"),
    ("debates with a gradient", lambda t: t.with_gradient, ".1%"),
    ("size of advantages, mean", lambda t: t.advantage_size, ".3f"),
    ("advantage of right answers", lambda t: t.advantage_right, "+.3f"),
    ("advantage of wrong answers", lambda t: t.advantage_wrong, "+.3f"),
    ("correlation, advantage and right", lambda t: t.correlation, "+.3f"),
    ("debates with a winner", lambda t: t.winners / t.debates if t.debates else None, ".1%"),
    ("winners that are right", lambda t: t.winner_correct, ".1%"),
    ("votes for the right answer", lambda t: t.judge_accuracy, ".1%"),
)


def table(rescored: Rescored) -> list[tuple[str, str, str, str]]:
    before, after = rescored.before, rescored.after
    rows = [
        ("reward", one_line(before.reward, 40), one_line(after.reward, 40), ""),
        ("estimator", one_line(before.advantage, 40), one_line(after.advantage, 40), ""),
    ]
    for name, pick, style in ROWS:
        old, new = pick(before), pick(after)
        moved = "" if old is None or new is None else _moved(new - old, style)
        rows.append(
            (name, "–" if old is None else format(old, style), "–" if new is None else format(new, style), moved)
        )
    return rows


def _moved(by: float, style: str) -> str:
    text = f"{100 * by:+.1f} pp" if "%" in style else format(by, "+.3f")
    return "" if not re.search("[1-9]", text) else text


def show(rescored: Rescored, console: Terminal) -> None:
    console.say(f"{rescored.after.debates} debates of {rescored.run}, {_what(rescored)}", "bold")
    shown = Table(box=None, pad_edge=False, header_style="dim")
    shown.add_column("")
    for name in ("as trained", "rescored", "difference"):
        shown.add_column(name, justify="right")
    for row in table(rescored):
        shown.add_row(*row)
    console.print(shown)
    for line in notes(rescored):
        console.say(line)
    for change in rescored.changes:
        winners = f"{_winner(change.before, change.correct_before)} -> {_winner(change.after, change.correct_after)}"
        console.say(f"  {change.step}/{change.number}  {winners}  {one_line(change.question, 60)}")


def _what(rescored: Rescored) -> str:
    if not rescored.choices:
        return "scored once more as they were trained"
    said = ", ".join(
        f"{name} {one_line(str(new))} for {one_line(str(old))}" for name, (old, new) in rescored.choices.items()
    )
    return f"with {said}"


def notes(rescored: Rescored) -> list[str]:
    lines = []
    if not rescored.choices:
        same = not rescored.largest_difference
        lines.append(
            "Every advantage is as it was saved."
            if same
            else f"Advantages differ by up to {rescored.largest_difference:.3g}."
        )
    share = rescored.changed / rescored.after.debates if rescored.after.debates else 0.0
    lines.append(f"The winner changes in {rescored.changed} of {rescored.after.debates} debates ({share:.1%}).")
    if rescored.failed:
        lines.append(f"{rescored.failed} debates that the engine lost were never scored.")
    if rescored.damaged_lines:
        lines.append(f"{rescored.damaged_lines} damaged lines were left out.")
    if 0 < len(rescored.changes) < rescored.changed:
        lines.append(f"The first {len(rescored.changes)}:")
    return lines


def _winner(agent: int | None, right: bool | None) -> str:
    if agent is None:
        return "nobody"
    return f"Agent {agent}" + ("" if right is None else ", right" if right else ", wrong")


def cell(text: str) -> str:
    """What a model wrote must not end a cell, or begin a tag."""
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", one_line(text, 120)).replace("&", "&amp;").replace("<", "&lt;")


def as_markdown(rescored: Rescored) -> str:
    lines = [f"{rescored.after.debates} debates of {cell(rescored.run)}, {cell(_what(rescored))}.", ""]
    lines += ["| | as trained | rescored | difference |", "|---|---:|---:|---:|"]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in table(rescored)]
    lines += ["", " ".join(notes(rescored))]
    if rescored.changes:
        lines += ["", "| debate | winner as trained | winner rescored | question |", "|---|---|---|---|"]
        for change in rescored.changes:
            winners = f"{_winner(change.before, change.correct_before)} | {_winner(change.after, change.correct_after)}"
            lines.append(f"| {change.step}/{change.number} | {winners} | {cell(change.question)} |")
    return "\n".join(lines)
