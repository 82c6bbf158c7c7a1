"""Where curves go besides JSON lines. Each is an extra of its own and is imported when asked for."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from moot.errors import ConfigError


class Logger(Protocol):
    def row(self, step: int, numbers: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class _TensorBoard:
    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(path / "tensorboard"))

    def row(self, step: int, numbers: Mapping[str, float]) -> None:
        import time

        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """Weights & Biases and trackio share one interface."""

    def __init__(self, module: str, path: Path, config: Mapping[str, Any]) -> None:
        self._api: Any = importlib.import_module(module)
        self._api.init(project="moot", name=path.name, config=dict(config))

    def row(self, step: int, numbers: Mapping[str, float]) -> None:
        self._api.log({**numbers, "step": step})

    def close(self) -> None:
        self._api.finish()


LOGGERS: dict[str, Callable[[Path, Mapping[str, Any]], Logger]] = {
    "tensorboard": _TensorBoard,
    "wandb": lambda path, config: _Wandb("wandb", path, config),
    "trackio": lambda path, config: _Wandb("trackio", path, config),
}


def check_names(names: Sequence[str]) -> None:
    """Known, and installed: before a model is loaded or a folder made."""
    for name in names:
        if name not in LOGGERS:
            raise ConfigError(f"log must name {', '.join(LOGGERS)}, got {name!r}")
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"log {name} needs the package {name}; run: pip install 'moot[{name}]'")


def make_loggers(names: Sequence[str], path: Path, config: Mapping[str, Any]) -> list[Logger]:
    return [LOGGERS[name](path, config) for name in names]
