"""Sums that never run out: what is asked, how it is worked, and that what is held out is never trained on."""

from __future__ import annotations

import pytest

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks import load
from moot.tasks.answers import boxed
from moot.tasks.arithmetic import near_miss, question, solution

HARD = "arithmetic:operands=3,operators=+-x,digits=2"
SPELLINGS = [
    "arithmetic",
    "arithmetic:operands=3",
    HARD,
    "arithmetic:digits=1,operators=x",
    "arithmetic:operands=4,digits=3",
    "arithmetic:operators=-",
]


def value(text: str) -> int:
    return int(eval(text.removeprefix("What is ").removesuffix("?")))


def test_the_easy_questions_are_what_they_always_were() -> None:
    """A seed names the same questions from version to version: runs are compared by them."""
    task = load("arithmetic")
    assert [task.train(i).text for i in range(4)] == FIRST
    assert [q.text for q in task.held_out[:3]] == HELD_OUT
    assert task.solution is not None
    assert task.solution(Question("What is 12 + 30?", "42")) == "12 + 30 = 42. The answer is \\boxed{42}."
    assert [near_miss(Question("", "42"), i) for i in range(5)] == ["43", "52", "44", "53", "41"]


FIRST = ["What is 29 - 19?", "What is 14 - 10?", "What is 47 - 3?", "What is 48 + 24?"]
HELD_OUT = ["What is 23 + 40?", "What is 40 + 16?", "What is 38 + 4?"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_questions_are_right_and_held_out_ones_are_not_trained_on(name: str) -> None:
    task = load(name, seed=3, held_out=20)
    trained = [task.train(i) for i in range(300)]
    # Of products of one digit there are nine to hold out: 2 to 9 with a sum of 7 or 14.
    count = 9 if "digits=1" in name else 20
    assert len({q.text for q in task.held_out}) == len(task.held_out) == count
    assert not {q.text for q in task.held_out} & {q.text for q in trained}
    assert not {q.text for q in load(name, seed=4, held_out=20).held_out} & {q.text for q in trained}
    assert task.solution is not None
    for asked in [*trained, *task.held_out]:
        assert value(asked.text) == int(asked.answer or "") >= 0
        assert boxed(task.solution(asked)) == asked.answer
    assert [task.train(i) for i in range(300)] == trained


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_equation_of_a_solution_holds(name: str) -> None:
    task = load(name, seed=1)
    assert task.solution is not None
    for i in range(200):
        for sentence in task.solution(task.train(i)).removesuffix(".").split(". ")[:-1]:
            sides = {int(eval(side)) for side in sentence.split(" = ")}
            assert len(sides) == 1, sentence


@pytest.mark.parametrize(
    ("text", "worked"),
    [
        ("12 + 30 + 5", "12 + 30 + 5 = 42 + 5 = 47."),
        ("3 + 4 * 5 - 2", "3 + 4 * 5 - 2 = 3 + 20 - 2 = 23 - 2 = 21."),
        ("23 * 4", "23 * 4 = 20 * 4 + 3 * 4 = 80 + 12 = 92."),
        ("6 * 7", "6 * 7 = 42."),
        ("40 * 6", "40 * 6 = 240."),
        ("23 * 45", "23 * 45 = 23 * 40 + 23 * 5 = 920 + 115 = 1035."),
        ("5 + 23 * 4", "23 * 4 = 20 * 4 + 3 * 4 = 80 + 12 = 92. 5 + 23 * 4 = 5 + 92 = 97."),
        (
            "2 * 13 * 4",
            "2 * 13 = 2 * 10 + 2 * 3 = 20 + 6 = 26. 26 * 4 = 20 * 4 + 6 * 4 = 80 + 24 = 104. 2 * 13 * 4 = 26 * 4 = 104.",
        ),
    ],
)
def test_how_sums_are_worked(text: str, worked: str) -> None:
    answer = str(value(text))
    assert solution(Question(f"What is {text}?", answer)) == f"{worked} The answer is \\boxed{{{answer}}}."


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("operands=1", "operands must be from 2 to 20, got 1"),
        ("digits=21", "digits must be from 0 to 20, got 21"),
        ("operators=/", "operators must be some of \\+ - x, got '/'"),
        ("operators=", "operators must be some of \\+ - x, got ''"),
        ("operands=6,digits=1,operators=-", "nothing to ask whose result is not negative"),
    ],
)
def test_settings_that_make_no_sense(settings: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(f"arithmetic:{settings}")


def test_digits_and_operators_are_kept_to() -> None:
    task = load(HARD)
    for i in range(200):
        words = task.train(i).text.removeprefix("What is ").removesuffix("?").split()
        assert all(10 <= int(word) <= 99 for word in words[::2])
        assert len(words) == 5
    assert {"+", "-", "*"} == {
        sign for i in range(50) for sign in question(0, "train", i, _hard()).text[8:-1].split()[1::2]
    }


def _hard():  # type: ignore[no-untyped-def]
    from moot.tasks.arithmetic import ArithmeticSettings

    return ArithmeticSettings(3, 2, "+-x")
