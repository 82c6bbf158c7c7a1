"""Files that a user names: none is waited for without end, and none is written through a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moot.cli.main import main

TRAIN = ["train", "--engine", "scripted", "--dry-run"]


@pytest.mark.parametrize(
    "command", [[*TRAIN, "--config"], [*TRAIN, "--prompts"], ["demo", "--debates", "1", "--out"], ["score"]]
)
def test_a_pipe_is_refused_by_name(tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "named.json")
    assert main([*command, str(tmp_path / "named.json")]) == 2
    assert "named.json is a pipe, and a plain file or folder is wanted there" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[*TRAIN, "--config"], [*TRAIN, "--prompts"], ["score"]])
def test_a_file_of_any_size_is_refused_by_name(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "named.json").touch()
    os.truncate(tmp_path / "named.json", 200 * 2**30)
    assert main([*command, str(tmp_path / "named.json")]) == 2
    assert "named.json has 214,748,364,800 bytes, and at most 536,870,912 are read" in capsys.readouterr().err


def test_the_demo_writes_through_no_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "demo.jsonl").symlink_to("thesis.tex")
    assert main(["demo", "--debates", "1", "--out", str(tmp_path / "demo.jsonl")]) == 2
    assert "demo.jsonl is a link" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
