"""What a list of debates is sorted by, as SQL that goes on behind any of its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from moot.page.filters import Refused, Where

_COLUMNS = ("agreement", "reward", "confidence", "correct")
_NEWEST = (("step", True), ("number", False))
ORDERS: dict[str, tuple[tuple[str, bool], ...]] = {
    "": _NEWEST,
    "oldest": (("step", False), ("number", False)),
    **{name: ((f"coalesce({name}, -1e300)", True), *_NEWEST) for name in _COLUMNS},
    **{f"-{name}": ((f"coalesce({name}, 1e300)", False), *_NEWEST) for name in _COLUMNS},
}
"""What lists are sorted by, each part with whether the largest comes first; what was not measured comes last."""


def order_of(asked: Mapping[str, str]) -> str:
    if (order := asked.get("sort", "")) not in ORDERS:
        raise Refused(f"sort must be one of {', '.join(filter(None, ORDERS))}, got {order[:40]!r}")
    return order


def select(what: str, clauses: Sequence[str]) -> str:
    return f"select {what} from debates" + (f" where {' and '.join(clauses)}" if clauses else "")


def ordered(
    connection: sqlite3.Connection,
    what: str,
    where: Where,
    order: Sequence[tuple[str, bool]],
    after: tuple[int, int] | None,
) -> tuple[str, list[Any]]:
    """A query for what comes behind a debate in an order, and its values."""
    clauses, values = list(where.clauses), list(where.values)
    if after is not None:
        own = f"select {', '.join(name for name, _ in order[:-2])} from debates where step = ? and number = ?"
        found = connection.execute(own, after).fetchone() if order[:-2] else ()
        here = [*(found or [None] * len(order[:-2])), *after]
        ways = []  # equal so far, and then behind
        for i, (name, falls) in enumerate(order):
            ways.append(" and ".join([*(f"{same} = ?" for same, _ in order[:i]), f"{name} {'<' if falls else '>'} ?"]))
            values += here[: i + 1]
        clauses.append(f"({' or '.join(f'({way})' for way in ways)})")
    by = ", ".join(f"{name} desc" if falls else name for name, falls in order)
    return f"{select(what, clauses)} order by {by}", values
