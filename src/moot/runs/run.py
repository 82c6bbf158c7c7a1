"""A run's folder. Training, evaluation and the page meet only here; docs/formats.md says it for other tools.

    run.json                     format version, configuration, what made it
    metrics.jsonl                one object per step (and evaluation), in order
    debates/000012.jsonl         every debate of step 12: text, fields, votes, rewards
    debates/000012.npz           its tokens, logprobs and advantages: one array each, cut by `offsets`
    held_out/000012.jsonl        the debates of the evaluation after step 12, without tokens
    held_out/000012.json         what that evaluation counted, question by question
    checkpoints/000012/          the engine's state, and state.json: the loop's own, with the step's metrics
    aside/001/                   what a restart, or a return to an older checkpoint, took out of the way
    lock                         held by the process that writes here

A step is committed by its checkpoint. Files are written beside their place and moved there, so a kill leaves either all
of one or none; what a killed step left behind is overwritten when it is played again. What was committed is never
deleted: only a rolling checkpoint goes, once two newer ones can be read and it is neither the best nor in use.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from moot.debate.prompt_texts import DEFAULT
from moot.errors import ConfigError
from moot.runs.arrays import token_arrays
from moot.runs.lock import HELD, NAME, RunLock
from moot.runs.prompt_of_turn import prompts_of, with_prompts
from moot.runs.record import FORMAT, Damaged, read_line, to_record
from moot.tasks.answer_classes import Grader
from moot.tasks.answers import exact
from moot.tokens.played import PlayedDebate
from moot.util.disk import beside, opened, read_file, sync, write_atomically
from moot.util.files import append_lines, lines_in, write_lines
from moot.util.json_text import read_json


class Run:
    """One run's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lock: RunLock | None = None
        self._keeps: dict[Path, tuple[tuple[int, ...], bool | None]] = {}
        if not Run.exists(self.path):
            raise ConfigError(f"{path} is not a run: it has no run.json")
        version = self.header.get("format")
        if version != FORMAT:
            told = f"{path} is a run of format {version!r:.40}, and this moot reads format {FORMAT}"
            raise ConfigError(f"{told}; use the moot that made it")

    # Opening

    @classmethod
    def create(
        cls,
        path: Path,
        config: Mapping[str, Any],
        made_by: Mapping[str, Any],
        source: Mapping[str, Any] | None = None,
    ) -> Run:
        """`source` is what it starts from, where that is not the model itself."""
        (path / "debates").mkdir(parents=True, exist_ok=True)
        (path / "checkpoints").mkdir(exist_ok=True)
        header = {"format": FORMAT, "config": config, "made_by": made_by, **({"from": source} if source else {})}
        write_atomically(path / "run.json", json.dumps(header, indent=1).encode())
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        return cls(path)

    @staticmethod
    def exists(path: Path) -> bool:
        return (path / "run.json").is_file()

    def held_out_report(self, step: int) -> Path:
        """What the evaluation after this step counted, question by question."""
        return self.path / "held_out" / step_file(step, ".json")

    @property
    def header(self) -> dict[str, Any]:
        try:
            header = read_json(read_file(self.path / "run.json"))
        except ConfigError as error:
            raise ConfigError(f"{self.path / 'run.json'} is damaged: {error}") from None
        return header if isinstance(header, dict) else {}

    @property
    def made_by(self) -> str:
        """The version of moot that made it, as far as it says so."""
        made = self.header.get("made_by")
        version = made.get("moot") if isinstance(made, dict) else None
        return "of an unknown version" if version is None else str(version)[:40]

    @property
    def config(self) -> dict[str, Any]:
        config = self.header.get("config")
        if not isinstance(config, dict):
            damaged = f"{self.path / 'run.json'} is damaged: it has no config"
            raise ConfigError(f"{damaged}; put back the run.json that moot wrote")
        return config

    # Metrics

    def metrics(self) -> list[dict[str, Any]]:
        """Every line that is a row; a last line cut short by a kill is left out, and so is what is damaged."""
        rows = (row for _, row in self._metric_lines() if row is not None)
        return [{name: value for name, value in row.items() if name == "phase" or _is_metric(value)} for row in rows]

    def _metric_lines(self) -> list[tuple[bytes, dict[str, Any] | None]]:
        """Every line with its row; the last is what stands behind the last line's end: perhaps a cut line."""
        try:
            content = read_file(self.path / "metrics.jsonl")
        except FileNotFoundError:
            return []
        return [(line, metric_row(line)) for line in content.split(b"\n")]

    def frame(self) -> Any:
        """The metrics as a pandas DataFrame, a row for each of theirs."""
        try:
            import pandas
        except ModuleNotFoundError:
            missing = "frame needs pandas, which is not installed"
            raise ConfigError(f"{missing}; run: pip install pandas, or take metrics()") from None
        return pandas.DataFrame(self.metrics())

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        append_lines(self.path / "metrics.jsonl", [row])

    def rewind(self, step: int, last: Mapping[str, Any] | None) -> list[str]:
        """Goes back to checkpoint `step`, and puts back its metrics if a kill came before. Answers with notes.

        Later steps and damaged lines are set aside. Only the step that was never committed is removed: it is played
        again.
        """
        lines = [(line, row) for line, row in self._metric_lines() if line]
        damaged = sum(row is None for _, row in lines)
        kept = [(line, row) for line, row in lines if row is not None and row["step"] <= step]
        dropped = [line for line, row in lines if row is None or row["step"] > step]
        (self.path / "debates").mkdir(exist_ok=True)
        committed = max((row["step"] for _, row in lines if row is not None), default=0)
        debates = [file for file in (self.path / "debates").iterdir() if (_step_of(file) or 0) > step]
        held_out = [file for file in (self.path / "held_out").glob("*.json*") if (_step_of(file) or 0) > step]
        places = [place for number, place in self.checkpoints() if number > step]
        if step + 1 > committed and not places:
            for file in debates:
                if _step_of(file) == step + 1:
                    file.unlink()
        notes = []
        if dropped or places or held_out or any(_step_of(file) != step + 1 for file in debates):
            aside = new_aside(self.path)
            write_atomically(aside / "metrics.jsonl", b"".join(line + b"\n" for line in dropped))
            for file in (*debates, *held_out, *places):
                if file.exists():
                    (aside / file.parent.name).mkdir(exist_ok=True)
                    file.rename(aside / file.parent.name / file.name)
            if damaged:
                lines_are = "a line of metrics.jsonl is" if damaged == 1 else f"{damaged} lines of metrics.jsonl are"
                notes.append(f"{lines_are} damaged, and stands now in {aside / 'metrics.jsonl'}")
        rows = [row for _, row in kept if row is not None]
        content = [line for line, _ in kept]
        if last is not None and not any(row["step"] == step and row["phase"] == last["phase"] for row in rows):
            content.append(json.dumps(last).encode())
            rows.append(dict(last))
        write_atomically(self.path / "metrics.jsonl", b"".join(line + b"\n" for line in content))
        for folder in (self.path, self.path / "debates", self.path / "held_out"):
            for left in folder.glob(".*.tmp"):  # of a process that was killed while it wrote
                left.unlink()
        if missing := _missing(rows, step):
            notes.append(f"metrics.jsonl lacks {missing} of the {step} committed steps; curves leave them out")
        return notes

    # What is out of the way

    def contents(self) -> str:
        """What a run without a usable checkpoint still has; empty if no step was ever committed."""
        steps = {row["step"] for row in self.metrics() if row["step"] > 0}
        damaged = [place.name for _, place in self.checkpoints()]
        debates = self.steps()
        if not steps and not damaged and len(debates) < 2:
            return ""
        names = ", ".join(damaged[:3]) + (", …" if len(damaged) > 3 else "")
        named = f"checkpoints that cannot be used ({names})" if damaged else "no checkpoint"
        return f"metrics of {len(steps)} steps, debates of {len(debates)} and {named}"

    # Debates

    def write_debates(self, step: int, played: Sequence[PlayedDebate]) -> None:
        import numpy as np  # here, because what reads only text waits for nothing

        records = ({"number": i, **to_record(one)} for i, one in enumerate(played))
        write_lines(self.debates_file(step), records)
        with beside(self.debates_file(step, ".npz")) as file:
            np.savez_compressed(file, **token_arrays(played))

    def write_held_out(self, step: int, played: Sequence[PlayedDebate]) -> None:
        """The debates of an evaluation, for people to read: nothing is trained on them, so they have no tokens."""
        (self.path / "held_out").mkdir(exist_ok=True)
        records = ({"number": i, **to_record(one)} for i, one in enumerate(played))
        write_lines(self.path / "held_out" / step_file(step), records)

    def debates(self, steps: Iterable[int] | None = None, equal: Grader = exact) -> Iterator[PlayedDebate | Damaged]:
        """In the order of training, one at a time. A run may be large, damaged, or still being written."""
        try:
            prompts = prompts_of(self.config)
        except ConfigError:  # a damaged run.json costs no debate
            prompts = DEFAULT
        for step in self.steps() if steps is None else steps:
            # A run that continues from an older checkpoint removes the steps after it, also under a reader.
            with contextlib.suppress(FileNotFoundError), opened(self.debates_file(step)) as file:
                for place, (_, line) in enumerate(lines_in(file)):
                    played = read_line(line, step, place, equal)
                    yield played if isinstance(played, Damaged) else with_prompts(played, prompts)

    def records(self, step: int) -> Iterator[dict[str, Any]]:
        """The debates of a step as they stand on disk."""
        with opened(self.debates_file(step)) as file:
            yield from (read_json(line) for _, line in lines_in(file))

    def debates_file(self, step: int, suffix: str = ".jsonl") -> Path:
        return self.path / "debates" / step_file(step, suffix)

    def steps(self) -> list[int]:
        """Those whose file has the name that moot gives it."""
        return sorted(step for step, _ in step_files(self.path / "debates"))

    # Checkpoints

    def checkpoint_place(self, step: int) -> Path:
        """Where an engine writes the state of `step`; `commit_checkpoint` moves it to its name."""
        place = self.path / "checkpoints" / step_file(step, ".tmp")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place

    def commit_checkpoint(
        self, step: int, state: Mapping[str, Any], keep: bool, used: Container[int | None] = ()
    ) -> Path:
        """Rolling checkpoints go away once two newer ones can be read; kept ones and those of steps in `used` stay, and
        damaged ones get a name that says so."""
        if self.lock is not None:
            self.lock.check()
        temporary = self.path / "checkpoints" / step_file(step, ".tmp")
        body = json.dumps({**state, "step": step, "keep": keep})
        seal = hashlib.sha256(body.encode()).hexdigest()
        write_atomically(temporary / "state.json", json.dumps({"sha256": seal, "body": body}).encode())
        final = temporary.with_suffix("")
        if final.exists():
            _rename_damaged(final)
        temporary.rename(final)
        sync(final.parent)
        rolling = []
        for number, place in self.checkpoints():
            kept = self._is_kept(place)
            if kept is None:
                _rename_damaged(place)
            elif not kept and number <= step and number not in used:
                rolling.append(place)
        for place in rolling[2:]:
            shutil.rmtree(place, ignore_errors=True)
        return final

    def _is_kept(self, place: Path) -> bool | None:
        """Whether a checkpoint is for good; None where it is damaged.

        Read again only where its file changed: a long run has hundreds, and looks at them after each step."""
        stamp: tuple[int, ...] = ()
        with contextlib.suppress(OSError):
            status = (place / "state.json").stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if place not in self._keeps or self._keeps[place][0] != stamp:
            state = loop_state(place)
            self._keeps[place] = stamp, None if state is None else bool(state.get("keep"))
        return self._keeps[place][1]

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Newest first."""
        folders = (self.path / "checkpoints").glob("[0-9]*")
        return sorted(((int(one.name), one) for one in folders if _is_number(one.name)), reverse=True)


def new_aside(run: Path) -> Path:
    """The next folder under the run's `aside`: 001, 002, …"""
    folder = run / "aside"
    folder.mkdir(exist_ok=True)
    taken = [int(one.name) for one in folder.iterdir() if _is_number(one.name)]
    made = folder / f"{max(taken, default=0) + 1:03d}"
    made.mkdir()
    return made


def set_aside(run: Path) -> Path:
    """Moves all of a run, damaged or not, to a new folder under `aside`, where it is still a run: that folder."""
    aside = new_aside(run)
    # run.json last: until then a kill leaves a run that says what is missing.
    for file in sorted(run.iterdir(), key=lambda file: file.name == "run.json"):
        if file.name not in ("aside", NAME, HELD):
            file.rename(aside / file.name)
    return aside


def metric_row(line: bytes) -> dict[str, Any] | None:
    """A row has its step and its phase; anything else is damage, and None."""
    try:
        row = read_json(line)
    except ConfigError:
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int or not isinstance(row.get("phase"), str):
        return None
    return row if abs(row["step"]) < 10**9 else None


def _is_metric(value: Any) -> bool:
    """A number that a float can hold, or null."""
    return value is None or type(value) is float or (type(value) is int and abs(value) < 10**300)


def _missing(rows: Iterable[Mapping[str, Any]], last: int) -> int:
    """How many steps up to `last` have no row of training. A warm start that ended early left some out, and says so."""
    own = (row for row in rows if row["phase"] in ("warm", "self_play") and row["step"] > 0)
    trained = {row["step"]: row.get("warm/ended_after") for row in own}
    ends = ((step, ended) for step, ended in trained.items() if isinstance(ended, float) and 0 <= ended < step)
    return max(0, last - len(trained) - sum(int(step) - 1 - int(ended) for step, ended in ends))


def tokens_spent(rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """By step of self-play, all tokens sampled up to it: by agents and judges, and for labels."""
    values = {row["step"]: row.get("tokens/spent") for row in rows if row["phase"] == "self_play"}
    return {step: float(n) for step, n in values.items() if isinstance(n, int | float) and 0 <= n < 1e18}


def measured(row: Mapping[str, Any], name: str) -> Any:
    """A metric of a row; * stands for the name of the task, as in test_*/correct. None where there is none."""
    if "*" not in name:
        return row.get(name)
    pattern = re.compile(re.escape(name).replace(r"\*", "[^/]*"))
    return next((value for key, value in row.items() if pattern.fullmatch(key)), None)


def step_file(step: int, suffix: str = ".jsonl") -> str:
    """The name of what is kept of a step: debates, or by another suffix tokens, a report, a new checkpoint."""
    return f"{step:06d}{suffix}"


def step_files(folder: Path) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """The files of debates in a folder, each with its step: those that have the name that moot gives them."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if (step := _step_of(entry)) is not None and entry.name == step_file(step) and entry.is_file():
                yield step, entry


def _step_of(file: Path | os.DirEntry[str]) -> int | None:
    """The step of a file of debates; other names are nobody's."""
    name = file.name.split(".")[0]
    return int(name) if _is_number(name) and len(name) < 10 else None


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _rename_damaged(place: Path) -> None:
    """Out of the way of those that can be read, and still there."""
    names = (f"{place.name}.damaged{'' if n == 1 else f'-{n}'}" for n in itertools.count(1))
    place.rename(next(free for name in names if not (free := place.with_name(name)).exists()))


def loop_state(place: Path) -> dict[str, Any] | None:
    """What the loop put into a checkpoint; None where that is damaged."""
    try:
        sealed = read_json(read_file(place / "state.json"))
        body = sealed["body"]
        if hashlib.sha256(body.encode()).hexdigest() != sealed["sha256"]:
            return None
        state = read_json(body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return state if isinstance(state, dict) else None
