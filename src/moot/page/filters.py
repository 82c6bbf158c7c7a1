"""What can be asked of a run's debates: the filters of a link, as SQL with nothing of the asker's in it but values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class Refused(ValueError):
    """A filter that makes no sense; the message says which and what would."""


@dataclass(frozen=True)
class Where:
    clauses: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()


CHOICES: dict[str, dict[str, str]] = {
    "failed": {"yes": "failures > 0", "no": "failures = 0"},
    "correct": {
        "all": "correct = 1",
        "mixed": "correct > 0 and correct < 1",
        "none": "correct = 0",
        "misled": "winner_correct = 0 and correct > 0",
        "unknown": "correct is null",
    },
    "winner": {"right": "winner_correct = 1", "wrong": "winner_correct = 0", "none": "winner is null"},
    "disagree": {"yes": "disagreement", "no": "not disagreement"},
    "signal": {"yes": "signal", "no": "signal = 0"},
    "error": {"yes": "error is not null", "no": "error is null"},
}


def where(asked: Mapping[str, str], ringing: Callable[[str], list[int]], searchable: bool = True) -> Where:
    """The filters of a link. `ringing` tells at which steps an alarm rang."""
    clauses: list[str] = []
    values: list[Any] = []
    for name, choices in CHOICES.items():
        if chosen := asked.get(name):
            if chosen not in choices:
                raise Refused(f"{name} must be one of {', '.join(choices)}, got {chosen[:40]!r}")
            clauses.append(choices[chosen])
    if same := asked.get("same"):
        step, _, number = same.partition(".")
        clauses.append("question = (select question from debates where step = ? and number = ?)")
        values += [whole("same's step", step), whole("same's number", number)]
    for name, sign in (("from", ">="), ("to", "<=")):
        if asked.get(name):
            clauses.append(f"step {sign} ?")
            values.append(whole(name, asked[name]))
    if alarm := asked.get("alarm"):
        clauses.append("step in (select value from json_each(?))")
        values.append(json.dumps(ringing(alarm)))
    if words := asked.get("q", "").split():
        if searchable:
            clauses.append("id in (select rowid from words where words match ?)")
            values.append(" ".join(f'"{clean(word).replace(chr(34), chr(34) * 2)}"' for word in words[:20]) + "*")
        else:
            for word in words[:20]:
                clauses.append("instr(lower(question), lower(?))")
                values.append(clean(word))
    return Where(tuple(f"({clause})" for clause in clauses), tuple(values))


def whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Refused(f"{name} must be a whole number, got {text[:40]!r}")
    return int(text)


def clean(text: Any) -> str:
    """SQLite takes no half surrogates, and ends a text at a zero."""
    return str(text).encode("utf-8", "replace").decode().replace("\0", "\ufffd")
