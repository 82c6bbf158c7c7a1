"""Writing that a kill cannot tear: beside the place, then moved there, so that there is all of a file or none of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A file to write; it takes the target's place once it is whole."""
    temporary = target.with_name(target.name + ".tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


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
