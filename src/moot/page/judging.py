"""What `moot judge` measured: a report for each folder, and what every judge said about every answer."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from moot.errors import ConfigError
from moot.page.index import LONGEST_LINE
from moot.page.runs import DEEPEST, LARGEST, LARGEST_JSON, UNREADABLE, Outside, depth, inside
from moot.util.disk import opened, read_file
from moot.util.files import lines_in
from moot.util.json_text import read_json

MOST, MOST_BYTES = 50, 2**24
"""Questions in one answer; and bytes after which it has no further one."""


def is_trial(folder: Path) -> bool:
    """Whether it holds a report on judges, damaged or not; a run's evaluations have other reports."""
    return (folder / "report.json").is_file() and not (folder / "run.json").exists() and _report(folder) is not None


class Trials:
    """The folders that `moot judge` wrote: those named, and those in a folder that is named."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = [place.resolve() for place in places if place.is_dir()]

    def all(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for place in self.places:
            for folder in [place, *sorted(file.parent for file in place.glob("*/report.json"))]:
                if folder not in found.values() and is_trial(folder):
                    found[_free(folder.name, found)] = folder
        return found

    def reports(self) -> dict[str, Any]:
        """By folder. One that cannot be read says so in its `trouble`."""
        return {name: _report(folder) for name, folder in self.all().items()}

    def questions(self, name: str, begin: int) -> dict[str, Any] | None:
        """Some questions with their answers and verdicts; None where there is no such folder."""
        folder = self.all().get(name)
        if folder is None:
            return None
        rows: list[Any] = []
        size, more = 0, False
        with contextlib.suppress(OSError, Outside), opened(inside(folder, "asked.jsonl"), LARGEST) as file:
            for _, line in islice(lines_in(file, LONGEST_LINE), begin, None):
                if more := len(rows) == MOST or size > MOST_BYTES:
                    break
                rows.append(_row(line))
                size += len(line)
        return {"rows": rows, "next": begin + len(rows) if more else None}


def _free(name: str, taken: dict[str, Path]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}~{number}", number + 1
    return free


def _report(folder: Path) -> dict[str, Any] | None:
    """What it says; None where it is no report on judges, and its `trouble` where only the file beside it says that it
    is one."""
    try:
        report = read_json(read_file(inside(folder, "report.json"), LARGEST_JSON))
        if depth(report, DEEPEST) > DEEPEST:
            raise ConfigError(f"it is nested more than {DEEPEST} deep")
        if isinstance(report, dict) and _on_judges(report.get("rows")):
            return {key: value for key, value in report.items() if key != "trouble"}  # which is ours to say
        trouble = "it holds no rows of judges"
    except UNREADABLE as error:
        trouble = str(error)
    judged = (folder / "asked.jsonl").exists()
    return {"rows": [], "trouble": f"report.json cannot be read: {trouble}"} if judged else None


def _on_judges(rows: Any) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, dict) and {"pair_accuracy", "ballot"} <= {*row} for row in rows
    )


def _row(line: bytes) -> dict[str, Any]:
    """A question as `moot judge` wrote it. One that cannot be read says so in its place."""
    try:
        row = read_json(line)
        answers = [
            {
                "text": str(answer["text"]),
                "answer": answer["answer"] and str(answer["answer"]),
                "correct": bool(answer["correct"]),
            }
            for answer in row["answers"]
        ]
        ways = [_way(way, len(answers)) for way in row["ways"]]
        return {"question": _text(row["question"]), "known": _text(row["known"]), "answers": answers, "ways": ways}
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return {"broken": f"{type(error).__name__}: {error}"[:400]}


def _text(value: Any) -> Any:
    return None if value is None else str(value)


def _way(way: dict[str, Any], answers: int) -> dict[str, Any]:
    scores = [None if score is None else float(score) for score in way["scores"]]
    verdicts = [
        {
            "about": [place for place in map(int, verdict["about"]) if 0 <= place < answers],
            "value": None if verdict.get("value") is None else float(verdict["value"]),
            "thinking": str(verdict.get("thinking", "")),
            "rule": str(verdict.get("rule", "")),
        }
        for verdict in way["verdicts"]
    ]
    return {"way": str(way["way"]), "scores": scores, "verdicts": verdicts}
