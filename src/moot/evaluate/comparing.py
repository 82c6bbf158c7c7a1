"""Several runs side by side. Runs that differ only in their seed are one group; questions are paired, seeds are not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moot.debate.types import ConfigError
from moot.evaluate.report import Report, Row
from moot.evaluate.statistics import seeds_interval, sign_flip_p
from moot.records import Run

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


def groups(runs: Sequence[Run]) -> list[Group]:
    """In the order in which each first comes up."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(json.dumps(_without_seed(run.config), sort_keys=True), []).append(run)
    flat = [_flat(json.loads(key)) for key in found]
    names = {name for each in flat for name in each}
    differing = sorted(name for name in names if len({json.dumps(each.get(name)) for each in flat}) > 1)
    stems = [_SEED.sub("", members[0].path.resolve().name) or members[0].path.name for members in found.values()]
    made = []
    for members, settings, stem in zip(found.values(), flat, stems, strict=True):
        own = {name: settings.get(name) for name in differing}
        spelled = ", ".join(f"{name.rsplit('.', 1)[-1]} {value}" for name, value in list(own.items())[:3])
        made.append(Group(stem if stems.count(stem) == 1 else f"{stem} ({spelled})", tuple(members), own))
    return made


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "seed"}


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


# What was saved by `moot eval`


def saved_report(run: Run, pattern: str, step: int | None = None) -> Report | None:
    """Of the evaluations whose folder fits `pattern`, the one of `step`, or of the last step; the newest where there are several."""
    found = [(Report.read(path), path) for path in sorted((run.path / "evals").glob(f"{pattern}/report.json"))]
    fitting = [(each.settings.get("step") or 0, path.stat().st_mtime, each) for each, path in found]
    fitting = [each for each in fitting if step is None or each[0] == step]
    return max(fitting, key=lambda each: each[:2])[2] if fitting else None


def compared(members: Sequence[tuple[Group, Sequence[Report]]], seed: int = 0) -> list[dict[str, Any]]:
    """One row for each mode and group, as plain data; differences are against the first group's same mode."""
    modes = list(dict.fromkeys(row.name for _, reports in members for report in reports for row in report.rows))
    made: list[dict[str, Any]] = []
    for mode in modes:
        first: tuple[Group, list[Row]] | None = None
        for group, reports in members:
            rows = [row for report in reports for row in report.rows if row.name == mode]
            if not rows:
                continue
            made.append(_compared(mode, group, rows, first, seed))
            first = first or (group, rows)
    return made


def _compared(mode: str, group: Group, rows: list[Row], first: tuple[Group, list[Row]] | None, seed: int) -> dict[str, Any]:
    common = _common([rows])
    row: dict[str, Any] = {
        "mode": mode,
        "group": group.label,
        "seeds": len(rows),
        "questions": len(common),
        "accuracy": seeds_interval(_values(rows, common), seed=seed).as_dict() if common else None,
        "over_seeds": [number["value"] for each in rows if (number := each.metrics.get("accuracy")) is not None],
        "tokens": float(np.mean([each.tokens for each in rows])),
        "difference": None,
    }
    for metric in ("format", "pass@k", "cons@k", "winner", "judge", "comparisons"):
        known = [number["value"] for each in rows if (number := each.metrics.get(metric)) is not None]
        row[metric] = float(np.mean(known)) if known else None
    if first is not None and (both := _common([rows, first[1]])):
        ours, theirs = _values(rows, both), _values(first[1], both)
        gaps = np.mean(ours, axis=0) - np.mean(theirs, axis=0)
        p = sign_flip_p(gaps, seed=seed)
        row["difference"] = {
            **seeds_interval(ours, theirs, seed=seed).as_dict(),
            "p": p,
            "versus": first[0].label,
            "questions": len(both),
        }
    return row


def _common(sides: Sequence[Sequence[Row]]) -> list[str]:
    """Questions that every run answered."""
    all_rows = [row for rows in sides for row in rows]
    first, *others = (row.by_question.get("accuracy", {}) for row in all_rows)
    return [question for question in first if all(question in other for other in others)]


def _values(rows: Sequence[Row], questions: Sequence[str]) -> list[list[float]]:
    return [[row.by_question["accuracy"][q][0] / row.by_question["accuracy"][q][1] for q in questions] for row in rows]


# Curves


PANELS: tuple[tuple[str, str, str], ...] = (
    ("eval", r"test_[^/]*/correct", "right answers in debate, held out"),
    ("eval", r"test_[^/]*/direct/accuracy", "right answers alone, held out"),
    ("eval", r"test_[^/]*/cons@k", "right by plurality (cons@k), held out"),
    ("eval", r"trust/judge_accuracy", "votes that prefer the right answer, held out"),
    ("eval", r"test/turns_with_vote", "turns with a vote, held out"),
    ("self_play", r"train_[^/]*/correct", "right answers, training"),
    ("self_play", r"env/all/ac_tokens_per_turn", "tokens a turn, training"),
)
"""Phase, key, and what it is."""


@dataclass(frozen=True)
class Curve:
    steps: list[float]
    """Training steps, or sampled tokens."""
    mean: list[float]
    low: list[float]
    high: list[float]
    """Of the seeds."""
    runs: int


def curve(group: Group, phase: str, key: str, against: str = "step") -> Curve | None:
    """Mean and range over the group's runs, at the steps where all of them have the number."""
    series = [_series(run, phase, key, against) for run in group.runs]
    series = [each for each in series if each]
    if not series:
        return None
    steps = sorted(set.intersection(*(set(each) for each in series)))
    if not steps:
        return None
    values = np.array([[each[step][1] for step in steps] for each in series])
    places = np.array([[each[step][0] for step in steps] for each in series]).mean(axis=0)
    return Curve(places.tolist(), values.mean(axis=0).tolist(), values.min(axis=0).tolist(), values.max(axis=0).tolist(), len(series))


def _series(run: Run, phase: str, key: str, against: str) -> dict[int, tuple[float, float]]:
    """Step -> (where it stands on the axis, value)."""
    tokens = 0.0
    found: dict[int, tuple[float, float]] = {}
    for row in run.metrics():
        if row["phase"] == "self_play":
            tokens += row.get("tokens/sampled") or 0.0
        value = next((v for name, v in row.items() if re.fullmatch(key, name)), None)
        if row["phase"] == phase and isinstance(value, int | float):
            found[row["step"]] = (float(row["step"]) if against == "step" else tokens, float(value))
    return found


def ends(group: Group, phase: str, key: str) -> dict[str, Any] | None:
    """The first and the last value of a metric: mean and standard deviation over seeds."""
    series = [list(found.values()) for run in group.runs if (found := _series(run, phase, key, "step"))]
    if not series:
        return None

    def spread(values: list[float]) -> dict[str, float | None]:
        return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None}

    return {"first": spread([each[0][1] for each in series]), "last": spread([each[-1][1] for each in series]), "runs": len(series)}


def open_runs(paths: Sequence[Any]) -> list[Run]:
    opened = [Run.open(path) for path in paths]
    seen = [run.path.resolve() for run in opened]
    if repeated := next((path for path in seen if seen.count(path) > 1), None):
        raise ConfigError(f"{repeated} is named twice; name each run once")
    return opened
