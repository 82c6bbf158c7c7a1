"""When an answer is right, for every named grader, and wrong ones that look right."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks.graders import GRADERS, choice, grading, last_choice, last_text, number, text
from moot.tasks.math_equality import at_a_glance, equal_mathematics, last_mathematics
from moot.tasks.near_misses import slip


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("72", "72", True),
        ("72.0", "72", True),
        ("$72", "72", True),
        ("\\$72", "72", True),
        ("72 clips", "72", True),
        ("72\\text{ clips}", "72", True),
        ("72\\%", "72", True),
        ("\\textbf{(72)}", "72", True),
        ("72\\text{ m}^2", "72", True),
        ("1,080", "1080", True),
        ("025", "25", True),
        ("12 + 60 = 72", "72", True),
        ("x = 72", "72", True),
        ("\u22126", "-6", True),
        ("3/4", "0.75", True),
        ("-\\frac{3}{4}", "-0.75", True),
        ("\\frac{3}{0}", "0.75", False),
        ("25 m^2", "25", True),
        (".5", "0.5", True),
        ("72", "73", False),
        ("72", "-72", False),
        ("7 2", "72", False),
        ("70 to 72", "72", False),
        ("seventy-two", "72", False),
        ("", "0", False),
        ("9" * 2000, "9" * 2000, False),
    ],
)
def test_numbers(a: str, b: str, equal: bool) -> None:
    assert number(a, b) is equal


def test_text_is_text() -> None:
    assert text(" a  b\nc", "a b c")
    assert not text("A", "a")
    assert not text("7.0", "7")
    assert not text("0101", "101")


@pytest.mark.parametrize(
    "given_", ["B", "(B)", "b", "\\text{B}", "\\textbf{(B)}", "B)", "B) Paris", "B. Paris", " B ", "**B**"]
)
def test_choices_that_are_b(given_: str) -> None:
    assert choice(given_, "B")
    assert not choice(given_, "C")


@pytest.mark.parametrize("given_", ["Bach", "AB", "", "7", "Paris", "A or B"])
def test_choices_that_are_none(given_: str) -> None:
    assert not choice(given_, "B")
    assert not choice(given_, "A")


def test_a_choice_in_a_sentence() -> None:
    assert last_choice("A is wrong. The answer is B.") == "B"
    assert last_choice("The answer is (C), because a is not.") == "C"
    assert last_choice("I would say\n\nD") == "D"
    assert last_choice("The answer is a number.") is None


def test_text_in_a_sentence() -> None:
    assert last_text("Let me see.\nThe answer is: olleh.") == "olleh"
    assert last_text("Let me see.\nolleh") == "olleh"
    assert last_text("  \n") is None


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        ("The answer is $\\frac{1}{2}$.", "\\frac{1}{2}"),
        ("So the final answer is: x = 5.", "x = 5"),
        ("We get $x = 3$ and so $2x = 6$.", "6"),
        ("Thus \\(\\sqrt{2}\\) it is", "\\sqrt{2}"),
        ("\\[ a + b = 12 \\]", "12"),
        ("that makes 12", "12"),
        ("no idea", None),
    ],
)
def test_mathematics_in_a_sentence(solution: str, expected: str | None) -> None:
    assert last_mathematics(solution) == expected


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ("7", "7", True),
        ("7", "8", False),
        ("1,000", "1000", True),
        ("025", "25", True),
        ("\\dfrac{1}{2}", "\\frac{1}{2}", True),
        ("\\left( 3, 4 \\right)", "(3,4)", True),
        ("$x$", "x", True),
        ("Evelyn", "\\text{Evelyn}", True),
        ("evelyn", "\\text{Evelyn}", True),
        ("Eve", "\\text{Evelyn}", False),
        ("B", "\\text{(B)}", True),
        ("C", "\\text{(B)}", False),
        ("", "7", False),
        ("}7{", "x", False),
        ("{7", "x", False),
        ("9" * 1001, "x", False),
        ("2.50", "2.5", True),
        (".5", "0.5", True),
        ("-1,000.5", "-1000.50", True),
        ("0.3333333", "0.3333334", False),
        # Mathematics is needed.
        ("0.5", "\\frac{1}{2}", None),
        ("ba", "ab", None),
        ("180", "180\\text{ miles}", None),
    ],
)
def test_what_can_be_told_at_a_glance(a: str, b: str, verdict: bool | None) -> None:
    assert at_a_glance(a, b) is verdict


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("7", ["8", "17", "9", "18", "6"]),
        ("-1", ["0", "9", "1", "10", "-2"]),
        ("\\frac{1}{2}", ["\\frac{2}{2}", "\\frac{11}{2}"]),
        ("10110_2", ["10111_2"]),
        (".0000672", ["0.0000772"]),
        ("\\text{(B)}", ["\\text{(C)}", "\\text{(D)}", "\\text{(E)}", "\\text{(C)}"]),
        ("\\text{Evelyn}", ["\\text{not Evelyn}"]),
        ("0.56 = 56\\%", ["0.56 = 57\\%"]),
        ("p - q", ["p - q + 1", "p - q + 2"]),
        ("x", ["y", "z", "a", "y"]),
        ("olleh", ["not olleh"]),
    ],
)
def test_slips(right: str, wrong: list[str]) -> None:
    assert [slip(right, i) for i in range(len(wrong))] == wrong


@pytest.mark.parametrize("right", ["9" * 5000, "x = " + "12" * 4000, "1" * 1500 + "." + "5" * 5000])
def test_an_answer_of_thousands_of_digits_has_slips_too(right: str) -> None:
    wrong = {slip(right, number) for number in range(5)}
    assert len(wrong) > 1 and right not in wrong


@given(st.text(max_size=30), st.integers(0, 20))
def test_a_slip_is_never_the_answer(right: str, i: int) -> None:
    assert slip(right, i) != right


@given(st.sampled_from("ABCDEF"), st.integers(0, 20))
def test_a_wrong_choice_is_never_the_right_one(right: str, i: int) -> None:
    assert not choice(GRADERS["choice"].near_miss(right, i), right)


@given(st.text(max_size=200), st.text(max_size=30))
def test_quick_graders_never_raise(a: str, b: str) -> None:
    for name in ("exact", "number", "text", "choice"):
        graded = GRADERS[name]
        assert graded.equal(a, b) in (True, False)
        graded.extract(a)
    assert at_a_glance(a, b) in (True, False, None)
    assert at_a_glance(a, a) is True
    last_mathematics(a)


def test_a_users_own_grader(tmp_path: Path) -> None:
    """It says what is right. What is the same is another function's business."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def ends(question, answer):\n    return answer[-1] == question.answer[-1]\n\n"
        "def broken(question, answer):\n    return 1 / 0\n\n"
        "def old(given, right):\n    return given == right\n\n"
        "def length(a, b):\n    return len(a) == len(b)\n"
    )
    asked = Question("How many?", "27")
    graded = grading(f"{mine}:ends")
    assert graded.check is not None and graded.check(asked, "17") and not graded.check(asked, "18")
    assert not graded.equal("17", "27") and graded.equal("17", "17.0")
    assert grading(f"{mine}:ends", f"{mine}:length").equal("17", "20")
    assert grading("number", "text").check(asked, "27 dollars")  # type: ignore[misc]
    assert not grading("number", "text").equal("27", "27 dollars")
    with pytest.raises(ConfigError, match="failed on '1' to 'How many\\?': ZeroDivisionError"):
        grading(f"{mine}:broken").check(asked, "1")  # type: ignore[misc]
    with pytest.raises(
        ConfigError, match=r"parameters \(question, answer\), got \(given, right\); the known answer is question.answer"
    ):
        grading(f"{mine}:old")
    with pytest.raises(ConfigError, match="equal must be one of exact, number"):
        grading("number", "nope")
    with pytest.raises(ConfigError, match="grader must be one of exact, number, text, choice, math or path"):
        grading("nope")


# What mathematics is equal and what is not, by math-verify behind the shortcuts.
EQUAL = [
    ("0.5", "\\frac{1}{2}"),
    ("1/2", "\\frac{1}{2}"),
    ("\\frac12", "\\frac{1}{2}"),
    ("\\frac{2}{4}", "\\frac{1}{2}"),
    ("x=5", "5"),
    ("ba", "ab"),
    ("2x+1", "1+2x"),
    ("(x+1)^2", "x^2+2x+1"),
    ("\\sqrt{8}", "2\\sqrt{2}"),
    ("180", "180\\text{ miles}"),
    ("90", "90^\\circ"),
    ("3,-3", "-3,3"),
    ("\\{1,2\\}", "\\{2,1\\}"),
    ("x \\in (2,5]", "(2,5]"),
    ("50\\%", "50\\%"),
    ("\\$5", "5"),
    ("10000", "10,\\!000"),
    ("\\begin{pmatrix} 1/2 \\\\ -1 \\end{pmatrix}", "\\begin{pmatrix} 0.5 \\\\ -1 \\end{pmatrix}"),
    ("10\\,000", "10000"),
    ("30^\\circ", "30^\\circ."),
    ("\\frac{1}{29322216}", "\\dfrac{1}{29,\\!322,\\!216}"),
    ("2^{-98}", "\\frac{1}{2^{98}}"),
    ("50", "50\\%"),
    ("c + b + a", "a + b + c"),
    ("5 cm", "5"),
    ("2 + 3 = 5", "5"),
    ("x = y + 1", "y = x - 1"),
    ("y = 2x + 3", "y = 3 + 2x"),
    ("6-5i", "6 - 5i"),
    ("1 - \\cos^2 t", "\\sin^2 t"),
    ("2 1/2", "2.5"),
    ("2 < x \\le 5", "(2,5]"),
    ("-3 \\text{ and } 3", "-3,3"),
    ("\\pm 3", "-3,3"),
    ("0.75", "3/4"),
    ("2.5", "2\\frac{1}{2}"),
]
UNEQUAL = [
    ("0.51", "\\frac{1}{2}"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2]"),
    ("x=6", "5"),
    ("\\sqrt{2}", "2"),
    ("x+1", "x-1"),
    ("5 \\text{ or } 6", "5"),
    ("\\{5,6\\}", "5"),
    ("5,6", "5"),
    ("x^2", "x^3"),
    ("-\\frac{1}{2}", "\\frac{1}{2}"),
    # Some that math-verify alone would call equal.
    (".0000672", ".0000673"),
    ("0", "10\\,000"),
    ("101_3", "101_2"),
    ("3", "3t"),
    ("0.56 = 67\\%", "0.56 = 56\\%"),
    ("y = x + 1", "y = x + 2"),
    ("2x+3", "2x+3t"),
    ("\\frac{3}{2^{98}}", "\\frac{1}{2^{98}}"),
    ("0", "\\frac{1}{2^{98}}"),
    ("2^{-98}", "0"),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_mathematics_that_is_equal(a: str, b: str) -> None:
    pytest.importorskip("math_verify")
    assert equal_mathematics(a, b)


@pytest.mark.parametrize(("a", "b"), UNEQUAL)
def test_mathematics_that_is_not(a: str, b: str) -> None:
    pytest.importorskip("math_verify")
    assert not equal_mathematics(a, b)


def test_the_shortcuts_agree_with_the_long_way() -> None:
    """Wherever a glance decides between two things math-verify can read, it decides the same; and it decides wherever it should."""
    pytest.importorskip("math_verify")
    answers = [
        "7",
        "-7",
        "07",
        "1,000",
        "1000",
        "1,000,000",
        "0",
        "-0",
        "12345678901234567890",
        "\\dfrac{1}{2}",
        "\\frac{1}{2}",
        "(3,4)",
        "\\left(3, 4\\right)",
    ]
    answers += ["x^2 + 1", "x^2+1", "10\\,000", "10000", "\\tfrac{1}{2}", "$7$", "7."]
    compared = {True: 0, False: 0}
    for a in answers:
        for b in answers:
            told, outcome = at_a_glance(a, b), equal_mathematics.outcome(a, b)
            if told is not None and outcome in ("equal", "different"):
                assert told is (outcome == "equal"), (a, b)
                compared[told] += 1
    # Written 4, 1, 2, 1, 2, 1, 3, 2, 2 and 2 ways: the sum of squares is 48. 13 of them are numbers, so 169 - 31 pairs differ.
    assert compared == {True: 48, False: 138}
