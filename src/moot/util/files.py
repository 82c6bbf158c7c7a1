"""Lines of JSON in a file, one at a time, and the digest of a value."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from moot.errors import ConfigError
from moot.util.disk import open_to_append, read_file, write_atomically
from moot.util.json_text import read_json


def digest(value: Any) -> str:
    """16 characters that stand for a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds lines that a power cut does not take away again."""
    with open_to_append(path) as file:
        file.write(_lines(rows))
        os.fsync(file.fileno())


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A file of these lines and no others."""
    write_atomically(path, _lines(rows))


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class Appended:
    """A file that gets a line for each row as it comes, opened for the first one. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_to_append(self.path)
        self._file.write(_lines([row]))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def lines_in(file: BinaryIO, longest: int = -1) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, each with the byte it begins at; longer ones in pieces.

    An empty one is no debate, and does not move the numbers of those after it."""
    offset = 0
    for line in iter(partial(file.readline, longest), b""):
        if line != b"\n":
            yield offset, line.removesuffix(b"\n")
        offset += len(line)


def json_lines(path: Path) -> Iterator[tuple[int, Any, bool]]:
    """Number, content (None where it is not JSON) and whether it was ended, of each line that is not empty.

    Of a file that is not there, nothing."""
    try:
        lines = read_file(path).split(b"\n")
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, 1):
        if line:
            content = None
            with contextlib.suppress(ConfigError):
                content = read_json(line)
            yield number, content, number < len(lines)
