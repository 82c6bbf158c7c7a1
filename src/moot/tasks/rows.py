"""Rows of a published set, from a file or from the hub, and what becomes of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moot.errors import ConfigError
from moot.util.json_text import read_json

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    question: str
    answer: str | None = None
    """None where the set gives no answers at all; empty where it has a hole."""
    solution: str = ""
    """Worked, where the set has one."""
    sides: tuple[str, ...] = ()
    """Two answers to argue for, the right one first where it is known."""


def read(path: Path) -> list[tuple[str, Raw]]:
    """Where each row stands, and the row. JSON lines, a JSON list, CSV, or a text file with one prompt per line."""
    if not path.is_file():
        raise ConfigError(f"task {str(path)!r}: there is no such file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    if path.suffix == ".csv":
        return _csv(path, text)
    rows: list[tuple[str, Raw]] = []
    if path.suffix == ".json" and text.lstrip().startswith("["):
        return [_object(row, f"{path}, row {i}") for i, row in enumerate(_json(text, str(path)), 1)]
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}, line {number}"
        if line.strip():
            text_alone = path.suffix == ".txt"
            rows.append((where, {"prompt": line.strip()}) if text_alone else _object(_json(line, where), where))
    return rows


def _csv(path: Path, text: str) -> list[tuple[str, Raw]]:
    """The first line names the columns."""
    reader, rows = csv.DictReader(io.StringIO(text, newline="")), list[tuple[str, Raw]]()
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row:
                raise ConfigError(f"{where}: has more cells than the first line names; quote cells with commas in them")
            rows.append((where, row))
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: {error}; save it as CSV with commas") from None
    return rows


def _json(text: str, where: str) -> Any:
    try:
        return read_json(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _object(row: Any, where: str) -> tuple[str, Raw]:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: needs an object with the fields question and answer, got {type(row).__name__}")
    return where, row


@dataclass(frozen=True)
class Hub:
    """Where a split of a published set is."""

    id: str
    split: str
    config: str | None = None


def load(file: str, task: str, hub: Hub, files: Sequence[str]) -> list[tuple[str, Raw]]:
    """From the file if there is one, or from the hub. Whoever has no network is told which `files` to name."""
    if file:
        return read(Path(file))
    way_out = f"give files instead: {task}:{','.join(f'{name}=FILE.jsonl' for name in files)}"
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        missing = f"task {task} comes from the hub through the package datasets: pip install 'moot[data]'"
        raise ConfigError(f"{missing}, or {way_out}") from None
    try:
        rows = datasets.load_dataset(hub.id, hub.config, split=hub.split)
    except Exception as error:  # its dozen dependencies raise whatever they like without a network, set or permission
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ConfigError(f"task {task}: {hub.id} ({hub.split}) cannot be fetched ({why}); {way_out}") from None
    return [(f"{hub.id}, {hub.split}, row {i}", row) for i, row in enumerate(rows, 1)]


def field(raw: Raw, where: str, *names: str) -> str:
    """The first of the fields that is there, as text; numbers are written out."""
    for name in names:
        if name in raw:
            value = raw[name]
            if value is None:
                return ""
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ConfigError(f"{where}: {name} must be text or a number, got {type(value).__name__}")
            return str(value).strip()
    raise ConfigError(f"{where}: needs the field {' or '.join(names)}; it has {', '.join(raw) or 'none'}")


MakeRow = Callable[[Raw, str], Row | None]
"""(a row, where it stands) -> the same as ours; None where it is filtered out."""


def convert(raws: Iterable[tuple[str, Raw]], make: MakeRow) -> list[Row]:
    """Every row that `make` does not filter out."""
    rows = [row for where, raw in raws if (row := make(raw, where)) is not None]
    if empty := next((i for i, row in enumerate(rows, 1) if not row.question), None):
        raise ConfigError(f"row {empty} has an empty question; take it out of the file")
    return rows
