"""Where curves go besides JSON lines: `wandb`, or with settings `wandb:project=mine,run=abc`.

Each is an extra of its own and is imported when asked for. A run that continues is the same run there: what tells it
apart is kept in loggers.json in the run's folder. Where the tool has tables, it is given a few debates of each
evaluation.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from moot.debate.typed_fields import check_types
from moot.errors import ConfigError
from moot.runs.run import step_file
from moot.tasks.spec import Spec
from moot.util.disk import read_file, write_atomically
from moot.util.files import json_lines
from moot.util.json_text import read_json
from moot.util.safe_text import one_line

KEPT = "loggers.json"
DEBATES = 4
"""Of an evaluation, as a table."""
COLUMNS = ("step", "number", "question", "round", "agent", "text", "answer", "right")


@dataclass(frozen=True)
class Place:
    """Where a run is, in another tool."""

    project: str = "moot"
    run: str = ""
    """What the tool knows it by."""


class Logger(Protocol):
    place: Place

    def row(self, step: int, numbers: Mapping[str, float]) -> None: ...
    def table(self, step: int, turns: Sequence[Sequence[Any]]) -> None:
        """Turns of an evaluation's debates, a row each, under `COLUMNS`."""
        ...

    def close(self) -> None: ...


class _TensorBoard:
    def __init__(self, path: Path, config: Mapping[str, Any], place: Place) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(path / "tensorboard"))
        self.place = place

    def row(self, step: int, numbers: Mapping[str, float]) -> None:
        import time

        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self._writer.flush()

    def table(self, step: int, turns: Sequence[Sequence[Any]]) -> None:
        """There is none in it."""

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """Weights & Biases. Several runs may be open in one process, so each has an object of its own."""

    def __init__(self, path: Path, config: Mapping[str, Any], place: Place) -> None:
        self._api: Any = importlib.import_module("wandb")
        self.place = replace(place, run=place.run or uuid4().hex[:8])
        try:
            self._run = self._api.init(
                project=place.project, id=self.place.run, name=path.name, config=dict(config), resume="allow",
                reinit="create_new",
            )  # fmt: skip
        except self._api.Error as error:  # no key, no network, no such project
            raise _refused(error) from None
        # A run that went back to an older checkpoint logs steps again: its own count says where they belong.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def row(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({**numbers, "step": step})

    def table(self, step: int, turns: Sequence[Sequence[Any]]) -> None:
        table = self._api.Table(columns=list(COLUMNS), data=[list(turn) for turn in turns], allow_mixed_types=True)
        self._run.log({"debates": table, "step": step})

    def close(self) -> None:
        self._run.finish()


def _refused(error: Exception) -> ConfigError:
    why = one_line(str(error), 200).rstrip(".")
    login = "" if "wandb login" in why else "run wandb login, "
    return ConfigError(f"log wandb: {why}; {login}or set WANDB_MODE=offline")


class _Trackio(_Wandb):
    """trackio speaks as Weights & Biases does, but knows a run by its name."""

    def __init__(self, path: Path, config: Mapping[str, Any], place: Place) -> None:
        self._api = importlib.import_module("trackio")
        self.place = replace(place, run=place.run or path.name)
        self._run = self._api.init(
            project=place.project, name=self.place.run, config=dict(config), resume="allow", embed=False
        )


class _MLflow:
    """MLflow at MLFLOW_TRACKING_URI, or its own default. The project is an experiment."""

    def __init__(self, path: Path, config: Mapping[str, Any], place: Place) -> None:
        import mlflow

        self._client: Any = mlflow.MlflowClient()
        try:
            self.place = self._begun(place, path.name)
        except mlflow.MlflowException as error:
            raise ConfigError(f"log mlflow: {one_line(str(error))}") from None
        self._client.log_dict(self.place.run, dict(config), "config.json")

    def _begun(self, place: Place, name: str) -> Place:
        if place.run:
            self._client.update_run(place.run, status="RUNNING")
            return place
        found = self._client.get_experiment_by_name(place.project)
        experiment = found.experiment_id if found else self._client.create_experiment(place.project)
        return replace(place, run=self._client.create_run(experiment, run_name=name).info.run_id)

    def row(self, step: int, numbers: Mapping[str, float]) -> None:
        import time

        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        # It refuses other signs than these in a name.
        metrics = [Metric(re.sub(r"[^\w\-. /]", "_at_", name), value, now, step) for name, value in numbers.items()]
        for start in range(0, len(metrics), 1000):  # no more are taken at once
            self._client.log_batch(self.place.run, metrics[start : start + 1000])

    def table(self, step: int, turns: Sequence[Sequence[Any]]) -> None:
        columns = {name: [turn[number] for turn in turns] for number, name in enumerate(COLUMNS)}
        self._client.log_table(self.place.run, columns, "debates.json")

    def close(self) -> None:
        self._client.set_terminated(self.place.run)


LOGGERS: dict[str, Any] = {"tensorboard": _TensorBoard, "wandb": _Wandb, "trackio": _Trackio, "mlflow": _MLflow}


def _read(given: str) -> tuple[str, dict[str, str]]:
    """The tool and its settings. ConfigError where either is unknown."""
    spec = Spec.read(given)
    if spec.name not in LOGGERS:
        raise ConfigError(f"log must name {', '.join(LOGGERS)}, got {spec.name!r}")
    settings = dict(spec.settings or {})
    known = () if spec.name == "tensorboard" else ("project", "run")
    if strange := [*spec.words, *(name for name in settings if name not in known)]:
        can = "it has no settings" if not known else f"as in {spec.name}:project=mine,run=abc"
        raise ConfigError(f"log {given}: {strange[0]!r} means nothing here; {can}")
    return spec.name, settings


def check_names(names: Sequence[str]) -> None:
    """Known, and installed: before a model is loaded or a folder made."""
    for given in names:
        name, _ = _read(given)
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"log {name} needs the package {name}; run: pip install 'moot[{name}]'")


def log_in(names: Sequence[str]) -> None:
    """Asks for the key of W&B where there is none, on a terminal; ConfigError elsewhere. As early as `check_names`."""
    online = os.environ.get("WANDB_MODE") in (None, "", "online")
    if online and any(_read(given)[0] == "wandb" for given in names):
        wandb: Any = importlib.import_module("wandb")
        try:
            wandb.login()
        except wandb.Error as error:
            raise _refused(error) from None


def _kept(file: Path) -> dict[str, dict[str, str]]:
    """By tool, where the run is there."""
    if not file.exists():
        return {}
    try:
        kept = {str(name): dict(place) for name, place in read_json(read_file(file)).items()}
        for place in kept.values():
            check_types(Place(**place))
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f"{file} is damaged; put back what moot wrote, or delete it to begin another") from None
    return kept


class Loggers:
    """All that were asked for, where the run's folder remembers them, or at a new place, which it then remembers."""

    def __init__(self, names: Sequence[str] = (), path: Path = Path(), config: Mapping[str, Any] | None = None) -> None:
        self._path, self._open = path, list[Logger]()
        kept = _kept(path / KEPT) if names else {}
        for given in names:
            name, settings = _read(given)
            before = kept.get(name, {})
            if changed := next((key for key, value in settings.items() if before.get(key, value) != value), None):
                raise ConfigError(
                    f"log {given}: this run is {before[changed]!r} there, the {changed} it began with; leave {changed} "
                    f"out, or delete {path / KEPT} to begin another"
                )
            logger = LOGGERS[name](path, config or {}, Place(**{**before, **settings}))
            self._open.append(logger)
            kept[name] = asdict(logger.place)
            write_atomically(path / KEPT, json.dumps(kept, indent=1).encode())

    def row(self, row: Mapping[str, Any]) -> None:
        """A row of the metrics; of an evaluation also a few of its debates."""
        numbers = {
            name: float(value) for name, value in row.items() if isinstance(value, int | float) and name != "step"
        }
        turns = list(held_out_turns(self._path, row["step"])) if self._open and row["phase"] == "eval" else []
        for logger in self._open:
            logger.row(row["step"], numbers)
            if turns:
                logger.table(row["step"], turns)

    def close(self) -> None:
        for logger in self._open:
            logger.close()


def held_out_turns(path: Path, step: int) -> Iterator[Sequence[Any]]:
    """The first debates of the evaluation after that step, turn by turn, under `COLUMNS`."""
    with suppress(OSError):
        for number, record, _ in json_lines(path / "held_out" / step_file(step)):
            if number > DEBATES:
                return
            with suppress(KeyError, TypeError):
                asked = record["question"]["text"]
                for turn in record["turns"]:
                    said = (turn["round"], turn["agent"], turn["text"], str(turn.get("answer") or ""))
                    right = turn.get("correct")
                    yield [step, record["number"], asked, *said, "" if right is None else str(right).lower()]
