"""Where what is exported goes. Nothing is overwritten unasked; a kill leaves the old or the new."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from moot.errors import ConfigError
from moot.util import disk

OWN = "export"
"""Where it goes beside what is exported, unless another place is named."""


def place_beside(folder: Path) -> Path:
    """Refused where somebody else made it lead elsewhere."""
    disk.refuse_links(folder, {OWN})
    return folder / OWN


def check_free(targets: Iterable[Path], force: bool) -> None:
    """Before anything is written, so that a refusal costs nothing."""
    for target in targets:
        for parent in target.parents:
            if parent.exists() and not parent.is_dir():
                raise ConfigError(f"out: {parent} is a file, and a folder is needed there; name another with --out")
        if target.exists() and not force:
            raise ConfigError(f"{target} exists; --force replaces it, --out names another place")


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[IO[bytes]]:
    """Written beside its place, and moved there when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise ConfigError(f"{target} is a folder, and a file should go there; move it away")
    with disk.beside(target) as file:
        yield file


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """As `new_file`; what was there before goes only once the new one is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with disk.new_folder(target) as made:
        yield made
        for item in made.iterdir():
            item.chmod(0o644)  # some libraries write for the owner alone
