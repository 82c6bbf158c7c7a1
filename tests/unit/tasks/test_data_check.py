"""What `moot data check` finds in data that is wrong in a known way."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from moot.cli.data import show
from moot.debate.types import Question
from moot.tasks import Task, load
from moot.tasks.answer_classes import Limited
from moot.tasks.check import UNTRIED, DataReport, check, gather

HERE = Path(__file__).parent / "fixtures"


def checked(name: str, most: int = 0) -> DataReport:
    task = load(name)
    return check(task, gather(task, most))


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_good_data_is_good() -> None:
    report = checked(f"gsm8k:train={HERE}/gsm8k_train.jsonl,test={HERE}/gsm8k_test.jsonl")
    assert report.good
    assert {name: (s.questions, s.graded, s.duplicates) for name, s in report.splits.items()} == {
        "train": (10, 10, 0),
        "test": (2, 2, 0),
    }


def test_a_task_without_end_is_sampled() -> None:
    report = checked("arithmetic", 50)
    assert report.good
    assert {name: s.questions for name, s in report.splits.items()} == {"train": 50, "held_out": 64}


def test_an_answer_its_own_grader_refuses(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"question": "one?", "answer": "1"}, {"question": "two?", "answer": "many"}]
    report = checked(f"{write(tmp_path / 'a.jsonl', rows)}:grader=number")
    assert not report.good
    assert [(t.id, t.right) for t in report.splits["train"].failing] == [("train-2", "many")]


def test_a_grader_that_accepts_everything(tmp_path: Path) -> None:
    (tmp_path / "lax.py").write_text("def lax(question, answer):\n    return True\n")
    path = write(tmp_path / "a.jsonl", [{"question": "one?", "answer": "1"}])
    report = checked(f"{path}:grader={tmp_path}/lax.py:lax")
    assert not report.good
    assert [(t.right, t.given) for t in report.splits["train"].passing] == [("1", "?")]


def test_a_question_that_stands_there_twice(tmp_path: Path) -> None:
    same: list[dict[str, object]] = [{"question": "One?", "answer": "1"}, {"question": " one? ", "answer": "1"}]
    report = checked(write(tmp_path / "a.jsonl", same))
    assert report.good
    assert report.splits["train"].duplicates == 1
    report = checked(write(tmp_path / "b.jsonl", [*same, {"question": "ONE?", "answer": "2"}]))
    assert not report.good
    assert report.splits["train"].contradictions == ("one?",)


def test_a_test_question_that_is_trained_on(tmp_path: Path) -> None:
    train = write(tmp_path / "a.jsonl", [{"question": "One?", "answer": "1"}, {"question": "Two?", "answer": "2"}])
    test = write(tmp_path / "b.jsonl", [{"question": "three?", "answer": "3"}, {"question": "two?  ", "answer": "2"}])
    report = checked(f"{train}:test={test}")
    assert not report.good
    assert report.overlap == (("train-2", "test-2"),)


def test_a_solution_that_ends_elsewhere(tmp_path: Path) -> None:
    report = checked(
        write(tmp_path / "a.jsonl", [{"question": "One?", "answer": "1", "solution": "It is \\boxed{2}."}])
    )
    assert [(t.right, t.given) for t in report.splits["train"].unlike] == [("1", "2")]


def test_prompts_have_nothing_to_grade() -> None:
    report = checked(f"longwriter:train={HERE}/longwriter.jsonl")
    assert report.good
    assert (report.splits["train"].questions, report.splits["train"].graded) == (6, 0)


def test_mathematics() -> None:
    pytest.importorskip("math_verify")
    report = checked(f"math:train={HERE}/math_train.jsonl,test={HERE}/math500.jsonl")
    assert report.good, report.as_json()
    assert report.splits["train"].as_text == ()
    assert report.notes == ("1 of the 12 train questions of math have no answer and are left out",)


def test_the_report_can_be_written_down() -> None:
    task = Task("empty", train=lambda i: load("arithmetic").train(i), held_out=())
    report = check(task, gather(task, 3))
    assert json.loads(json.dumps(report.as_json()))["splits"]["train"]["questions"] == 3


def test_an_answer_that_takes_the_grader_too_long() -> None:
    """Of two questions the first has an answer that nobody can evaluate: nothing is wrong with the other."""

    class Slow:
        def __call__(self, given: str, right: str) -> bool:
            return self.within(given, right, 3.0).equal

        def within(self, given: str, right: str, seconds: float) -> Limited:
            return Limited(False, 3.0, given_up=True) if "9^9" in right else Limited(given == right)

    questions = [Question("big?", "9^9^9", id="train-1"), Question("small?", "7", id="train-2")]
    report = check(Task("slow", questions.__getitem__, (), Slow()), {"train": questions})
    assert [(t.id, t.given) for t in report.splits["train"].given_up] == [("train-1", "9^9^9")]
    assert [t.id for t in report.splits["train"].failing] == ["train-1"]
    assert report.as_json()["splits"]["train"]["given_up"] == ({"id": "train-1", "right": "9^9^9", "given": "9^9^9"},)
    page = Console(file=StringIO(), width=120)
    show(report, page)
    assert "1 train: answers that took the grader too long:" in page.file.getvalue()  # type: ignore[attr-defined]


def test_a_checker_of_which_no_right_answer_is_known_is_called_untried(tmp_path: Path) -> None:
    (tmp_path / "no.py").write_text("def no(question, answer):\n    return False\n")
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "Name an even number."}\n{"question": "Name an odd number."}\n')
    report = checked(f"{questions}:grader={tmp_path}/no.py:no")
    assert UNTRIED in report.notes, "it refuses everything, and nothing else would say so"
    questions.write_text('{"question": "Name an even number.", "answer": "2"}\n')
    report = checked(f"{questions}:grader={tmp_path}/no.py:no")
    assert UNTRIED not in report.notes and not report.good


def test_a_checker_is_tried_on_worked_solutions_where_no_answer_is_known(tmp_path: Path) -> None:
    """It takes even numbers: the second solution ends in an odd one."""
    (tmp_path / "even.py").write_text(
        "def even(question, answer):\n    return answer.isdecimal() and int(answer) % 2 == 0\n"
    )
    questions = tmp_path / "questions.jsonl"
    rows = [{"question": f"Name an even number above {n}.", "solution": f"It is \\boxed{{{n}}}."} for n in (4, 7)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = checked(f"{questions}:grader={tmp_path}/even.py:even")
    assert UNTRIED not in report.notes
    assert [trouble.id for trouble in report.splits["train"].failing] == ["train-2"]


def shown(report: DataReport) -> str:
    page = Console(file=StringIO(), width=200)
    show(report, page)
    return page.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_checker_that_takes_any_number_is_found_out_by_answers_of_other_questions(tmp_path: Path) -> None:
    """No error: one answer may be right for two questions, as 12 is for multiples of 3 and of 4."""
    rows: list[dict[str, object]] = [{"question": f"Name a multiple of {n}.", "answer": f"{n}"} for n in (5, 7, 11)]
    name = write(tmp_path / "a.jsonl", rows)
    (tmp_path / "c.py").write_text(
        "def lax(question, answer):\n    return answer.isdecimal()\n\n\n"
        "def strict(question, answer):\n    return answer.isdecimal() and int(answer) % int(question.answer) == 0\n"
    )
    lax = checked(f"{name}:grader={tmp_path}/c.py:lax")
    split = lax.splits["train"]
    assert lax.good and split.others_tried == 3
    assert [(t.id, t.given, t.right) for t in split.others_accepted] == [
        ("train-1", "7", "5"), ("train-2", "11", "7"), ("train-3", "5", "11"),
    ]  # fmt: skip
    told = (
        "train: tried as wrong: ?; answers of other questions: accepted 3 of 3 (look whether they are right there too)."
    )
    assert told in shown(lax) and "train-1: 7 for 5" in shown(lax)
    assert shown(lax).endswith("Nothing surely wrong: see above.\n")
    strict = checked(f"{name}:grader={tmp_path}/c.py:strict")
    assert "train: tried as wrong: ?; answers of other questions: accepted 0 of 3.\nNothing wrong." in shown(strict)


def test_where_no_right_answer_was_tried_the_last_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("def lax(question, answer):\n    return answer.isdecimal()\n")
    name = write(tmp_path / "a.jsonl", [{"question": "Name a number."}, {"question": "Name another."}])
    said = shown(checked(f"{name}:grader={tmp_path}/c.py:lax"))
    assert "tried as wrong: ?; no answer of another question is known." in said
    assert said.endswith("Nothing found; right answers were not tried.\n") and "Nothing wrong" not in said
