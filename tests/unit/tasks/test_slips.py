"""Slips: one result changed, all that follows from it done anew, and nothing else touched."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from moot.tasks import load
from moot.tasks.answers import answer_in
from moot.tasks.slips import LONGEST, plant

CARRIED = [
    ("12 + 30 = 42. The answer is \\boxed{42}.", "12 + 30 = {0}. The answer is \\boxed{{{0}}}."),
    ("5 \\times 4 = \\boxed{20}", "5 \\times 4 = \\boxed{{{0}}}"),
    ("Total = 3 * 40 = $120. It is $120, the answer is 120.", "Total = 3 * 40 = ${0}. It is ${0}, the answer is {0}."),
    # A chain: the slip is in its last step.
    ("23 * 45 = 920 + 115 = 1,035. \\boxed{1035}", "23 * 45 = 920 + 115 = {0:,}. \\boxed{{{0}}}"),
    # Numbers of steps are no quantities.
    ("Step 1: 8 / 4 = 2\nStep 2: say it\n2. \\boxed{2}", "Step 1: 8 / 4 = {0}\nStep 2: say it\n2. \\boxed{{{0}}}"),
]


@pytest.mark.parametrize(("solution", "expected"), CARRIED)
def test_a_result_is_changed_wherever_it_is_said(solution: str, expected: str) -> None:
    for seed in range(5):
        slip = plant(solution, seed)
        assert slip is not None
        assert slip.text == expected.format(int(slip.answer)) != solution


def test_later_calculations_are_done_anew() -> None:
    solution = "In May 48 / 2 = 24 clips. Both: 48 + 24 = 72 clips, for $1.50 each: 72 * 1.50 = 108.00. \\boxed{108}"
    seen = set()
    for seed in range(30):
        slip = plant(solution, seed)
        assert slip is not None
        may, both, paid = (Fraction(n) for n in re.findall(r"= ([0-9.]+[0-9])", slip.text))
        seen.add((may != 24, both != 72))
        assert both == 48 + may or may == 24
        assert paid == both * Fraction("1.50") or (may, both) == (24, 72)
        assert Fraction(slip.answer) == paid
    assert seen == {(True, True), (False, True), (False, False)}  # a slip in each of the three


@pytest.mark.parametrize(
    "solution",
    [
        "There is nothing to calculate. \\boxed{7}",
        "3 * 4 = 13. \\boxed{13}",  # wrong before
        "It must be 12: 3 * 4 = 12. \\boxed{12}",  # said before it is calculated
        "3 * 4 = 12. Then 12 apples + 3 = 15. \\boxed{15}",  # cannot be read
        "3 * 4 = 12. Then x + 12 = 15. \\boxed{15}",
        "3 * 4 = 12. And 6 + 6 = 12. \\boxed{12}",  # two numbers in one
        "3 * 4 = 12. \\boxed{99}",  # does not reach the answer
        "3 * 4 = 12. \\boxed{x}",
        "3 * 4 = 12. 12 - 24 / 2 + 1 = 12 - 12 + 1 = 1. \\boxed{1}",  # 12 is one thing and then another
        "3 * 4 = 12. " + "So it is. " * LONGEST + "\\boxed{12}",
    ],
)
def test_there_is_no_slip_that_cannot_be_carried_through(solution: str) -> None:
    assert [plant(solution, seed) for seed in range(5)] == [None] * 5


def test_a_number_of_the_question_is_not_taken_for_a_result() -> None:
    solution = "6 * 2 = 12, and \\boxed{12}"
    assert plant(solution, 0, "How many are 6 and 6 of the 12?") is None
    assert plant(solution, 0, "How many are 6 and 6?") is not None


@st.composite
def solutions(draw: st.DrawFn) -> str:
    """Steps that take an earlier result and a new number, or two new ones, in prose; the last result is the answer."""
    results, lines = list[Fraction](), list[str]()
    for i in range(draw(st.integers(1, 6))):
        a = draw(st.sampled_from(results)) if results and draw(st.booleans()) else Fraction(draw(st.integers(2, 60)))
        if i and draw(st.booleans()):
            a = results[-1]
        b, sign = Fraction(draw(st.integers(2, 20))), draw(st.sampled_from(["+", "-", "*", "/", "\\times"]))
        result = {"+": a + b, "-": a - b, "*": a * b, "/": a / b, "\\times": a * b}[sign]
        assume(result > 0 and result.denominator in (1, 2, 4, 5, 10) and result < 10**6)
        comma = "," if draw(st.booleans()) else ""
        said = [f"{float(n):{comma}.10g}" if n.denominator > 1 else f"{int(n):{comma}}" for n in (a, b, result)]
        lines.append(draw(st.sampled_from(SENTENCES)).format(f"{said[0]} {sign} {said[1]} = {said[2]}", said[2]))
        results.append(result)
    return "\n".join([*lines, f"The answer is \\boxed{{{said[2]}}}."])


SENTENCES = ["{0}.", "So far: {0} in all.", "Cost = {0}", "We get ({0}), that is {1} of them.", "\\[ {0} \\]"]


def equations(text: str) -> list[tuple[int, bool]]:
    """Where each result ends, and whether it holds; not by the code that is tested."""
    number = r"([0-9][0-9,]*(?:\.[0-9]+)?)"
    checked = []
    for match in re.finditer(rf"{number} (\S+) {number} = {number}", text):
        a, b, c = (Fraction(match[i].replace(",", "")) for i in (1, 3, 4))
        checked.append((match.end(), {"+": a + b, "-": a - b, "*": a * b, "/": a / b, "\\times": a * b}[match[2]] == c))
    return checked


@given(solutions(), st.integers(0, 3))
def test_one_calculation_is_wrong_and_the_rest_follows_from_it(solution: str, seed: int) -> None:
    slip = plant(solution, seed)
    assume(slip is not None)
    assert slip is not None
    assert slip == plant(solution, seed)
    assert slip.text[: slip.at] == solution[: slip.at] and slip.text[slip.at :].startswith(slip.result)
    assert slip.answer == answer_in(slip.text)
    assert Fraction(slip.answer.replace(",", "")) != Fraction((answer_in(solution) or "").replace(",", ""))
    wrong = [end for end, holds in equations(slip.text) if not holds]
    assert wrong == [slip.at + len(slip.result)]
    assert len(equations(slip.text)) == len(equations(solution))


@given(st.text(alphabet="0123456789+-*/=(). ,$\\{}boxedtimes\n", max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    slip = plant(text, 0)
    assert slip is None or slip.text != text


@pytest.mark.parametrize("name", ["arithmetic", "arithmetic:operands=3,operators=+-x,digits=2"])
def test_worked_sums_can_be_spoiled(name: str) -> None:
    task = load(name, held_out=1)
    assert task.solution is not None
    questions = [task.train(i) for i in range(100)]
    slips = [(question, plant(task.solution(question), 0, question.text)) for question in questions]
    planted = [(question, slip) for question, slip in slips if slip is not None]
    assert len(planted) >= 80
    assert not any(task.right(question, slip.answer) for question, slip in planted)
