"""Rows as a CSV file, for spreadsheets: what a model wrote may look like a formula, and must not be one there."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any


def as_csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """A number stays one; other text that a spreadsheet would calculate gets an apostrophe before it."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        with suppress(ValueError):
            float(value)
            return value
        return f"'{value}"
    return value
