"""Countdown: what is asked can be made, an expression is checked by calculating it, and exercises are what they say."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.cli import main
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks import load
from moot.tasks.answers import answer_in, boxed
from moot.tasks.check import check as check_data
from moot.tasks.countdown import asked, check, equal, extract, kept
from moot.tasks.expressions import LONGEST, parsed, value

SPELLINGS = ["countdown", "countdown:numbers=4,largest=25,target=10-200", "countdown:numbers=2", "countdown:target=24"]


def make(target: int, *numbers: int) -> Question:
    """A question as the task asks it, for whatever numbers."""
    listed = f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
    return Question(f"Use the numbers {listed} and the operations +, -, * and / to make {target}. Each number once.")


def test_its_rules_are_the_numbers_and_the_value() -> None:
    assert load("countdown").rules_of(make(24, 3, 7, 7)) == (
        "The final expression uses each of the numbers 3, 7 and 7 exactly once, and no other number.",
        "The value of the final expression is 24.",
    )


@pytest.mark.parametrize(
    "answer, keeps",
    [
        ("3 * 7 + 3", (False, True)),
        ("7 - 7 + 3", (True, False)),
        ("(7 - 3) * 7 - 4", (False, True)),
        ("7 / 7 * 3", (True, False)),
        ("24", (False, True)),
        ("no way", (False, False)),
    ],
)
def test_each_rule_is_kept_or_not_whatever_the_other(answer: str, keeps: tuple[bool, bool]) -> None:
    assert kept(make(24, 3, 7, 7), answer) == keeps


@pytest.mark.parametrize(
    "answer, shown",
    [
        ("(1+2)*3 = 9", "(1 + 2) * 3"),
        ("1 + 2 = 24", "1 + 2"),
        (r"3\times(7-2)", "3 * (7 - 2)"),
        (r"\frac{6}{3}", "6 / 3"),
        ("take 3 and 7", None),
    ],
)
def test_a_judge_is_shown_the_expression_without_a_claim(answer: str, shown: str | None) -> None:
    assert load("countdown").as_shown(answer) == shown


# Worked by hand: the target, the numbers, the answer, whether it is right.
GOLDEN = [
    (24, (2, 3, 4), "2 * 3 * 4", True),
    (24, (2, 3, 4), "4*3*2", True),
    (10, (2, 3, 4), "2 * 3 + 4", True),
    (14, (2, 3, 4), "2 * (3 + 4)", True),
    (14, (2, 3, 4), "2 * 3 + 4", False),  # another value
    (24, (2, 3, 4), "2 * 3 * 5", False),  # a number that is not there
    (24, (2, 3, 4), "8 * 3", False),  # two of them already put together
    (12, (2, 3, 4), "3 * 4", False),  # one is missing
    (12, (3, 4), "3 * 4", True),
    (24, (2, 3, 4), "2 * 3 * 4 * 4 / 4", False),  # one is used three times
    (9, (3, 3), "3 * 3", True),  # there twice, used twice
    (9, (3, 6), "3 * 3", False),  # there once, used twice
    (8, (1, 3, 3, 8), "8 / (3 - 1) * 3 / 3", False),  # 3 twice and 8 once, but the value is 4
    (24, (3, 3, 8, 8), "8 / (3 - 8 / 3)", True),  # a fraction on the way, calculated exactly
    (1, (1, 3, 49, 49), "49 * (1 / 49) * 1 / 3", False),  # 1 is used twice
    (5, (3, 8), "-3 + 8", True),  # a sign is one of the four operations
    (5, (3, 8), "-(3 - 8)", True),
    (14, (2, 3, 4), "2 \\times \\left( 3 + 4 \\right)", True),
    (6, (2, 3, 4), "\\frac{3 \\cdot 4}{2}", True),
    (8, (2, 4, 8), "8 \\div \\frac{4}{2} \\times 1", False),  # 1 is not there
    (4, (2, 4, 8), "8 \\div \\dfrac{4}{2}", True),
    (14, (2, 3, 4), "2 × [3 + 4] = 14", True),
    (14, (2, 3, 4), "2 * (3 + 4) = 15", True),  # what stands behind = does not count
    (14, (2, 3, 4), "2 * 3 + 4 = 14", False),
    (14, (2, 3, 4), "14 = 2 * (3 + 4)", False),
    (3, (0, 3), "3/0", False),
    (9, (9, 9, 9), "9**9**9", False),
    (1, (2, 3), "3//2", False),
    (14, (2, 3, 4), "２ * (３ + ４)", False),  # digits of another script
    (14, (2, 3, 4), "2(3 + 4)", False),  # no operation is written
    (15, (3, 12), "1 2 + 3", False),
    (14, (2, 3, 4), "2.0 * (3 + 4)", False),
    (14, (2, 3, 4), "2 * (3 + 4" + ")" * LONGEST, False),  # too long
    (14, (2, 3, 4), "(" * 90 + "2 * (3 + 4)" + ")" * 90, True),  # parentheses add no level
    (14, (2, 3, 4), "-" * 100 + "2 * (3 + 4)", False),  # too many levels
    (14, (2, 3, 4), "__import__('os')", False),
    (14, (2, 3, 4), "2 * (3 + 4) if 1 else 0", False),
    (14, (2, 3, 4), "", False),
    (14, (2, 3, 4), "?", False),
    (14, (2, 3, 4), "2 * (3 + 4), 14", False),
]


@pytest.mark.parametrize(("target", "numbers", "answer", "right"), GOLDEN)
def test_expressions_worked_by_hand(target: int, numbers: tuple[int, ...], answer: str, right: bool) -> None:
    assert check(make(target, *numbers), answer) is right


def test_the_same_is_the_same_text() -> None:
    assert equal("2 * (3+4)", "2 \\times \\left(3 + 4\\right) = 14")
    assert equal("2·3 − 4", "2*3-4")
    assert not equal("2 * 3", "3 * 2")
    assert not equal("2 * (3 + 4)", "2 * 3 + 4")


def test_an_answer_is_boxed_or_announced() -> None:
    assert answer_in("3 + 4 = 7, no.\nThe answer is \\boxed{2 * (3 + 4)}.", extract) == "2 * (3 + 4)"
    assert answer_in("The answer is 2 * (3 + 4).", extract) == "2 * (3 + 4)"
    # Cut off in the middle of a search: the last number is no answer.
    assert answer_in("3 + 4 = 7, no.\n2 * 3 = 6 and 6 +", extract) is None


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_question_can_be_answered_and_held_out_ones_are_not_trained_on(name: str) -> None:
    task = load(name, seed=3, held_out=20)
    trained = [task.train(i) for i in range(200)]
    assert len({question.text for question in task.held_out}) == len(task.held_out) == 20
    apart = [{tuple(asked(question.text)[0]) for question in side} for side in (trained, task.held_out)]
    assert not apart[0] & apart[1]
    assert not {tuple(asked(q.text)[0]) for q in load(name, seed=4, held_out=20).held_out} & apart[0]
    assert task.solution is not None and task.near_miss is not None
    for i, question in enumerate([*trained, *task.held_out]):
        assert question.answer is None and task.right(question, boxed(task.solution(question)) or "")
        assert not task.right(question, task.near_miss(question, i))
    assert [task.train(i) for i in range(200)] == trained
    assert trained != [load(name, seed=4, held_out=1).train(i) for i in range(200)]


def test_every_line_of_a_worked_solution_holds() -> None:
    task = load("countdown")
    assert task.solution is not None
    for i in range(50):
        target = asked(task.train(i).text)[1]
        *tries, last, _ = task.solution(task.train(i)).splitlines()
        for line in tries:
            expression, _, result = line.removesuffix(f", not {target}.").partition(" = ")
            assert (node := parsed(expression)) is not None and value(node) == Fraction(result) != target
        assert last.endswith(f" = {target}.")


@pytest.mark.parametrize("name", [*SPELLINGS, "arithmetic", "arithmetic:operands=3,operators=+-x,digits=2"])
def test_exercises_are_half_right_and_labelled_by_the_checker(name: str) -> None:
    task = load(name, held_out=20)
    assert task.exercises is not None
    exercises = list(itertools.islice(task.exercises(7), 400))
    assert sum(exercise.right for exercise in exercises) == 200
    assert all(task.right(question, answer) is right for question, answer, right, *_ in exercises)
    assert not {exercise.question.text for exercise in exercises} & {question.text for question in task.held_out}
    assert exercises == list(itertools.islice(task.exercises(7), 400)) != list(itertools.islice(task.exercises(8), 400))
    assert len({exercise.right for exercise in exercises[::2]}) == 2  # the order of right and wrong does not tell


def test_wrong_exercises_go_wrong_in_every_way() -> None:
    """By the value, by the numbers, and now and then with the target written behind them as if they made it."""
    task = load("countdown")
    assert task.exercises is not None
    kinds = ["value", "wrong number", "missing", "twice", "target alone", "made it all the same", "claimed", "signs"]
    ways = dict.fromkeys(kinds, 0)
    claimed_right = signs_right = 0
    for question, answer, right, *_ in itertools.islice(task.exercises(1), 1000):
        if right:
            claimed_right += "=" in answer
            signs_right += not answer.isascii() or "\\" in answer
            continue
        numbers, target = asked(question.text)
        used = sorted(map(int, "".join(c if c.isdigit() else " " for c in answer.partition("=")[0]).split()))
        node = parsed(answer)
        assert node is not None
        way = (
            {-2: "target alone", -1: "missing", 0: "wrong number", 1: "twice"}[len(used) - len(numbers)]
            if used != numbers
            else "value"
        )
        ways[way] += 1
        ways["made it all the same"] += value(node) == target
        ways["claimed"] += "=" in answer
        ways["signs"] += not answer.isascii() or "\\" in answer
    assert all(count >= 25 for count in ways.values()), ways
    assert signs_right >= 100
    assert abs(claimed_right - ways["claimed"]) < 60


@given(st.text(alphabet="0123456789+-*/()=. \\{}timesfrac×÷−", max_size=80))
def test_any_text_is_checked_without_an_error(answer: str) -> None:
    question = make(14, 2, 3, 4)
    assert not check(question, answer) or {"2", "3", "4"} <= set(answer)
    assert equal(answer, answer)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("countdown:numbers=1", "numbers must be from 2 to 6, got 1"),
        ("countdown:largest=3", "largest must be from 7 to 1000, got 3"),
        ("countdown:target=many", "target must be a number or a range as 10-100, got 'many'"),
        ("countdown:target=50-20", "target must be a number or a range as 10-100, got '50-20'"),
        ("countdown:numbers=2,target=90000-99999", "leaves nothing to ask; use larger numbers or more targets"),
        ("countdown:easy", "'easy' means nothing here"),
    ],
)
def test_settings_that_cannot_be(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(name)


def test_a_question_of_another_task_cannot_be_checked() -> None:
    with pytest.raises(ConfigError, match=r"must begin with 'Use the numbers … to make …', got 'What is 1 \+ 1\?'"):
        check(Question("What is 1 + 1?"), "2")


def test_a_checker_without_a_key_is_tried_on_worked_solutions_and_near_misses() -> None:
    task = load("countdown", held_out=5)
    lenient = replace(task, check=lambda question, answer: answer != "?")
    strict = replace(task, check=lambda question, answer: False)
    assert len(check_data(lenient, {"held_out": task.held_out}).splits["held_out"].passing) == 5
    assert len(check_data(strict, {"held_out": task.held_out}).splits["held_out"].failing) == 5
    assert check_data(task, {"held_out": task.held_out}).good


def test_the_commands_know_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the warm start: the answer of a worked solution stands for the key that there is not."""
    assert main(["data", "check", "countdown", "--questions", "50"]) == 0
    assert "Nothing wrong." in capsys.readouterr().out
    sizes = ["--warm-questions", "2", "--num-train-datapoints", "2", "--eval-questions", "2"]
    assert main(["train", "--engine", "scripted", "--task", "countdown", "--run", str(tmp_path / "run"), *sizes]) == 0
