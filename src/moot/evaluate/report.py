"""Rows of numbers with their intervals, and the differences between rows. Plain data: what is saved is what is
shown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from moot.errors import ConfigError
from moot.evaluate.counting import QuestionCounts
from moot.rl.trust import Share
from moot.util.disk import read_file, write_atomically
from moot.util.files import digest
from moot.util.intervals import cautious_intervals, intervals, paired_interval, sign_flip_p
from moot.util.json_text import read_json

FORMAT = 1
Number = dict[str, float]
"""value, low, high."""


@dataclass(frozen=True)
class ReportRow:
    name: str
    """`direct`, `vote@5`, `debate`, `debate+vote`, `against base`."""
    k: int
    """Answers per question."""
    questions: int
    failed: int
    """Questions left out because the engine failed."""
    tokens: float
    """Generated per question, on average."""
    metrics: dict[str, Number | None]
    """`accuracy` is that of the answer the mode gives; null where nothing could be counted."""
    difference: dict[str, Any] | None = None
    """Of accuracy, against the first row on the questions both have: value, low, high, p, versus, questions."""
    by_question: dict[str, dict[str, Share]] = field(default_factory=dict)
    """Metric -> question -> what was counted of what could have been."""


@dataclass(frozen=True)
class Report:
    settings: dict[str, Any]
    rows: list[ReportRow]
    trust: dict[str, float | None]
    """The trust panel over the self-play debates, where there are any."""

    def flat(self, prefix: str, rows: Sequence[ReportRow] | None = None) -> dict[str, float | None]:
        """For a line of metrics.jsonl: `test_gsm8k/direct/accuracy`, and its interval as `…/accuracy_low` and
        `…_high`."""
        numbers: dict[str, float | None] = {}
        for row in self.rows if rows is None else rows:
            start = prefix + re.sub(r"[^\w.@+-]+", "_", row.name)
            for name, number in row.metrics.items():
                numbers[f"{start}/{name}"] = None if number is None else number["value"]
            if (accuracy := row.metrics.get("accuracy")) is not None:
                numbers |= {f"{start}/accuracy_{end}": accuracy[end] for end in ("low", "high")}
            numbers[f"{start}/tokens"] = row.tokens
        return numbers

    @property
    def step(self) -> int:
        """Whose weights answered; 0 is the model before training."""
        return self.settings.get("step") or 0

    def as_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(self.as_dict(), indent=1).encode())

    @classmethod
    def read(cls, path: Path) -> Report:
        try:
            saved = read_json(read_file(path))
            if saved["format"] != FORMAT:
                raise ConfigError(f"it has format {saved['format']!r:.40}, and this moot reads format {FORMAT}")
            rows = [_checked(ReportRow(**row)) for row in saved["rows"]]
            report = cls(dict(saved["settings"]), rows, dict(saved["trust"]))
            if not isinstance(report.step, int):
                raise TypeError(f"step must be a whole number, got {report.step!r:.60}")
            return report
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
            raise ConfigError(f"{path} is not a saved evaluation: {error}; evaluate again") from None


def _checked(row: ReportRow) -> ReportRow:
    """As it is, where every number is one; TypeError or the like where not: somebody may have changed the file."""
    if not isinstance(row.name, str):
        raise TypeError(f"a row must have a name, got {row.name!r:.60}")
    plain = (row.k, row.questions, row.failed, row.tokens)
    shown = [number for number in (*row.metrics.values(), row.difference) if number is not None]
    shares = [share for by_question in row.by_question.values() for share in by_question.values()]
    ends = (number[end] for number in shown for end in ("value", "low", "high"))
    for number in (*plain, *ends, *(part for share in shares for part in share)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise TypeError(f"{row.name} must hold numbers, got {number!r:.60}")
    if any(len(share) != 2 for share in shares):
        raise ValueError(f"{row.name} must have what was counted, and of how many")
    return row


def saved_reports(run: Path, pattern: str = "*") -> list[Report]:
    """What `moot eval` saved in the folders of a run that fit `pattern`, oldest first."""
    files = sorted((run / "evals").glob(f"{pattern}/report.json"), key=lambda file: file.stat().st_mtime)
    return [Report.read(file) for file in files]


def report_folder(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Where a report with these settings goes: `folder`, or, where that holds the report of other settings, one beside
    it that is named after what differs. So no report replaces another."""
    before = _settings_in(folder)
    if before is None or not (changed := _changed(before, settings)):
        return folder
    told = ",".join(f"{name}={value}" for name, value in changed.items())
    told = re.sub(r"[^\w.=,+-]+", "-", told)
    beside = folder.with_name(f"{folder.name},{told}")
    if (
        "policy" in changed
        or len(told) > 60
        or ((there := _settings_in(beside)) is not None and _changed(there, settings))
    ):
        beside = folder.with_name(f"{folder.name},settings={digest(settings)[:8]}")
    return beside


def before_and_after(report: Report, folder: Path) -> tuple[str, str] | None:
    """The evaluation in `folder` and the one beside it that it is to be compared with: of the model before training
    and of what was trained, whichever of the two was made last. Their folders, that of the start first; None where
    there is no other with the same settings, a mode of this one and its questions."""
    fitting = []
    for file in folder.parent.glob("*/report.json"):
        try:
            other = Report.read(file)
        except ConfigError:
            continue  # a damaged one is nobody's start
        changed = _changed(other.settings, report.settings).keys() - {"policy", "step"}
        if bool(other.step) != bool(report.step) and changed <= _SAMPLED_MORE and _in_common(other, report):
            fitting.append((len(changed), -file.stat().st_mtime, file.parent.name))
    if not fitting:
        return None
    found = min(fitting)[2]
    return (found, folder.name) if report.step else (folder.name, found)


def _in_common(one: Report, other: Report) -> bool:
    """Whether both asked a question in one way."""
    asked = {row.name: row.by_question.get("accuracy", {}).keys() for row in one.rows}
    return any(asked[row.name] & row.by_question.get("accuracy", {}).keys() for row in other.rows if row.name in asked)


_SAMPLED_MORE = {"questions", "modes", "k"}
"""Settings that say how much is measured, and not what."""


def _settings_in(folder: Path) -> dict[str, Any] | None:
    return Report.read(folder / "report.json").settings if (folder / "report.json").exists() else None


_TAUGHT_BY = ("advantage", "lambda_gen", "lambda_judge")
"""Choices of training that change nothing of what an evaluation measures."""


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """The settings that differ, as they are now. One that only a newer version has says nothing."""
    changed: dict[str, str] = {}
    for name in (name for name in now if name in before and name not in _TAUGHT_BY and before[name] != now[name]):
        if isinstance(now[name], Mapping) and isinstance(before[name], Mapping):
            changed |= _changed(before[name], now[name])
        else:
            changed[name] = "+".join(map(str, now[name])) if isinstance(now[name], list | tuple) else str(now[name])
    return changed


def make_row(
    name: str,
    k: int,
    headline: str,
    counted: Mapping[str, QuestionCounts],
    failed: int,
    first: ReportRow | None,
    seed: int,
) -> ReportRow:
    """`headline` names the metric that says how good the mode's own answer is."""
    shares: dict[str, dict[str, Share]] = {}
    for question, counts in counted.items():
        for metric, share in counts.shares.items():
            shares.setdefault(metric, {})[question] = share
    if headline in shares:
        shares = {"accuracy": shares[headline], **shares}
    columns = [
        tuple(zip(*(column.get(question, (0.0, 0.0)) for question in counted), strict=True))
        for column in shares.values()
    ]
    # Nothing but wins has no width in a bootstrap, and may not look sure.
    of_questions = cautious_intervals if headline == "wins" else intervals
    computed = of_questions([(top, bottom) for top, bottom in columns], seed=seed) if columns else []
    metrics = {
        metric: None if interval is None else interval.as_dict()
        for metric, interval in zip(shares, computed, strict=True)
    }
    tokens = sum(counts.tokens for counts in counted.values()) / len(counted) if counted else 0.0
    difference = (
        None
        if first is None
        else compare(shares.get("accuracy", {}), first.by_question.get("accuracy", {}), first.name, seed)
    )
    return ReportRow(name, k, len(counted), failed, tokens, metrics, difference, shares)


def compare(
    ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]], versus: str, seed: int
) -> dict[str, Any] | None:
    """Ours minus theirs on the questions both have."""
    common = [question for question in theirs if question in ours]
    if not common:
        return None
    pairs = [tuple(zip(*(side[question] for question in common), strict=True)) for side in (ours, theirs)]
    interval = paired_interval((pairs[0][0], pairs[0][1]), (pairs[1][0], pairs[1][1]), seed=seed)
    if interval is None:
        return None
    p = sign_flip_p([ours[q][0] / ours[q][1] - theirs[q][0] / theirs[q][1] for q in common], seed=seed)
    return {**interval.as_dict(), "p": p, "versus": versus, "questions": len(common)}
