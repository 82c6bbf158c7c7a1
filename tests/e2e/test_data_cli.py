"""`moot data check` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from moot.tasks import TASKS

FIXTURES = Path(__file__).parent.parent / "unit" / "tasks" / "fixtures"


def moot(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "160", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "moot", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=environment)


def test_a_table_for_people() -> None:
    done = moot("data", "check", f"gsm8k:train={FIXTURES}/gsm8k_train.jsonl,test={FIXTURES}/gsm8k_test.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["train", "10", "10", "of", "10", "10", "of", "10", "0", "0", "0"] in lines
    assert ["test", "2", "2", "of", "2", "2", "of", "2", "0", "0", "0"] in lines
    assert "Nothing wrong." in done.stdout


def test_json_for_programs_and_a_status_that_tells(tmp_path: Path) -> None:
    rows = [{"question": "one?", "answer": "1"}, {"question": "two?", "answer": "\x1b]many"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = moot("data", "check", "a.jsonl:grader=number", "--json", cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["good"] is False
    assert found["splits"]["train"]["failing"] == [{"id": "train-2", "right": "\x1b]many", "given": "\x1b]many"}]
    shown = moot("data", "check", "a.jsonl:grader=number", cwd=tmp_path)
    assert shown.returncode == 1
    assert "\x1b" not in shown.stdout
    assert "Something is wrong" in shown.stdout


def test_what_was_left_out_is_said_aloud() -> None:
    done = moot("data", "check", f"math:prealgebra,train={FIXTURES}/math_train.jsonl")
    assert done.returncode == 0
    done = moot("data", "check", f"math:algebra,train={FIXTURES}/math_train.jsonl", "--json")
    assert json.loads(done.stdout)["notes"] == [
        "1 of the 2 train questions of math:algebra have no answer and are left out"
    ]
    assert "have no answer and are left out" in done.stderr


def test_wrong_usage_is_one_clear_line() -> None:
    for arguments, words in (
        (["check", "nope"], "task must be one of arithmetic, countdown"),
        (["check", "arithmetic", "--questions", "-1"], "questions must be 0 or more, got -1"),
        (["tidy", "arithmetic"], "check"),
    ):
        done = moot("data", *arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_without_a_network_a_file_is_asked_for() -> None:
    done = moot("data", "check", "gsm8k")
    assert done.returncode == 2
    assert "gsm8k:train=FILE.jsonl,test=FILE.jsonl" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_help_names_the_tasks() -> None:
    done = moot("data", "--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in [*TASKS, "reasoning-gym:NAME"])
