"""The final answer in a solution, and when two are equal."""

from __future__ import annotations

import pytest

from moot.tasks.answers import answer_in, boxed, exact, final_number, grade, last_number
from support.counted_work import grows_linearly
from support.making import FAILED, debate, v2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{7}", "7"),
        ("so \\boxed{ 7 }.", "7"),
        ("first \\boxed{6}, no: \\boxed{7}", "7"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{a{b}c}", "a{b}c"),
        ("\\boxed{\\{7\\}}", "\\{7\\}"),
        # The last one is not complete: the one before it counts.
        ("\\boxed{7} and \\boxed{8", "7"),
        ("{ \\boxed{7} }", "7"),
        ("\\boxed{7", None),
        ("boxed{7}", None),
        # An escaped backslash: a line break before the word.
        ("\\\\boxed{7}", None),
        ("", None),
    ],
)
def test_the_last_complete_box(text: str, expected: str | None) -> None:
    assert boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", "7"),
        ("3 + 4 = 7.", "7"),
        ("it is -2.5 metres", "-2.5"),
        ("1,000 of them", "1,000"),
        ("none at all", None),
        ("", None),
    ],
)
def test_the_last_number_where_nothing_is_boxed(text: str, expected: str | None) -> None:
    assert last_number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 42, 2 more than 40.", "42"),
        ("**Answer:** 42 of 50", "42"),
        ("#### 42\n(7 left)", "42"),
        ("The answer is 6 * 7 = 42. That took 3 steps.", "42"),
        ("The answer is 41. No, the answer is 42.", "42"),
        ("The answer is forty-two (42)", "42"),
        ("The answer is \u22126", "-6"),
        ("7 - 5 = 2", "2"),
        ("he waited 3-5", "5"),
        # Cut off before its answer: the 7 is not one.
        ("6 bags of 7 apples. The answer is", None),
        ("", None),
    ],
)
def test_the_number_that_is_announced_as_the_answer_or_else_the_last(text: str, expected: str | None) -> None:
    assert final_number(text) == expected


def test_a_box_comes_first() -> None:
    assert answer_in("\\boxed{7}, that is 3 + 4") == "7"
    assert answer_in("that is 3 + 4") == "4"
    assert answer_in("\\boxed{C} of 4", otherwise=lambda text: "never") == "C"
    assert answer_in("I choose C", otherwise=lambda text: "C") == "C"


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("7", "7", True),
        ("7", "7.0", True),
        ("7", "7.", True),
        ("1,000", "1000", True),
        ("$7$", "7", True),
        ("-0", "0", True),
        ("1e3", "1000", True),
        ("7", "8", False),
        ("7", "17", False),
        ("7.000000000000000000001", "7", False),
        ("Paris", " paris ", True),
        ("New  York", "new york", True),
        ("Paris", "Pari", False),
        ("nan", "7", False),
        ("inf", "1e999", False),
        ("", "0", False),
    ],
)
def test_equality(a: str, b: str, equal: bool) -> None:
    assert exact(a, b) is equal
    assert exact(b, a) is equal


def test_a_debate_is_graded_turn_by_turn() -> None:
    """7, none, 7.0; 8, failed, 7: kinds 0, none, 0; 1, none, 0."""
    played = debate(v2(), [["", "", ""], ["", FAILED, ""]], answers=[["7", None, "7.0"], ["8", None, "7"]], truth="7")
    grades = grade(played)
    assert grades.answers == ("7", None, "7.0", "8", None, "7")
    assert grades.same == (0, None, 0, 1, None, 0)
    assert grades.correct == (True, False, True, False, False, True)


def test_without_a_truth_nothing_is_correct_and_answers_are_still_told_apart() -> None:
    grades = grade(debate(v2(), [["", "", ""]], answers=[["7", "8", "7"]]))
    assert grades.correct == (False, False, False)
    assert grades.same == (0, 1, 0)


def test_a_grader_can_be_given() -> None:
    grades = grade(debate(v2(), [["", ""]], answers=[["17", "8"]], truth="27"), equal=lambda a, b: a[-1] == b[-1])
    assert grades.correct == (True, False)


PIECES = {
    "\\boxed{": None,
    "{": None,
    "}": None,
    "\\": None,
    "1,": "1",
    "-": None,
    "1.1": "1",
    "\\boxed{}": None,
}


@pytest.mark.parametrize("piece", PIECES)
def test_hostile_solutions_stay_cheap(piece: str) -> None:
    """Two million characters end within the suite's time limit, which they would not if the work grew faster than the text."""
    text = piece * (2_000_000 // len(piece))
    assert answer_in(text) == PIECES[piece]
    assert not exact(text, "7")
    assert grows_linearly(lambda size: answer_in(piece * size))
    assert grows_linearly(lambda size: exact(piece * size, "7"))


@pytest.mark.parametrize("number", ["1e999999999999", "9" * 100_000, "1e-999999999999"])
def test_hostile_numbers_stay_cheap(number: str) -> None:
    """Neither is written out: a number with 10^12 digits would fill the memory."""
    assert not exact(number, "7")
    assert exact(number, number)
