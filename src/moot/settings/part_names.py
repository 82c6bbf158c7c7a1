"""How an optional part of training is spelled: `name`, `name:setting=value,…`, or a user's own,
`file.py:Class:setting=value,…`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar, cast, get_type_hints

from moot.errors import ConfigError

T = TypeVar("T")

_PART = re.compile(r"([^:=,]+\.py:\w+|[^:]+)(?::(.*))?", re.S)
OFF = "off"
"""Instead of settings: without the part, where a preset has it."""
NOW_PARTS = {
    "kl_coef": "kl_penalty:coef=…", "kl_beta": "kl_penalty:coef=…",
    "ema_decay": "kl_penalty:coef=…,weights=ema,ema_decay=…", "target_kl": "adaptive_rate:target_kl=…",
    "warm_batch_size": "warm_start:batch_size=…", "warm_learning_rate": "warm_start:learning_rate=…",
    "warm_wrong": "warm_start:wrong=…", "warm_solutions": "warm_start:solutions=…",
    "lr_schedule": "lr_schedule:shape=…", "lr_warmup": "lr_schedule:warmup=…",
}  # fmt: skip
"""Settings that people type who know other trainers, and the part that each belongs to."""


def split_part(text: str) -> tuple[str, str]:
    """Its name, and its settings as they are written."""
    spelled = _PART.fullmatch(text)
    return (spelled[1], spelled[2] or "") if spelled else (text, "")


def is_own(text: str) -> bool:
    """Whether it is a user's own class; a part of ours may have the name of a user's task in its settings."""
    return ".py:" in split_part(text)[0]


def last_of_each(texts: Iterable[str]) -> tuple[str, ...]:
    """Of parts by one name the last, so that a command line changes what its preset names; none of those that are
    turned `off`."""
    last: dict[str, str] = {}
    for text in texts:
        name, settings = split_part(text)
        last[name] = settings if settings == OFF else text
    return tuple(text for text in last.values() if text != OFF)


def part_instead(setting: str) -> str:
    """What to write for a setting that belongs to a part now, as the end of a sentence; empty for others."""
    name = setting.removeprefix("--").replace("-", "_")
    return f"; it belongs to a part of training now: --with {NOW_PARTS[name]}" if name in NOW_PARTS else ""


def read_settings(kind: type[T], text: str) -> T:
    """The settings of a part, of `kind`, as `name:setting=value,…` has them."""
    from pydantic import TypeAdapter, ValidationError

    written = split_part(text)[1]
    known = [field.name for field in fields(cast(Any, kind))]
    given, last = dict[str, str](), ""
    hints = get_type_hints(kind)
    for piece in written.split(",") if written else ():
        name, equals, value = piece.partition("=")
        if equals and name in known and name not in given:
            given[name], last = value, name
        elif last and hints[last] in (str, tuple[str, ...]):
            given[last] += f",{piece}"  # a task has commas of its own
        else:
            wrong = f"{name} is given twice" if name in given else f"there is no setting {name!r}"
            raise ConfigError(
                f"with {text}: {wrong}; there are {', '.join(known) or 'none'}, each written once as name=value"
            )
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        raise ConfigError(f"with {text}: {_told(error)}") from None


def _told(error: Any) -> str:
    first = error.errors()[0]
    setting, message = ".".join(str(part) for part in first["loc"][:1]), first["msg"]
    if first["type"] in ("missing", "missing_argument"):
        return f"{setting} must be given"
    if first["type"] == "value_error":
        return f"{setting} {first['ctx']['error']}" if setting else str(first["ctx"]["error"])
    return f"{setting} {message.replace('Input should', 'must')}, got {first['input']!r}"
