"""The real sets, where somebody has them: MOOT_DATA names a folder with gsm8k/, math/, aime/ and longwriter/ in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moot.tasks import load
from moot.tasks.check import Report, check, gather

DATA = Path(os.environ.get("MOOT_DATA", "") or "/nonexistent")
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="MOOT_DATA names no folder: the real sets were NOT checked")


def checked(name: str, most: int = 0) -> Report:
    task = load(name)
    return check(task, gather(task, most))
