"""Choices as they come from a file: checked by their types, changed by name, written back."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterable, Mapping
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
        check_type(name, getattr(choices, name), hint)


def read_fields(usual: T, written: str, what: str) -> T:
    """`usual` with what is `written` behind a name, as in `checks=8,show=answer`. `what` begins each message."""
    given: dict[str, str] = {}
    for piece in written.split(","):
        name, _, text = piece.partition("=")
        if name in given:
            raise ConfigError(f"{what}: {name} is given twice; write each setting once, as name=value")
        given[name] = text
    return fill_fields(usual, given, what)


_YES_OR_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
READ: dict[type, tuple[Callable[[str], Any], str]] = {
    bool: (lambda text: _YES_OR_NO[text.lower()], "yes or no"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    str: (str, "text"),
}
"""How a value is read that is written behind a name, and what it must be."""


def fill_fields(usual: T, written: Mapping[str, str], what: str) -> T:
    """`usual` with what is written of some settings. `what` begins each message."""
    hints, given = _hints_of(cast(Hashable, type(usual))), dict[str, Any]()
    for name, text in written.items():
        if name not in hints:
            known = ", ".join(hints) or "none"
            raise ConfigError(f"{what}: there is no setting {name!r}{near(name, hints)}; there are {known}")
        read, kind = READ.get(hints[name], READ[str])
        try:
            given[name] = read(text)
        except (ValueError, KeyError):
            raise ConfigError(f"{what}: {name} must be {kind}, got {text!r}") from None
    try:
        filled: T = replace(usual, **given)  # type: ignore[type-var]
        check_types(filled)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None
    return filled


def check_type(name: str, value: Any, hint: Any) -> None:
    """Refuses by name a value that is not of the kind `hint`."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint) or not isinstance(value, str):
            raise ConfigError(f"{name} must be {' or '.join(get_args(hint))}, got {value!r}")
    elif get_origin(hint) is tuple:
        if not isinstance(value, tuple):
            raise ConfigError(f"{name} must be a list, got {value!r}")
        for item in value:
            check_type(f"each of the list {name}", item, get_args(hint)[0])
    elif hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name} must be a number, got {value!r}")
    elif not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        kind = "true or false" if hint is bool else READ[hint][1] if hint in READ else hint.__name__
        raise ConfigError(f"{name} must be {kind}, got {value!r}")


def as_json(choices: object) -> dict[str, Any]:
    """By name, as JSON has them."""
    values = {field.name: getattr(choices, field.name) for field in fields(choices)}  # type: ignore[arg-type]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
