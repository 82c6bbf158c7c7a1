"""Which runs there are, and their metrics as they grow. Everything is read as it is found: a run may be in the middle
of a write."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from moot.debate.prompt_texts import Prompts
from moot.errors import ConfigError
from moot.evaluate.report import Report
from moot.rl.alarms import ALARMS
from moot.runs.prompt_of_turn import prompts_of
from moot.runs.run import measured, metric_row
from moot.settings.warm import warm_settings
from moot.util.disk import opened, read_file
from moot.util.files import digest
from moot.util.json_text import read_json

T = TypeVar("T")
Series = tuple[list[float], list[float | None]]
"""Steps and values; None where a step says that nothing was measured."""

LARGEST = 2**30
"""Bytes of a step that are read at all: a run may come from somebody else."""
LARGEST_JSON = 50_000_000
"""The same of an evaluation's report, and of a run's settings."""
DEEPEST = 100
"""Brackets in brackets of a run's settings: more would break whatever goes through them."""
AT_ONCE, PER_LOOK = 2**22, 2**26
"""Bytes of metrics that are held at once, a longer row being none; and that are read before the page gets its answer.
The next look goes on from there."""
AXES = {
    "tokens": (("train", "tokens/sampled"),),
    "time": (("train", "time/train_s"), ("eval", "time/eval_s")),
}
"""What a curve may be drawn along besides steps: what these columns had added up to."""
TRAINING = ("warm", "self_play")
"""The phases whose rows make one curve; any other phase (an evaluation) has curves of its own."""


class Outside(Exception):
    """A path that leads out of its run."""


UNREADABLE = (OSError, ConfigError, Outside)
"""What a file is passed over for."""


def inside(run: Path, *parts: str) -> Path:
    """The file of a run, refused where a link leads out of it: a run may come from somebody else."""
    path = Path(os.path.realpath(run.joinpath(*parts)))  # which takes a link to itself for a file that cannot be opened
    if not path.is_relative_to(os.path.realpath(run)):
        raise Outside(f"{'/'.join(parts)} leads out of the run")
    return path


class Runs:
    """The runs in some places: a run's own folder, or folders of runs up to two levels down. Names are short and stay
    the same."""

    def __init__(self, places: Sequence[Path], before: Callable[[], None] = lambda: None) -> None:
        """`before` is called before each look."""
        self.places, self._before = [place.resolve() for place in places], before
        self._lock = threading.Lock()
        self._looked = -math.inf
        self._found: dict[str, Watched] = {}

    def all(self) -> dict[str, Watched]:
        """By name, in the order of the places, then by name. New runs turn up within two seconds."""
        with self._lock:
            if time.monotonic() - self._looked > 2:
                self._before()
                watched = {run.path: run for run in self._found.values()}
                self._found = {name: watched.get(path) or Watched(name, path) for name, path in _named(self.places)}
                self._looked = time.monotonic()
            return dict(self._found)

    def get(self, name: str) -> Watched | None:
        return self.all().get(name)


def _named(places: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    taken: set[str] = set()
    seen: set[Path] = set()
    for place in places:
        for path in _runs_in(place):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            name = stem = path.name if path == place else path.relative_to(place).as_posix()
            number = 2
            while name in taken:
                name, number = f"{stem}~{number}", number + 1
            taken.add(name)
            yield name, path


def _runs_in(place: Path) -> list[Path]:
    if (place / "run.json").is_file():
        return [place]
    return sorted(file.parent for pattern in ("*/run.json", "*/*/run.json") for file in place.glob(pattern))


class Watched:
    """One run, and how far its metrics were read."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self._metrics = Metrics()
        self._lock = threading.Lock()
        self._told: tuple[list[tuple[int, ...]], dict[str, Any]] | None = None
        """The last summary, and what its files were then."""

    def header(self) -> dict[str, Any]:
        """The run's settings; ConfigError says why they cannot be read."""
        try:
            header = read_json(read_file(inside(self.path, "run.json"), LARGEST_JSON))
        except (OSError, Outside) as error:
            raise ConfigError(f"run.json cannot be read: {error}") from None
        if depth(header, DEEPEST) > DEEPEST:
            raise ConfigError(f"run.json is nested more than {DEEPEST} deep")
        return header if isinstance(header, dict) else {}

    def prompts(self) -> Prompts:
        """The texts that its agents read; ConfigError says why they cannot be known."""
        return prompts_of(_dict(self.header().get("config")))

    def ask(self, question: Callable[[Metrics], T]) -> T:
        """What the metrics of this moment say. Asked one at a time, for reading on adds to the same lists."""
        with self._lock:
            try:
                self._metrics = self._metrics.caught_up(inside(self.path, "metrics.jsonl"))
            except Outside:
                self._metrics = Metrics()
            return question(self._metrics)

    def evals(self) -> list[dict[str, Any]]:
        """What `moot eval` reported about it, newest first, without the single questions."""
        reports: list[dict[str, Any]] = []
        for file in self.path.glob("evals/*/report.json"):
            with contextlib.suppress(*UNREADABLE):
                inside_file = inside(self.path, "evals", file.parent.name, "report.json")
                if (status := inside_file.stat()).st_size > LARGEST_JSON:
                    continue
                report = Report.read(inside_file)
                rows = [{key: value for key, value in vars(row).items() if key != "by_question"} for row in report.rows]
                judge = report.settings.get("judge")
                about = {"name": file.parent.name, "judge": judge if isinstance(judge, str) else ""}
                reports.append({**about, "written": status.st_mtime, "rows": rows})
        return sorted(reports, key=lambda report: report["written"], reverse=True)[:20]

    def summary(self) -> dict[str, Any]:
        """A line in the table of runs, not made anew while its files stay the same: there may be hundreds of them."""
        stamps = [_stamp(self.path / name) for name in ("run.json", "metrics.jsonl", "held_out")]
        if self._told is None or self._told[0] != stamps:
            made = self._made()
            # What cannot be read now may be readable in a moment, and a long file is read piece by piece.
            self._told = None if made["trouble"] or not self._metrics.whole else (stamps, made)
            return made
        return {**self._told[1], "age_s": self._metrics.age()}

    def _made(self) -> dict[str, Any]:
        """One that cannot be read says so in its own line."""
        header: dict[str, Any] = {}
        trouble = None
        try:
            header = self.header()
        except ConfigError as error:
            trouble = str(error)
        try:
            return {
                **self.ask(lambda metrics: self._summary(metrics, header)),
                "trouble": trouble or _dict(header.get("config")).get("trouble"),
            }
        except Exception as error:  # whatever it is: it must not hide the other runs
            return {**self._summary(Metrics(), {}), "trouble": f"cannot be read: {error}"}

    def _summary(self, metrics: Metrics, header: Mapping[str, Any]) -> dict[str, Any]:
        config = _dict(header.get("config"))
        debate, optim = (_dict(config.get(part)) for part in ("debate", "optim"))
        return {
            "name": self.name,
            "path": shown_path(self.path, config),
            "model": _dict(config.get("model")).get("model"),
            "engine": _dict(config.get("model")).get("engine"),
            "task": debate.get("task"),
            "agents": debate.get("num_agents"),
            "rounds": debate.get("max_rounds"),
            "reward": _dict(config.get("protocol")).get("reward"),
            "step": metrics.step,
            "phase": metrics.phase,
            "total": _total(optim, config),
            "rows": metrics.rows,
            "age_s": metrics.age(),
            "alarms": {name: metrics.last("train", name) for name in ALARMS},
            "headline": {
                "reward": metrics.recent("env/all/reward/total"),
                "right": metrics.recent("train_*/correct"),
                "held_out": metrics.last("eval", "test_*/correct"),
            },
            "held_out": next((self.path / "held_out").glob("*.jsonl"), None) is not None,
            "transcripts": config.get("transcripts"),
            "labels": config.get("labels") is True,
            "seed": config.get("seed"),
            "recipe": _recipe(config),
        }


def _stamp(path: Path) -> tuple[int, ...]:
    """Another one where a file, or what is in a folder, has changed; empty where there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def shown_path(path: Path, config: Mapping[str, Any]) -> str:
    """The run's folder; of a file of debates the file itself, not the folder in which the page has it as a run."""
    return str(config.get("file") or path) if config.get("transcripts") else str(path)


def depth(value: Any, most: int) -> int:
    """How deep lists and objects stand in one another, counted as far as one more than `most`."""
    depth, level = 0, [value]
    while level and depth <= most:
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        depth, level = depth + 1, [item for values in inner for item in values]
    return depth


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _recipe(config: Mapping[str, Any]) -> str | None:
    """The same for runs that differ by their seed alone; None where a run has no seed."""
    if "seed" not in config:
        return None
    return digest({key: value for key, value in config.items() if key != "seed"})


def _total(optim: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """How many steps the run will have; None where its settings do not say."""
    try:
        iterations = -(-int(optim["num_train_datapoints"]) // int(optim["batch_size"]))
        return iterations + -(-int(config["warm_questions"]) // warm_settings(config["parts"]).batch_size)
    except (KeyError, TypeError, ValueError, ArithmeticError, ConfigError):
        return None


@dataclass
class Metrics:
    """metrics.jsonl as columns, read as far as its last whole line."""

    series: dict[str, dict[str, Series]] = field(default_factory=lambda: defaultdict(dict))
    """By phase (`train`, `eval`, …) and key."""
    rows: int = 0
    step: int | None = None
    phase: str | None = None
    whole: bool = True
    """Whether all lines that there are were read."""
    _inode: int = -1
    _offset: int = 0
    _last: bytes = b""
    """The end of what was read: a file that has other bytes there is another file."""
    _written: float | None = None

    def caught_up(self, file: Path) -> Metrics:
        """With the lines that were added; a fresh start where the file was rewritten, as a resumed run does."""
        try:
            with opened(file, math.inf) as lines:
                status = os.fstat(lines.fileno())
                lines.seek(max(0, self._offset - len(self._last)))
                same = (
                    status.st_ino == self._inode
                    and status.st_size >= self._offset
                    and lines.read(len(self._last)) == self._last
                )
                metrics = self if same else Metrics()
                metrics._inode, metrics._written = status.st_ino, status.st_mtime
                until = metrics._offset + PER_LOOK
                while metrics._offset < until and metrics._read(lines):
                    pass
                metrics.whole = metrics._offset < until
        except (OSError, ConfigError):
            return self if self.rows == 0 else Metrics()
        return metrics

    def _read(self, lines: BinaryIO) -> bool:
        """The next whole lines, or a piece of one that is too long; False where there is neither yet."""
        lines.seek(self._offset)
        new = lines.read(AT_ONCE)
        whole = new[: new.rfind(b"\n") + 1]
        for line in whole.split(b"\n"):
            self._add(line)
        passed = whole or (new if len(new) == AT_ONCE else b"")
        self._offset, self._last = self._offset + len(passed), passed[-64:] or self._last
        return bool(passed)

    def _add(self, line: bytes) -> None:
        if (row := metric_row(line)) is None:
            return
        self.rows += 1
        self.step, self.phase = step, phase = int(row.pop("step")), str(row.pop("phase"))
        columns = self.series["train" if phase in TRAINING else phase]
        for key, value in row.items():
            if value is None or isinstance(value, int | float):
                steps, values = columns.setdefault(key, ([], []))
                steps.append(float(step))
                values.append(_finite(value))

    def spent(self, axis: str, until: float = math.inf) -> float:
        """Tokens or seconds up to a step, with it."""
        return sum(
            value
            for phase, key in AXES[axis]
            for step, value in zip(*self.series.get(phase, {}).get(key, ([], [])), strict=True)
            if step <= until and value is not None
        )

    def along(self, axis: str, series: Series) -> list[float]:
        """Where on the axis the points of a curve stand."""
        steps = sorted(set(series[0]))
        added: dict[float, float] = defaultdict(float)
        for phase, key in AXES[axis]:
            for step, value in zip(*self.series.get(phase, {}).get(key, ([], [])), strict=True):
                added[steps[place] if (place := bisect_left(steps, step)) < len(steps) else math.inf] += value or 0.0
        so_far = dict(zip(steps, accumulate(added[step] for step in steps), strict=True))
        return [so_far[step] for step in series[0]]

    def age(self) -> float | None:
        return None if self._written is None else max(0.0, time.time() - self._written)

    def last(self, phase: str, key: str) -> float | None:
        """The newest value, None if the newest row has none: an alarm that cannot tell must not show what it said
        before."""
        _, values = measured(self.series.get(phase, {}), key) or ([], [])
        return values[-1] if values else None

    def recent(self, key: str) -> float | None:
        """The mean over the last steps that have it, as the trust panel's."""
        return _about(*(measured(self.series.get("train", {}), key) or ([], [])))["recent"]

    def keys(self) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """Everything that was measured, with what it came to."""
        return {
            phase: {key: _about(*series) for key, series in sorted(columns.items())}
            for phase, columns in self.series.items()
        }

    def ringing(self, alarm: str) -> list[int]:
        """The steps at which an alarm rang; `any` is all of them."""
        keys = list(ALARMS) if alarm == "any" else [f"alarm/{alarm}"]
        columns = self.series.get("train", {})
        return sorted(
            {int(step) for key in keys if key in columns for step, value in zip(*columns[key], strict=True) if value}
        )


def _finite(value: float | None) -> float | None:
    """None also for a whole number that is too large for a float."""
    try:
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None


def _about(steps: list[float], values: list[float | None]) -> dict[str, float | int | None]:
    measured = [value for value in values if value is not None]
    recent = measured[-5:]
    return {
        "n": len(measured),
        "step": steps[-1] if steps else None,
        "last": values[-1] if values else None,
        "recent": sum(recent) / len(recent) if recent else None,
        "min": min(measured, default=None),
        "max": max(measured, default=None),
    }


def thinned(series: Series, points: int) -> Series:
    """At most about `points` of them. Of each stretch the lowest and the highest stay, so that no spike is lost."""
    steps, values = series
    if len(steps) <= points:
        return series
    kept: list[int] = []
    size = -(-len(steps) * 2 // points)
    for begin in range(0, len(steps), size):
        measured = [(value, i) for i in range(begin, min(begin + size, len(steps))) if (value := values[i]) is not None]
        kept += sorted({min(measured)[1], max(measured)[1]}) if measured else [begin]
    return [steps[i] for i in kept], [values[i] for i in kept]
