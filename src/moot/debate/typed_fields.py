"""Choices as they come from a file: checked by their types, changed by name, written back."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable
from dataclasses import fields, replace
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from moot.errors import ConfigError

T = TypeVar("T")


@cache
def names_of(kind: type) -> tuple[str, ...]:
    """The choices of `Rules` or `Scoring`."""
    return tuple(field.name for field in fields(kind))


@cache
def _hints_of(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def near(word: str, names: Iterable[str]) -> str:
    """`; did you mean truth?`, to end what is said about a wrong word; nothing where no name is like it."""
    meant = difflib.get_close_matches(word, names, n=1, cutoff=0.7)
    return f"; did you mean {meant[0]}?" if meant else ""


def check_types(choices: object) -> None:
    """Data from a file may hold anything; JSON's true must not pass for 1."""
    hints = _hints_of(cast(Hashable, type(choices)))
    for name, hint in ((name, hints[name]) for name in names_of(cast(Any, type(choices)))):
        _check(name, getattr(choices, name), hint)


def read_fields(usual: T, written: str, what: str) -> T:
    """`usual` with what is `written` behind a name, as in `checks=8,show=answer`. `what` begins each message."""
    hints, given = _hints_of(cast(Hashable, type(usual))), dict[str, Any]()
    for piece in written.split(","):
        name, _, text = piece.partition("=")
        if name not in hints or name in given:
            wrong = f"{name} is given twice" if name in given else f"there is no setting {name!r}{near(name, hints)}"
            raise ConfigError(f"{what}: {wrong}; there are {', '.join(hints)}, each written once as name=value")
        try:
            given[name] = hints[name](text) if hints[name] in (int, float) else text
        except ValueError:
            number = "a whole number" if hints[name] is int else "a number"
            raise ConfigError(f"{what}: {name} must be {number}, got {text!r}") from None
    try:
        read: T = replace(usual, **given)  # type: ignore[type-var]
        check_types(read)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None
    return read


def _check(name: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is Literal:
        if value not in get_args(hint) or not isinstance(value, str):
            raise ConfigError(f"{name} must be {' or '.join(get_args(hint))}, got {value!r}")
    elif get_origin(hint) is tuple:
        if not isinstance(value, tuple):
            raise ConfigError(f"{name} must be a list, got {value!r}")
        for item in value:
            _check(f"each of the list {name}", item, get_args(hint)[0])
    elif hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name} must be a number, got {value!r}")
    elif not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{name} must be {'true or false' if hint is bool else hint.__name__}, got {value!r}")


def as_json(choices: object) -> dict[str, Any]:
    """By name, as JSON has them."""
    values = {field.name: getattr(choices, field.name) for field in fields(choices)}  # type: ignore[arg-type]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
