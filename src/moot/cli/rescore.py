"""`moot rescore`: what the votes of a run would have taught under another reward; a table for people, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table

from moot.cli.console import Terminal, bar
from moot.cli.ending import complain
from moot.debate.protocol import preset
from moot.debate.types import ConfigError
from moot.records import Run
from moot.records.choosing import pick_steps
from moot.rescore import SCORING, SPOKEN, Change, Rescored, Totals, rescore
from moot.terminal import one_line

YesNo = Literal["yes", "no"]
AS_TRAINED = "(default: as trained)"


@dataclass(frozen=True)
class Rescore:
    """What the votes of a run would have taught under another reward, ballot or estimator. Nothing is played again, nothing is changed.

    Name what should differ; all else stays as the run was trained. Choices that change what was said (contract, schedule, visible,
    layout, ...) cannot be made afterwards.
    """

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="run", metavar="RUN")]
    """The run's folder."""
    protocol: Annotated[
        Literal["v1", "v2", "v2_literal"] | None, tyro.conf.arg(metavar="{v1,v2,v2_literal}", help_behavior_hint=AS_TRAINED)
    ] = None
    """Count votes as this preset does; the debates stay as they were played. Single choices below win over it."""
    reward: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=AS_TRAINED)] = None
    """win_rate, win_minus_loss, generator_judge, truth, majority, or path.py:function."""
    advantage: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=AS_TRAINED)] = None
    """center_group, center_round, center_question, center_seat, center_forecast, normalize_batch, or path.py:function."""
    one_ballot_per_pair: Annotated[YesNo | None, tyro.conf.arg(metavar="| --no-one-ballot-per-pair", help_behavior_hint=AS_TRAINED)] = None
    """Whether only an author's last word on a pair in a turn counts."""
    judge_consensus: Annotated[
        Literal["all", "leave_one_out"] | None, tyro.conf.arg(metavar="{all,leave_one_out}", help_behavior_hint=AS_TRAINED)
    ] = None
    """Whose votes make the consensus a judge is measured by."""
    enable_format_penalty: Annotated[YesNo | None, tyro.conf.arg(metavar="| --no-enable-format-penalty", help_behavior_hint=AS_TRAINED)] = (
        None
    )
    """Whether a judge who could vote and did not loses 0.5."""
    literal: Annotated[YesNo | None, tyro.conf.arg(metavar="| --no-literal", help_behavior_hint=AS_TRAINED)] = None
    """Whether generator_judge is counted to the letter of its source."""
    lambda_gen: Annotated[float | None, tyro.conf.arg(metavar="WEIGHT", help_behavior_hint=AS_TRAINED)] = None
    """Weight of the generator advantages."""
    lambda_judge: Annotated[float | None, tyro.conf.arg(metavar="WEIGHT", help_behavior_hint=AS_TRAINED)] = None
    """Weight of the judge advantages."""
    reward_mix: Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint=AS_TRAINED)] = None
    """Share of ground truth in the reward."""
    correct_bonus: Annotated[float | None, tyro.conf.arg(metavar="NUMBER", help_behavior_hint=AS_TRAINED)] = None
    """Added to the reward of a right answer."""
    voters: Annotated[Literal["both", "agents", "judges"] | None, tyro.conf.arg(metavar="NAME", help_behavior_hint=AS_TRAINED)] = None
    """Whose votes count: agents, judges without a seat, or both."""
    drop_own_answer: Annotated[YesNo | None, tyro.conf.arg(metavar="| --no-drop-own-answer", help_behavior_hint=AS_TRAINED)] = None
    """Leave out votes of an agent who holds one of the two answers."""
    vote_weight: Annotated[Literal["one", "forecast"] | None, tyro.conf.arg(metavar="{one,forecast}", help_behavior_hint=AS_TRAINED)] = None
    """What an agent's vote counts: one, or the chance that it gave its own answer, where forecasts were asked for."""
    discount: Annotated[float | None, tyro.conf.arg(metavar="NUMBER", help_behavior_hint=AS_TRAINED)] = None
    """What a turn gets of the next turn's reward of the same agent; 0 pays each turn its own alone."""
    judge_counts: Annotated[YesNo | None, tyro.conf.arg(metavar="| --no-judge-counts", help_behavior_hint=AS_TRAINED)] = None
    """Whether votes of judges without a seat count, where such judges were asked."""
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

    def run(self) -> int:
        opened = Run.open(self.run_dir)
        if self.show < 0:
            raise ConfigError(f"show must be 0 or more, got {self.show}")
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
        given: dict[str, Any] = {}
        if self.protocol:
            given = dict(preset(self.protocol).scoring.as_dict())
        for name in SCORING:
            value = getattr(self, name)
            if value is not None:
                given[name] = value == "yes" if value in ("yes", "no") else value
        return given


def respelled(arguments: list[str]) -> list[str]:
    """`--literal` and `--no-literal`, as everywhere else; what is not named stays as the run was trained."""
    spelled: list[str] = []
    for i, argument in enumerate(arguments):
        name = argument.removeprefix("--").removeprefix("no-").replace("_", "-")
        if not argument.startswith("--") or name not in SWITCHES:
            spelled.append(argument)
        elif argument.startswith("--no-"):
            spelled += [f"--{name}", "no"]
        else:
            spelled += [f"--{name}"] if arguments[i + 1 : i + 2] in (["yes"], ["no"]) else [f"--{name}", "yes"]
    return spelled


SWITCHES = ("one-ballot-per-pair", "enable-format-penalty", "literal", "drop-own-answer", "judge-counts")


def defaults(arguments: list[str]) -> None:
    """Choices that cannot be made afterwards get their own answer, not "unknown option"."""
    for argument in arguments:
        name = argument.split("=", 1)[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        if argument.startswith("--") and name in SPOKEN:
            raise ConfigError(f"{name} cannot be changed afterwards: {SPOKEN[name]}; train or evaluate again with it")


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
    old_side, new_side = rescored.before, rescored.after
    rows = [
        ("reward", one_line(old_side.reward, 40), one_line(new_side.reward, 40), ""),
        ("estimator", one_line(old_side.advantage, 40), one_line(new_side.advantage, 40), ""),
    ]
    for name, pick, style in ROWS:
        old, new = pick(rescored.before), pick(rescored.after)
        moved = "" if old is None or new is None else _moved(new - old, style)
        rows.append((name, "–" if old is None else format(old, style), "–" if new is None else format(new, style), moved))
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
        console.say(f"  {change.step}/{change.number}  {_outcome(change)}  {one_line(change.question, 60)}")


def _what(rescored: Rescored) -> str:
    if not rescored.choices:
        return "scored once more as they were trained"
    said = ", ".join(f"{name} {one_line(str(new))} for {one_line(str(old))}" for name, (old, new) in rescored.choices.items())
    return f"with {said}"


def notes(rescored: Rescored) -> list[str]:
    lines = []
    if not rescored.choices:
        same = not rescored.largest_difference
        lines.append("Every advantage is as it was saved." if same else f"Advantages differ by up to {rescored.largest_difference:.3g}.")
    share = rescored.changed / rescored.after.debates if rescored.after.debates else 0.0
    lines.append(f"The winner changes in {rescored.changed} of {rescored.after.debates} debates ({share:.1%}).")
    if rescored.failed:
        lines.append(f"{rescored.failed} debates that the engine lost were never scored.")
    if rescored.damaged_lines:
        lines.append(f"{rescored.damaged_lines} damaged lines were left out.")
    if 0 < len(rescored.changes) < rescored.changed:
        lines.append(f"The first {len(rescored.changes)}:")
    return lines


def _outcome(change: Change) -> str:
    return f"{_winner(change.before, change.correct_before)} -> {_winner(change.after, change.correct_after)}"


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
        for each in rescored.changes:
            winners = f"{_winner(each.before, each.correct_before)} | {_winner(each.after, each.correct_after)}"
            lines.append(f"| {each.step}/{each.number} | {winners} | {cell(each.question)} |")
    return "\n".join(lines)
