"""Files of debates that are not runs: what `moot demo` and `moot label` write, and anything `moot score` reads.

The page gets each as a small run, in a folder that goes when the page does; it is written anew when its file grows.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moot.debate.protocols import preset
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS, with_advantages
from moot.rl.metrics import reward_metrics
from moot.rl.trust import panel
from moot.runs import PlayedDebate, Run
from moot.tasks.answers import final_number, grade
from moot.tools.asked import asked_debate, asked_grading, asked_record
from moot.tools.transcripts import read_debate
from moot.util.disk import opened
from moot.util.files import write_lines
from moot.util.json_text import read_json

LARGEST = 20_000_000
"""Bytes of a file that is read because it lies in a folder; one that is named is read whatever its size."""
MOST_AGENTS = 1000
"""What the page shows."""
FREE_SEATS, BYTES_PER_SEAT = 50_000, 100
"""Seats of all debates of a file together: these, and one for so many of its bytes. Who speaks writes more than that;
a seat that is only claimed costs nothing to write, and as much to score."""


class Transcripts:
    """Files, or folders with such files in them, and the runs made of them."""

    def __init__(self, places: Sequence[Path], folder: Path) -> None:
        self._places, self._folder = places, folder
        self._known: dict[Path, tuple[Path, tuple[int, int]]] = {}
        """Where the run of each file is, and what the file was when it was read."""
        self._rest = 0.0
        """Until when nothing is read: a file that grows may take at most a tenth of the page's time."""

    def refresh(self) -> None:
        started = time.monotonic()
        if started < self._rest:
            return
        for place in self._places:
            for file in sorted(place.glob("*.jsonl")) if place.is_dir() else [place]:
                with suppress(OSError, ConfigError):
                    self._read(file, math.inf if file == place else LARGEST)
        self._rest = time.monotonic() + 10 * (time.monotonic() - started)

    def _read(self, file: Path, largest: float) -> None:
        status = file.stat()
        stamp = (status.st_size, status.st_mtime_ns)
        run, read = self._known.get(file) or (self._free(file.name), None)
        notes = Notes()
        # What holds no debate, such as a file of questions, is not shown.
        if stamp != read and status.st_size < largest and (debates := list(read_debates(file, notes))):
            _write(run, file, debates, notes)
        self._known[file] = run, stamp

    def _free(self, name: str) -> Path:
        taken = {run.name for run, _ in self._known.values()}
        return self._folder / next(free for n in count(1) if (free := name if n == 1 else f"{name}~{n}") not in taken)


@contextmanager
def as_run(file: Path) -> Iterator[Run]:
    """A file as a run, as long as somebody looks at it."""
    with TemporaryDirectory(prefix="moot-") as place:
        Transcripts([file], Path(place)).refresh()
        if not Run.exists(run := Path(place, file.name)):
            raise ConfigError(f"{file} holds no debates; name a run, or a .jsonl file that moot label wrote")
        yield Run.open(run)


@dataclass
class Notes:
    """What a reader of a file must be told."""

    left_out: list[int] = field(default_factory=list)
    """Lines that claim more agents than the page shows, or than the file has words for."""
    own_prompts: bool = False
    """Asked with `--prompts`: the file says so, and does not hold the texts."""
    labels: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By line: the answer that the file gives a question, who shares it, and how far it is to be trusted."""


def read_debates(file: Path, notes: Notes | None = None) -> Iterator[PlayedDebate]:
    """Those lines that are debates, scored and, where the answer is known, graded."""
    notes = notes or Notes()
    with opened(file, math.inf) as lines:
        seats = FREE_SEATS + os.fstat(lines.fileno()).st_size // BYTES_PER_SEAT
        for number, line in enumerate(lines, 1):
            with suppress(ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
                row = read_json(line.decode("utf-8", "replace"))
                record, debate, scoring = _read(row, line)
                if label := _label(row):
                    notes.labels[number] = label
                notes.own_prompts |= "prompts" in record.get("settings", {})
                if debate.num_agents < MOST_AGENTS and debate.num_agents <= seats:
                    seats -= debate.num_agents
                    graded = asked_grading(record.get("settings", {}))
                    if "settings" not in record and debate.question.answer is not None:
                        graded = replace(graded, extract=final_number)
                    grades = grade(debate, graded.equal, graded.extract)
                    yield PlayedDebate(debate, error=record.get("error"), number=number).scored(scoring, grades)
                else:
                    notes.left_out.append(number)


def _read(row: Any, line: bytes) -> tuple[Mapping[str, Any], Debate, Scoring]:
    """A line, the debate in it, and how its votes are to be counted."""
    if (record := asked_record(row)) is not None:
        return record, *asked_debate(record)
    text = line.decode("utf-8", "replace")
    # A transcript may leave its protocol out; that of v1 is known by the section that v2 has not.
    return {}, *read_debate(text, preset("v1" if "<consensus" in text else "v2"))


def _label(row: Any) -> dict[str, Any]:
    """What the file itself says of a question; empty where it is only a debate."""
    share = row.get("share", row.get("agreement"))
    if share is None or asked_record(row) is None:
        return {}
    answer, confidence = row["answer"], row.get("confidence")
    told = {"answer": None if answer is None else str(answer), "agreement": float(share)}
    return told if confidence is None else {**told, "confidence": float(confidence), "trusted": bool(row["trusted"])}


def _write(place: Path, file: Path, debates: Sequence[PlayedDebate], notes: Notes) -> None:
    """All debates of a file are step 1."""
    whole = [played for played in debates if played.error is None]
    taught = (
        with_advantages(whole, ESTIMATORS[whole[0].scoring.estimator])
        if len({played.scoring for played in whole}) == 1
        else whole
    )
    lost = [replace(played, scores=None) for played in debates if played.error is not None]
    seats = {"num_agents": debates[0].debate.num_agents, "max_rounds": debates[0].debate.max_rounds}
    task = f"{file.absolute().parent.name}/{file.name}"
    config: dict[str, Any] = {
        "debate": {"task": task, **seats},
        "transcripts": len(debates),
        "file": str(file.absolute()),
    }
    config["labels"] = any("confidence" in label for label in notes.labels.values())
    if left := notes.left_out:
        first = f"the first in line {left[0]}"
        config["trouble"] = f"{len(left)} of its debates ({first}) are left out: they claim too many agents"
    if notes.own_prompts:
        config["prompts"] = {}
    run = Run.create(place, config, {})
    run.write_debates(1, [*taught, *lost])
    if notes.labels:
        records = zip([*taught, *lost], list(run.records(1)), strict=True)
        labelled = [{**record, "label": notes.labels.get(played.number or 0)} for played, record in records]
        write_lines(run.debates_file(1), labelled)
    row = {"step": 1, "phase": "self_play", **panel(whole), **(reward_metrics(taught) if taught else {})}
    write_lines(place / "metrics.jsonl", [row])
    os.utime(place / "metrics.jsonl", (file.stat().st_atime, file.stat().st_mtime))  # it is as old as what it shows
