"""What a checkpoint on disk says about itself: manifest.json, with every file's SHA-256. Needs no torch, so an export
can check it too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moot.errors import EngineError
from moot.util.disk import read_file

MANIFEST = "manifest.json"


class DamagedCheckpoint(EngineError):
    """A checkpoint whose files do not match its manifest. Load an older one."""


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(place: Path) -> dict[str, Any]:
    """What was saved there; `files` has the checksums."""
    try:
        manifest = json.loads(read_file(place / MANIFEST))
        return {**manifest, "files": dict(manifest.get("files", {}))}
    except FileNotFoundError:
        raise DamagedCheckpoint(f"{place}: {MANIFEST} is missing") from None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{place}: its manifest cannot be read ({type(error).__name__}: {error})") from error


def check_files(place: Path, files: Mapping[str, str]) -> None:
    """DamagedCheckpoint where one of them is missing, or another than was saved."""
    for name, expected in files.items():
        if not (place / name).is_file():
            raise DamagedCheckpoint(f"{place}: {name} is missing")
        if sha256(place / name) != expected:
            raise DamagedCheckpoint(f"{place}: {name} does not match its checksum")
