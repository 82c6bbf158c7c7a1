"""Writing that a kill cannot tear: whole files beside their place and then moved there, and lines of JSON one at a time."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from moot.debate.types import ConfigError
from moot.json_text import read_json


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A file to write; it takes the target's place once it is whole."""
    temporary = target.with_name(target.name + ".tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            _sync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a pipe or a device has nothing to keep
            raise


def write_atomically(target: Path, content: bytes) -> None:
    with beside(target) as temporary:
        temporary.write_bytes(content)


def sync_folder(folder: Path) -> None:
    """So that a file that was moved there is still there after a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(value: Any) -> str:
    """16 characters that stand for a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


# Lines of JSON


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a line that a power cut does not take away again."""
    with path.open("ab") as file:
        file.write(json.dumps(row).encode() + b"\n")
        file.flush()
        _sync(file.fileno())


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A file of these lines and no others."""
    write_atomically(path, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def json_lines(path: Path) -> Iterator[tuple[int, Any, bool]]:
    """Number, content (None where it is not JSON) and whether it was ended, of each line that is not empty; of no file, nothing."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines, 1):
        if line:
            content = None
            with contextlib.suppress(ConfigError):
                content = read_json(line)
            yield number, content, number < len(lines)
