"""Two questions that a task answers, and that nothing may confuse: is an answer right, and are two answers the same?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from moot.cli import main
from moot.debate.rewards import score
from moot.debate.types import Question
from moot.rl.metrics import answer_metrics
from moot.runs.record import from_record, summary, to_record
from moot.tasks import Task, load
from moot.tasks.answer_classes import Limited
from moot.tasks.answers import exact, grade, settled_by
from moot.tasks.check import check, gather
from moot.tokens.played import PlayedDebate
from support.making import debate, v2

MAKE_24 = '''
import re

def make24(question, answer):
    """Right is every way to make 24 of the question's numbers."""
    if not re.fullmatch(r"[0-9+*/() -]+", answer):
        return False
    used = sorted(map(int, re.findall("[0-9]+", answer)))
    return used == sorted(map(int, re.findall("[0-9]+", question.text.partition(":")[2]))) and eval(answer) == 24

def by_value(a, b):
    return eval(a) == eval(b)
'''
RIGHT = ["1*2*3*4", "4*3*2*1", "(1+3)*(2+4)"]


@pytest.fixture
def make24(tmp_path: Path) -> str:
    """A file of questions without a known answer, and a checker."""
    (tmp_path / "make24.py").write_text(MAKE_24)
    (tmp_path / "q.jsonl").write_text(
        "".join(json.dumps({"question": f"Make 24 of: 1 2 3 {n}"}) + "\n" for n in range(4, 14))
    )
    return f"{tmp_path}/q.jsonl:grader={tmp_path}/make24.py:make24"


def played(task: Task, answers: list[str], key: str | None = None) -> PlayedDebate:
    asked = replace(
        debate(v2(reward="majority"), [[""] * len(answers)], answers=[answers]),
        question=Question("Make 24 of: 1 2 3 4", key),
    )
    return PlayedDebate(asked, grades=grade(asked, task.equal, task.extract, task.check))


@pytest.mark.parametrize("key", [None, "(1+2+3)*4"])
def test_answers_that_are_all_right_are_not_all_the_same(make24: str, key: str | None) -> None:
    """Before, each was first compared with the known answer: all right ones were one class, and the majority was the truth."""
    task = load(make24)
    each = played(task, [*RIGHT, "1+2+3+4", "1+2+3+4"], key)
    assert each.grades is not None and each.answer_known
    assert each.grades.correct == (True, True, True, False, False)
    assert each.grades.same == (0, 1, 2, 3, 3)
    paid = score(each.debate, replace(v2().scoring, reward="majority_last"), each.grades)
    assert paid.rewards == (0.0, 0.0, 0.0, 1.0, 1.0)  # type: ignore[union-attr]
    assert answer_metrics([each.debate], [each.grades], "24")["train_24/cons@k"] == 0.0
    assert not settled_by(task.equal, task.extract)(each.debate.turns[:3])


def test_an_own_equality_says_what_is_the_same(make24: str) -> None:
    file = make24.rpartition("grader=")[2].rpartition(":")[0]
    each = played(load(f"{make24},equal={file}:by_value"), [*RIGHT, "1+2+3+4"])
    assert each.grades is not None
    assert each.grades.same == (0, 0, 0, 1) and each.grades.correct == (True, True, True, False)


def test_a_record_keeps_what_was_right_and_what_was_the_same(make24: str) -> None:
    """Without a known answer too; before, a reader made one class of all that was right."""
    each = played(load(make24), [*RIGHT, "1+2+3+4"])
    record = json.loads(json.dumps(to_record(each)))
    again = from_record(record)
    assert again.grades == each.grades and again.answer_known
    assert summary(record).correct == 0.75


def test_a_checker_needs_no_known_answer(make24: str) -> None:
    task = load(make24)
    assert not task.open_ended and task.gradable(task.train(0)) and task.solution is None
    report = check(task, gather(task, 0))
    assert report.good and report.splits["train"].graded == 10


def test_data_check_finds_a_checker_that_takes_anything_or_refuses_the_known_answer() -> None:
    questions = [Question("two?", "2", id="1"), Question("three?", "3", id="2")]
    lax = Task("lax", questions.__getitem__, (), check=lambda question, answer: True)
    assert [trouble.given for trouble in check(lax, {"train": questions}).splits["train"].passing] == ["?", "?"]
    strict = Task("strict", questions.__getitem__, (), check=lambda question, answer: answer == "2")
    assert [trouble.right for trouble in check(strict, {"train": questions}).splits["train"].failing] == ["3"]


def test_training_pays_the_truth_of_a_checker(make24: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward that needs known answers is refused where there is neither an answer nor a checker."""
    monkeypatch.chdir(tmp_path)
    command = [
        "train",
        "--engine",
        "scripted",
        "--warm-questions",
        "0",
        "--num-train-datapoints",
        "2",
        "--batch-size",
        "2",
    ]
    command += ["--eval-questions", "2", "--reward", "truth"]
    assert main([*command, "--task", make24.partition(":")[0], "--run", "open"]) == 2
    assert main([*command, "--task", make24, "--run", "checked"]) == 0
    rows = [json.loads(line) for line in Path("checked/metrics.jsonl").read_text().splitlines()]
    assert any(row.get("test_q/correct") is not None for row in rows)


class Slow:
    """Equal as text; comparing with the key takes all the time there is."""

    def __call__(self, a: str, b: str) -> bool:
        return a == b

    def within(self, a: str, b: str, seconds: float) -> Limited:
        return Limited(False, seconds, given_up=True) if b == "the key" else Limited(a[-1] == b[-1], 0.01)


@pytest.mark.parametrize("key", [None, "7", "17", "unlike", "the key"])
def test_classes_are_the_same_whatever_the_key(key: str | None) -> None:
    """Last digits are no equality that goes on from one to the next; and time spent on the key is not missing elsewhere."""
    answers = ["17", "7", "27", "8", "18"]
    asked = debate(v2(), [[""] * 5], answers=[answers], truth=key)
    assert grade(asked, Slow()).same == (0, 0, 0, 1, 1)
    near = lambda a, b: abs(float(a) - float(b)) <= 10 if a.isdigit() and b.isdigit() else a == b  # noqa: E731
    assert grade(asked, near).same == (0, 0, 0, 0, 0) or key is None  # all are near 17, which is the first
    assert grade(asked, near).same == grade(replace(asked, question=Question("?")), near).same
    assert grade(asked, exact).same == (0, 1, 2, 3, 4)
