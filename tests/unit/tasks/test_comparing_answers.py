"""Which answers of a debate are equal: how many comparisons that takes, and who pays for those that take long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moot.debate.state import Debate
from moot.tasks import answer_classes as comparing
from moot.tasks.answer_classes import Comparing, Limited, in_time
from moot.tasks.answers import exact, grade
from moot.tasks.graders import GRADERS
from moot.tasks.math_equality import EqualMathematics
from moot.tasks.math_pool import Comparison, Pool
from support.counted_work import grows_linearly
from support.making import debate, v2


class Counting:
    """A user's grader: equal last digits."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def __call__(self, given: str, right: str) -> bool:
        self.pairs.append((given, right))
        return given[-1] == right[-1]


class Slow:
    """Answers are equal when their last letters are. One with `bomb` in it takes all the time there is, any other 0.01 s."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, given: str, right: str) -> bool:
        return self.within(given, right, 3.0).equal

    def within(self, given: str, right: str, seconds: float) -> Limited:
        took = seconds if "bomb" in given + right else 0.01
        if seconds < took or "bomb" in given + right:
            self.seconds += max(0.0, seconds)
            return Limited(False, max(0.0, seconds), given_up=True)
        self.seconds += took
        return Limited(given[-1] == right[-1], took)


def one_round(answers: list[str | None], truth: str | None = None) -> Debate:
    return debate(
        v2(), [[""] * len(answers)], answers=[[None if a is None else f"\\boxed{{{a}}}" for a in answers]], truth=truth
    )


def test_an_answer_is_compared_with_one_of_each_class_and_with_the_right_one_when_the_classes_stand() -> None:
    """18 and 28 are one class, which 18 stands for; 19 is another. 17 is right. A text that was seen is not compared again."""
    equal = Counting()
    grades = grade(one_round(["17", "18", "28", "19", "27", "18"], truth="7"), equal)
    assert grades.same == (0, 1, 1, 2, 0, 1)
    assert grades.correct == (True, False, False, False, True, False)
    classes = [("18", "17"), ("28", "17"), ("28", "18"), ("19", "17"), ("19", "18"), ("27", "17")]
    assert equal.pairs == classes + [(answer, "7") for answer in ("17", "18", "28", "19", "27")]


def test_without_a_right_answer_only_the_classes_are_compared() -> None:
    equal = Counting()
    assert grade(one_round(["17", "18", "27"]), equal).same == (0, 1, 0)
    assert equal.pairs == [("18", "17"), ("27", "17")]


@pytest.mark.parametrize("name", ["exact", "number", "text", "choice"])
def test_graders_that_read_answers_by_themselves_take_time_linear_in_them(name: str) -> None:
    """Wrong answers that all differ, some of which cannot be read at all."""

    def graded(size: int) -> None:
        classes = Comparing(GRADERS[name].equal)
        for i in range(size):
            classes.class_of(f"{i + 10}" if i % 2 else f"no {'x' * (i % 7)} number {i}", agent=0)

    assert grows_linearly(graded, 50)


def test_formulas_that_are_plain_numbers_are_never_compared_with_each_other() -> None:
    class Refusing(Pool):
        def compare(self, given: str, right: str, seconds: float) -> Comparison:
            raise AssertionError("nothing here needs math-verify")

    def graded(size: int) -> None:
        classes = Comparing(EqualMathematics(Refusing(workers=1)))
        numbers = [classes.class_of(f"{i + 10:,}", agent=0) for i in range(size)]
        assert numbers == list(range(size))

    assert grows_linearly(graded, 50)


def test_unreadable_answers_are_equal_if_they_are_written_alike() -> None:
    grades = grade(one_round(["seventy", "seventy", "eighty", "7"], truth="7"), GRADERS["number"].equal)
    assert grades.same == (0, 0, 1, 2)
    assert grades.correct == (False, False, False, True)


def test_whoever_writes_bombs_uses_up_their_own_time() -> None:
    """Agent 0 writes a new bomb in each of three rounds. The first costs its two seconds; the others none. Everybody else is graded."""
    rounds = [["bomb a", "x", "y"], ["bomb b", "ax", "ay"], ["bomb c", "bx", "y"]]
    boxed = [[f"\\boxed{{{answer}}}" for answer in row] for row in rounds]
    equal = Slow()
    grades = grade(debate(v2(), [["", "", ""]] * 3, answers=boxed, truth="x"), equal)
    assert grades.correct == (False, True, False) * 3
    assert grades.same == (0, 1, 2, 3, 1, 2, 4, 1, 2)
    assert grades.given_up == 3
    # x, y, ax, ay and bx by themselves and against the right one; y, ax, ay and bx against x; ay against y.
    assert equal.seconds == pytest.approx(2.0 + 15 * 0.01)


def test_a_bomb_is_its_own_class_also_without_a_right_answer() -> None:
    """It is found out by itself: x, which comes later, is never compared with it."""
    equal = Slow()
    grades = grade(one_round(["bomb", "x", "bomb", "ax"]), equal)
    assert grades.same == (0, 1, 0, 1)
    assert grades.given_up == 1
    assert equal.seconds == pytest.approx(2.0 + 3 * 0.01)


def test_a_debate_takes_at_most_two_seconds_per_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Honest but many: 0.01 s each, and 0.1 s per agent. One agent has x0 tried by itself, x1 so and against x0, and so on: of
    1 + 2 + 3 + 4 + ... comparisons it has time for ten. The others are given up, and all answers stay apart."""
    monkeypatch.setattr(comparing, "AGENT_SECONDS", 0.1)
    equal = Slow()
    classes = Comparing(equal)
    numbers = [classes.class_of(f"x{i}", agent=0) for i in range(9)]
    assert numbers == list(range(9))
    assert equal.seconds == pytest.approx(0.1)
    assert classes.given_up > 0
    assert classes.class_of("x8", agent=0) == 8
    assert classes.class_of("right!", agent=1) == 9
    assert not classes.equals("x8", "x8", agent=0) and classes.equals("right!", "right!", agent=1)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pytest.importorskip("math_verify")
    made = Pool(workers=1, seconds=1)
    yield made
    made.close()


TOWERS = ["9^{9^{9^{9}}}", "8^{8^{8^{8}}}", "7^{7^{7^{7}}}", "9^{8^{9^{9}}}"]


def test_four_towers_of_powers_in_one_debate(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked about once, for as long as its author has; before, each pair of them was, for as long as a comparison may take. Then
    one half is tried by itself, compared with a quarter, and the quarter with the right one, which is what answers are tried against."""
    monkeypatch.setattr(comparing, "AGENT_SECONDS", 0.3)
    asked: list[float] = []

    class Counted(Pool):
        seconds = 1.0
        workers = 1

        def __init__(self) -> None: ...

        def compare(self, given: str, right: str, seconds: float) -> Comparison:
            asked.append(seconds)
            return pool.compare(given, right, seconds)

    answers: list[str | None] = [*TOWERS, "0.25", "\\frac{2}{4}"]
    grades = grade(one_round(answers, truth="\\frac{1}{2}"), EqualMathematics(Counted()))
    assert grades.correct == (False, False, False, False, False, True)
    assert grades.same == (0, 1, 2, 3, 4, 5)
    assert grades.given_up == 4
    assert asked[:5] == [0.3] * 5 and len(asked) == 7


def test_a_remembered_comparison_costs_what_it_cost() -> None:
    """Otherwise the debate that happened to be graded first would decide who runs out of time."""
    asked = []

    class Counted(Pool):
        def compare(self, given: str, right: str, seconds: float) -> Comparison:
            asked.append(given)
            return Comparison("equal", 0.5)

    equal = EqualMathematics(Counted(workers=1))
    assert [equal.within("\\frac{6}{8}", "0.75", 1.0) for _ in range(2)] == [Limited(True, 0.5)] * 2
    # With less time than it took it is given up, whether it is remembered or not.
    assert equal.within("\\frac{6}{8}", "0.75", 0.25) == Limited(False, 0.25, given_up=True)
    assert len(asked) == 1


def test_what_was_given_up_is_asked_again_when_there_is_more_time() -> None:
    limits: list[float] = []

    class Patient(Pool):
        def compare(self, given: str, right: str, seconds: float) -> Comparison:
            limits.append(seconds)
            return Comparison("equal", 0.7) if seconds > 0.7 else Comparison("time", seconds)

    equal = EqualMathematics(Patient(workers=1, seconds=3))
    verdicts = [equal.within("\\frac{6}{8}", "0.75", seconds) for seconds in (0.5, 0.4, 0.6, 1.0, 2.0, 0.5, 0.0)]
    assert [(each.equal, each.given_up) for each in verdicts] == [
        (False, True),
        (False, True),
        (False, True),
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]
    assert limits == [0.5, 0.6, 1.0]


def test_graders_without_limits_take_the_time_they_take() -> None:
    assert in_time(exact, "7", "7.0", seconds=0.0) == Limited(True)
    assert in_time(lambda a, b: a == b, "7", "8") == Limited(False)
