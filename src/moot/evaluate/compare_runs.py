"""Several runs side by side. Runs that differ only in their seed are one group; questions are paired, seeds are not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from moot.errors import ConfigError
from moot.evaluate.figures import Curve, Panel, Picture
from moot.evaluate.report import Report, ReportRow, saved_reports
from moot.evaluate.table import p_value, percent, signed
from moot.runs import Run
from moot.runs.run import tokens_spent
from moot.settings.train import TrainConfig
from moot.util.intervals import seeds_interval, seeds_share, sign_flip_p

RowOfRun = Mapping[str, ReportRow]
_SEED = re.compile(r"[-_.]?seed[-_=]?\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    label: str
    runs: tuple[Run, ...]
    settings: dict[str, Any]
    """What it has otherwise than some other group."""

    @property
    def seeds(self) -> list[int]:
        return [run.config["seed"] for run in self.runs]

    def as_dict(self) -> dict[str, Any]:
        runs = [str(run.path) for run in self.runs]
        return {"label": self.label, "seeds": self.seeds, "runs": runs, "settings": self.settings}


def groups(runs: Sequence[Run]) -> list[Group]:
    """In the order in which each first comes up."""
    by_settings: dict[str, list[Run]] = {}
    for run in runs:
        if not isinstance(run.config.get("seed"), int):
            damaged = f"{run.path / 'run.json'} is damaged: it has no seed"
            raise ConfigError(f"{damaged}; leave the run out, or put back what moot wrote")
        by_settings.setdefault(json.dumps(_without_seed(_whole(run.config)), sort_keys=True), []).append(run)
    flat = [_flat(json.loads(key)) for key in by_settings]
    names = {name for settings in flat for name in settings}
    differing = sorted(name for name in names if len({json.dumps(own.get(name)) for own in flat}) > 1)
    stems = [_SEED.sub("", members[0].path.resolve().name) or members[0].path.name for members in by_settings.values()]
    made = []
    for members, settings, stem in zip(by_settings.values(), flat, stems, strict=True):
        own = {name: settings.get(name) for name in differing}
        spelled = ", ".join(f"{name.rsplit('.', 1)[-1]} {value}" for name, value in list(own.items())[:3])
        made.append(Group(stem if stems.count(stem) == 1 else f"{stem} ({spelled})", tuple(members), own))
    return made


def _whole(config: dict[str, Any]) -> dict[str, Any]:
    """With the settings that came later than the run, so that runs of two versions are not told apart by a default."""
    try:
        whole = TrainConfig.from_dict(config)
        return {**whole.as_dict(), "prompts": str(whole.prompts)}
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return config


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in config.items() if name != "seed"}
    if isinstance(start := rest.get("start"), str):
        rest["start"] = _SEED.sub("", start)  # each seed has a start of its own
    return rest


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


# What was saved by `moot eval`


def saved_report(run: Run, pattern: str, step: int | None = None) -> Report | None:
    """Of the evaluations whose folder fits `pattern`, the one of `step`, or of the last; the newest of several."""
    fitting = [report for report in saved_reports(run.path, pattern) if step in (None, report.step)]
    return max(reversed(fitting), key=lambda report: report.step, default=None)


@dataclass(frozen=True)
class Entry:
    """One line of the table in each mode: some runs' evaluations."""

    label: str
    reports: Mapping[str, Report]
    """By run."""
    versus: str | None = None
    """The label of the entry that it is compared with."""


def entries(members: Sequence[Group], patterns: Sequence[str], step: int | None = None) -> list[Entry]:
    """One pattern: every group against the first. Several: each group against itself at the first pattern."""
    rows: list[Entry] = []
    for group in members:
        own: list[Entry] = []
        for pattern in patterns:
            found = {str(run.path): saved_report(run, pattern, step) for run in group.runs}
            if reports := {run: report for run, report in found.items() if report is not None}:
                label = group.label if len(patterns) == 1 else f"{group.label}, {pattern}"
                own.append(Entry(label, reports, own[0].label if own else None))
        rows += own
    if len(patterns) == 1:
        return [replace(entry, versus=rows[0].label if i else None) for i, entry in enumerate(rows)]
    return rows


def compared(table: Sequence[Entry], seed: int = 0) -> list[dict[str, Any]]:
    """One row for each mode and entry, as plain data."""
    modes = list(dict.fromkeys(row.name for entry in table for report in entry.reports.values() for row in report.rows))
    made: list[dict[str, Any]] = []
    for mode in modes:
        rows: dict[str, dict[str, ReportRow]] = {}
        for entry in table:
            own = {run: row for run, report in entry.reports.items() for row in report.rows if row.name == mode}
            if own:
                rows[entry.label] = own
                made.append(_compared(mode, entry, own, rows.get(entry.versus or ""), seed))
    return made


def _compared(mode: str, entry: Entry, rows: RowOfRun, base: RowOfRun | None, seed: int) -> dict[str, Any]:
    own = list(rows.values())
    common = _common(own)
    judged = [q for q in common if all(q in run.by_question.get("judge", {}) for run in own)]

    def values(metric: str) -> list[float]:
        return [number["value"] for run in own if (number := run.metrics.get(metric)) is not None]

    row: dict[str, Any] = {
        "mode": mode,
        "group": entry.label,
        "seeds": len(own),
        "questions": len(common),
        "accuracy": _share(own, "accuracy", common, seed),
        "judge": _share(own, "judge", judged, seed),
        "over_seeds": values("accuracy"),
        "tokens": float(np.mean([run.tokens for run in own])),
        "difference": None,
    }
    for metric in ("format", "pass@k", "cons@k", "winner", "comparisons"):
        row[metric] = float(np.mean(found)) if (found := values(metric)) else None
    if base is not None and (both := _common([*own, *base.values()])):
        row["difference"] = {**_difference(rows, base, both, seed), "versus": entry.versus, "questions": len(both)}
    return row


def _difference(rows: RowOfRun, base: RowOfRun, questions: Sequence[str], seed: int) -> dict[str, float]:
    """The same runs at two moments are paired; different runs are not, whatever their seeds."""
    ours, theirs = _values(list(rows.values()), questions), _values(list(base.values()), questions)
    if set(rows) == set(base):
        before = dict(zip(base, theirs, strict=True))
        gaps = [np.subtract(now, before[run]) for run, now in zip(rows, ours, strict=True)]
        interval = seeds_interval(gaps, seed=seed)
    else:
        interval = seeds_interval(ours, theirs, seed=seed)
    return {**interval.as_dict(), "p": sign_flip_p(np.mean(ours, axis=0) - np.mean(theirs, axis=0), seed=seed)}


def _common(rows: Sequence[ReportRow]) -> list[str]:
    """Questions that every run answered."""
    first, *others = (row.by_question.get("accuracy", {}) for row in rows)
    return [question for question in first if all(question in other for other in others)]


def _share(rows: Sequence[ReportRow], metric: str, questions: Sequence[str], seed: int) -> dict[str, float] | None:
    if not questions:
        return None
    tops, bottoms = ([[row.by_question[metric][q][side] for q in questions] for row in rows] for side in (0, 1))
    interval = seeds_share(tops, bottoms, seed=seed)
    return None if interval is None else interval.as_dict()


def _values(rows: Sequence[ReportRow], questions: Sequence[str]) -> list[list[float]]:
    return [[row.by_question["accuracy"][q][0] / row.by_question["accuracy"][q][1] for q in questions] for row in rows]


# Curves


PANELS = (
    Panel("debate", "right answers in debate, held out", "eval", "test_*/correct", True, saved=("debate", "accuracy")),
    Panel(
        "direct", "right answers alone, held out", "eval", "test_*/direct/accuracy", True, saved=("direct", "accuracy")
    ),
    Panel(
        "plurality", "right by plurality (cons@k), held out", "eval", "test_*/cons@k", True, saved=("debate", "cons@k")
    ),
    Panel(
        "judge", "judges right, held out", "eval", "trust/judge_accuracy", True, level=0.5, saved=("debate", "judge")
    ),
    Panel("votes", "turns with a vote, held out", "eval", "test/turns_with_vote", True),
    Panel("training", "right answers, training", "self_play", "train_*/correct", True),
    Panel("tokens", "tokens per turn, training", "self_play", "env/all/ac_tokens_per_turn"),
)


def picture(members: Sequence[Group], against: str = "step", panels: Sequence[Panel] = PANELS) -> Picture:
    """The panels for which some group has a curve."""
    drawn = []
    for panel in panels:
        if lines := {group.label: line for group in members if (line := curve(group, panel, against))}:
            drawn.append((panel, lines))
    return drawn


def curve(group: Group, panel: Panel, against: str = "step") -> Curve | None:
    """Mean and range over the group's runs."""
    aligned = _aligned(group, panel, against)
    if not aligned:
        return None
    places, values = np.array(aligned).transpose(2, 0, 1)
    ends = (values.min(axis=0).tolist(), values.max(axis=0).tolist())
    return Curve(places.mean(axis=0).tolist(), values.mean(axis=0).tolist(), *ends, len(aligned))


def _aligned(group: Group, panel: Panel, against: str) -> list[list[tuple[float, float]]]:
    """Each run's points, as many for each.

    Runs that were measured equally often are laid over each other moment by moment, because a budget of tokens ends
    them at different steps; others at the steps that all of them have.
    """
    series = [points for run in group.runs if (points := _series(run, panel, against))]
    if len(set(map(len, series))) <= 1:
        return [list(points.values()) for points in series]
    steps = sorted(set.intersection(*map(set, series)))
    return [[points[step] for step in steps] for points in series] if steps else []


def _series(run: Run, panel: Panel, against: str) -> dict[int, tuple[float, float]]:
    """Step -> (where it stands on the axis, value), in order."""
    rows = run.metrics()
    values: dict[int, float] = {}
    for row in rows:
        if (value := panel.value(row)) is not None:
            values[row["step"]] = value
    if not values and panel.saved is not None:
        values = _saved_series(run, *panel.saved)
    if against == "step":
        return {step: (float(step), values[step]) for step in sorted(values)}
    spent = tokens_spent(rows)

    def spent_by(step: int) -> float:
        return max((total for at, total in spent.items() if at <= step), default=0.0)

    return {step: (spent_by(step), values[step]) for step in sorted(values)}


def _saved_series(run: Run, mode: str, metric: str) -> dict[int, float]:
    values: dict[int, float] = {}
    for report in saved_reports(run.path):
        for row in report.rows:
            if row.name == mode and (number := row.metrics.get(metric)) is not None:
                values[report.step] = number["value"]
    return values


def ends(group: Group, panel: Panel) -> dict[str, Any] | None:
    """The first value of a metric that all runs have, and each run's last: mean and standard deviation over seeds."""
    series = [list(points.values()) for run in group.runs if (points := _series(run, panel, "step"))]
    if not series:
        return None

    def spread(values: list[float]) -> dict[str, float | None]:
        return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None}

    begun = [points[0][1] for points in _aligned(group, panel, "step") or series]
    return {"first": spread(begun), "last": spread([points[-1][1] for points in series]), "runs": len(series)}


def open_runs(paths: Sequence[Any]) -> list[Run]:
    opened = [Run.open(path) for path in paths]
    seen = [run.path.resolve() for run in opened]
    if repeated := next((path for path in seen if seen.count(path) > 1), None):
        raise ConfigError(f"{repeated} is named twice; name each run once")
    return opened


# All of it, as tables


CaptionedTable = tuple[list[str], list[list[str]], str]
"""Header, rows, caption."""


@dataclass(frozen=True)
class ComparedRuns:
    members: list[Group]
    tables: list[CaptionedTable]
    """Those that have rows: the saved evaluations, and what was measured during training."""
    numbers: dict[str, Any]
    """The same as plain data."""
    without: list[str]
    """Runs that no saved evaluation fits."""
    apart: list[tuple[str, str]]
    """Rows of the table that have no question in common, so that nothing is subtracted."""


def compare_runs(
    paths: Sequence[Any], patterns: Sequence[str] = ("*",), step: int | None = None, seed: int = 0
) -> ComparedRuns:
    """Runs against the first one's group, or, with several patterns, each group against itself at the first of them."""
    members = groups(open_runs(paths))
    table = entries(members, patterns, step)
    _check_same(table)
    rows = compared(table, seed)
    training = {group.label: {panel.title: ends(group, panel) for panel in PANELS} for group in members}
    evaluated = {run for entry in table for run in entry.reports}
    return ComparedRuns(
        members,
        [table for table in (_evaluations(rows), _curves(members)) if table[1]],
        {"groups": [group.as_dict() for group in members], "evaluations": rows, "training": training},
        [str(run.path) for group in members for run in group.runs if str(run.path) not in evaluated],
        _apart(table, rows),
    )


def _apart(table: Sequence[Entry], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    both = {(row["mode"], row["group"]) for row in rows}
    bare = [(row["mode"], row["group"]) for row in rows if row["difference"] is None]
    pairs = {entry.label: (entry.label, entry.versus) for entry in table if entry.versus is not None}
    found = [pairs[label] for mode, label in bare if label in pairs and (mode, pairs[label][1]) in both]
    return list(dict.fromkeys(found))


def _check_same(table: Sequence[Entry]) -> None:
    """Accuracies on different tasks are not comparable, whatever the table would look like."""
    tasks = {report.settings["task"]: entry.label for entry in table for report in entry.reports.values()}
    if len(tasks) > 1:
        named = ", ".join(f"{task} ({label})" for task, label in tasks.items())
        raise ConfigError(f"the saved evaluations are of different tasks: {named}; choose with --evals")


def _evaluations(rows: Sequence[dict[str, Any]]) -> CaptionedTable:
    plain = ("format", "pass@k", "cons@k")
    header = ["mode", "run", "seeds", "accuracy", "minus the first", "p", *plain, "judges right", "tokens"]
    made = []
    for row in rows:
        told = [row["mode"], row["group"], str(row["seeds"]), percent(row["accuracy"], bounds=True)]
        told += [signed(row["difference"]), p_value(row["difference"]), *(_percent(row[name]) for name in plain)]
        made.append([*told, percent(row["judge"], bounds=True), f"{row['tokens']:,.0f}"])
    return header, made, "On held-out questions, 95% intervals over questions and seeds"


def _curves(members: Sequence[Group]) -> CaptionedTable:
    made = []
    for panel in PANELS:
        for group in members:
            if (values := ends(group, panel)) is not None:
                first, last = (_spread(values[end], panel.share) for end in ("first", "last"))
                made.append([panel.title, group.label, str(values["runs"]), first, last])
    return ["what", "run", "seeds", "first", "last"], made, "During training: mean and standard deviation over seeds"


def _spread(values: dict[str, float | None], share: bool) -> str:
    scale = 100 if share else 1
    sd = "" if values["sd"] is None else f" ± {scale * values['sd']:.1f}"
    return f"{scale * (values['mean'] or 0.0):.1f}{sd}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
