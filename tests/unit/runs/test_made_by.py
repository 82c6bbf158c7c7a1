"""Where a run says it comes from."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import pytest

from moot import __version__
from moot.runs import made_by as module
from moot.runs.made_by import made_by
from moot.util import secrets


def test_a_run_says_by_which_command_and_code_it_was_made_and_never_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_keys", {"sk-0123456789"})
    monkeypatch.setattr(sys, "argv", ["/usr/bin/moot", "train", "--task", "a file.jsonl", "--key", "sk-0123456789"])
    made = made_by()
    assert made["moot"] == __version__ and made["host"]
    assert made["command"] == "moot train --task 'a file.jsonl' --key '[key]'"
    assert datetime.fromisoformat(made["started"]).utcoffset() is not None
    monkeypatch.setattr(sys, "argv", ["/x/moot/__main__.py", "train"])
    assert made_by()["command"] == "moot train", "as python -m moot"


def test_another_projects_repository_around_an_installed_moot_is_not_its_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_PACKAGE", tmp_path)
    assert "commit" not in made_by()
