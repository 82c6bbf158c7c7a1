"""The optional parts of training, one class in one file each. The file's name is the part's name; nothing else has to
be told of it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from moot.debate.typed_fields import near
from moot.errors import ConfigError
from moot.settings.part_names import is_own, read_settings, split_part
from moot.settings.train import TrainConfig
from moot.training.part import Part
from moot.util.user_code import load_class


def names() -> list[str]:
    """Of our own parts."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def part_classes() -> dict[str, type[Part]]:
    """Our own, by name."""
    return {name: _class_of(name) for name in names()}


def about() -> dict[str, str]:
    """By name: the first line that each of our own parts says of itself."""
    return {name: (kind.__doc__ or "").strip().partition("\n")[0] for name, kind in part_classes().items()}


def find_parts(config: TrainConfig, users: bool = True) -> tuple[Part, ...]:
    """The parts that a configuration names, each checked against it. Without `users`, nobody else's code is loaded."""
    parts = tuple(find_part(text) for text in config.parts if users or not is_own(text))
    for part in parts:
        check_part(part, config)
    if len(judges := [part.name for part in parts if part.brings_judge]) > 1:
        raise ConfigError(f"{judges[0]} brings the judge itself, got {judges[1]} too; leave one of them out")
    if users or not any(map(is_own, config.parts)):
        for part in parts:
            part.check_beside(config, [other for other in parts if other is not part])
    if len(decays := {decay for part in parts if (decay := part.ema_decay()) is not None}) > 1:
        raise ConfigError(
            f"ema_decay must be one number, got {' and '.join(map(str, sorted(decays)))}: an engine keeps one average"
        )
    return parts


def check_part(part: Part, config: TrainConfig) -> None:
    """Refuses settings that a part cannot be used with, and rules that lack what it needs."""
    rules = config.protocol.rules
    if why := next((rules.lacks[need] for need in part.needs if need in rules.lacks), None):
        raise ConfigError(f"{part.name} must be left out with positions {rules.positions}: {why}")
    part.check(config)


def fitting(config: TrainConfig) -> TrainConfig:
    """Without the parts that refuse its other settings: those of a preset, where another protocol takes its place."""
    return replace(config, parts=tuple(_fitting(config)))


def _fitting(config: TrainConfig) -> Iterator[str]:
    for text in config.parts:
        try:
            if not is_own(text):  # whose code is run when there is something to train
                check_part(find_part(text), config)
        except ConfigError:
            continue
        yield text


def trained_tasks(config: TrainConfig) -> tuple[str, ...]:
    """The names of the tasks that a run trains on, by level; one that only a user's own part knows is not among
    them."""
    return next((tasks for part in find_parts(config, users=False) if (tasks := part.tasks())), (config.debate.task,))


def debate_settings(config: TrainConfig) -> dict[str, Any]:
    """The fields of a debate that the parts of a run change."""
    return {name: value for part in find_parts(config, users=False) for name, value in part.debate_settings().items()}


def find_part(text: str) -> Part:
    """`name:setting=value,…`, or `file.py:Class:setting=value,…`."""
    name, _ = split_part(text)
    kind = load_class(name, "with", Part) if is_own(text) else _class_of(name)
    part = kind(read_settings(kind.Settings, text))
    part.name = name
    return part


def _class_of(name: str) -> type[Part]:
    if name not in names():
        known = f"{', '.join(names())}, or file.py:Class"
        raise ConfigError(f"with must name one of {known}, got {name!r}{near(name, names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    (kind,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Part) and value.__module__ == module.__name__
    )
    return kind
