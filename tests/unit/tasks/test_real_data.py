"""The real sets, where somebody has them: MOOT_DATA names a folder with gsm8k/, math/, aime/, longwriter/ and humaneval/ in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moot.tasks import load
from moot.tasks.check import DataReport, check, gather

DATA = Path(os.environ.get("MOOT_DATA", "") or "/nonexistent")
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="MOOT_DATA names no folder: the real sets were NOT checked")


def checked(name: str, most: int = 0) -> DataReport:
    task = load(name)
    return check(task, gather(task, most))


def test_gsm8k() -> None:
    report = checked(f"gsm8k:train={DATA}/gsm8k/train.jsonl,test={DATA}/gsm8k/test.jsonl")
    assert report.good
    assert {name: (s.questions, s.graded, s.duplicates) for name, s in report.splits.items()} == {
        "train": (7473, 7473, 0),
        "test": (1319, 1319, 0),
    }


def test_aime_2024() -> None:
    report = checked(f"aime24:test={DATA}/aime/aime24.jsonl")
    assert report.good
    assert (report.splits["test"].graded, report.splits["test"].unlike) == (30, ())


def test_math_500() -> None:
    """Right answers pass, wrong ones do not, and every one of them is mathematics to the grader."""
    pytest.importorskip("math_verify")
    report = checked(f"math:test={DATA}/math/math500.jsonl")
    assert report.good
    test = report.splits["test"]
    assert (test.graded, test.as_text, test.unlike, test.duplicates) == (500, (), (), 0)


def test_math_leaves_out_what_has_no_answer() -> None:
    task = load(f"math:train={DATA}/math/train.jsonl,test={DATA}/math/math500.jsonl")
    assert task.notes == ("2 of the 7500 train questions of math have no answer and are left out",)
    assert len(task.held_out) == 64
    assert task.splits is not None
    splits = task.splits()
    assert {name: len(questions) for name, questions in splits.items()} == {"train": 7498, "test": 500}
    assert not {q.text for q in splits["train"]} & {q.text for q in splits["test"]}


def test_longwriter() -> None:
    report = checked(f"longwriter:train={DATA}/longwriter/longbench_write_en.jsonl")
    assert report.good
    assert (report.splits["train"].questions, report.splits["train"].graded) == (60, 0)


@pytest.mark.slow
def test_humaneval() -> None:
    """164 canonical solutions pass their tests, and 164 that give back something else do not."""
    report = checked(f"humaneval:test={DATA}/humaneval/HumanEval.jsonl")
    assert report.good
    test = report.splits["test"]
    assert (test.questions, test.graded, test.failing, test.passing) == (164, 164, (), ())
