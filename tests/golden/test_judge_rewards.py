"""What a judge that learns is paid, by hand: which answers are to be approved, what a verdict is paid, and its advantage."""

from __future__ import annotations

import pytest

from moot.debate.types import Question
from moot.judges.learning import (
    Solved,
    advantages,
    balanced,
    by_majority,
    by_slips,
    by_truth,
    measured,
    rewards,
    weights,
)
from moot.tasks.slips import plant
from moot.tasks.task import Exercise

QUESTION = Question("Ann has 3 apples and buys 4. Each costs 2. What do they cost?")


def solved(*answers: str | None) -> Solved:
    kinds = {answer: number for number, answer in enumerate(dict.fromkeys(filter(None, answers)))}
    texts = tuple(f"by {place}: {answer or 'no idea'}" for place, answer in enumerate(answers))
    same = tuple(None if answer is None else kinds[answer] for answer in answers)
    return Solved(QUESTION, texts, answers, same, tuple(answer == "14" for answer in answers))


@pytest.mark.parametrize(
    ("answers", "labels"),
    [
        # Three of five: the plurality is to be approved, the other answer not; without an answer there is nothing to judge.
        (("7", "14", "7", None, "7"), {0: True, 1: False, 2: True, 4: True}),
        # Exactly half is enough.
        (("7", "7", "14", "9"), {0: True, 1: True, 2: False, 3: False}),
        # Two of five are not, and answers that are missing count among the five.
        (("7", "7", "14", "9", "3"), {}),
        (("7", "7", None, None, None), {}),
        ((None, None), {}),
    ],
)
def test_the_majority_says_what_is_to_be_approved_where_it_holds_half(
    answers: tuple[str | None, ...], labels: dict[int, bool]
) -> None:
    given = by_majority(solved(*answers), "solution", 0)
    assert {int(each.answer[3]): each.right for each in given} == labels


def test_truth_looks_at_what_is_right_and_shown_answers_are_asked_about_once() -> None:
    given = by_truth(solved("7", "14", "7", None), "answer", 0)
    assert [(each.answer, each.right) for each in given] == [("7", False), ("14", True)]


def test_as_many_are_to_be_approved_as_not() -> None:
    three, one = [Exercise(QUESTION, str(i), True) for i in range(3)], [Exercise(QUESTION, "x", False)]
    assert [each.right for each in balanced([*three, *one], 8, 0)] == [True, False]
    assert [each.right for each in balanced([*three, *one * 3], 4, 0)] == [True, False] * 2
    assert balanced(three, 8, 0) == []


# label: to be approved; value: the probability of a Yes, which is what the thinking is paid, or what is left of 1. Class
# means: yes 2/3, no 0 (or 1/2).
TABLES = [
    # Three to approve, one not: each of the three counts 4 / (2·3) = 2/3, the one counts 4 / 2 = 2.
    ("TTTF", [1, 1, 0, 1], [1, 1, 0, 0], [2 / 9, 2 / 9, -4 / 9, 0]),
    ("TTTFF", [1, 1, 0, 1, 0], [1, 1, 0, 0, 1], [5 / 6 / 3, 5 / 6 / 3, -5 / 6 * 2 / 3, -5 / 4 / 2, 5 / 4 / 2]),
    # Planted: one right and one wrong answer, two checks each, not surely said.
    ("TTFF", [0.75, 0.25, 0.5, 0.25], [0.75, 0.25, 0.5, 0.75], [0.25, -0.25, -0.125, 0.125]),
    # A judge that approves everything is paid for half of it, and its thinking learns nothing from what never differs.
    ("TTFF", [1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]),
    # Of one kind alone nothing is learned: it would teach to say one word.
    ("TTT", [1, 0, 1], [1, 0, 1], [0, 0, 0]),
]


@pytest.mark.parametrize(("labels", "yes", "paid", "values"), TABLES)
def test_thinking_is_paid_by_the_right_word_and_each_kind_is_centred_apart(
    labels: str, yes: list[float], paid: list[float], values: list[float]
) -> None:
    known = [label == "T" for label in labels]
    assert rewards(known, yes) == pytest.approx(paid)
    given = advantages(known, paid)
    assert given == pytest.approx(values)
    right = [value for value, label in zip(given, known, strict=True) if label]
    assert sum(right) == pytest.approx(0)


@pytest.mark.parametrize(
    ("labels", "each"),
    [("TTTF", [2 / 3, 2 / 3, 2 / 3, 2]), ("TFFT", [1, 1, 1, 1]), ("TTT", [0, 0, 0]), ("FF", [0, 0])],
)
def test_right_words_of_either_kind_weigh_the_same(labels: str, each: list[float]) -> None:
    given = weights([label == "T" for label in labels])
    assert given == pytest.approx(each)
    assert sum(given) in (0, pytest.approx(len(labels)))


def test_a_slip_and_the_solution_it_was_planted_into_are_an_exercise_each() -> None:
    text = "She has 3 + 4 = 7 apples. They cost 7 * 2 = 14. The answer is \\boxed{14}."
    given = by_slips(Solved(QUESTION, (text, "\\boxed{5}"), ("14", "5"), (0, 1), (True, False)), "solution", 3)
    (right, wrong), slip = given, plant(text, 0, QUESTION.text)
    assert slip is not None and slip.text != text
    assert (right.answer, right.right, wrong.right) == (text, True, False)
    assert wrong.answer != text and "\\boxed{14}" not in wrong.answer
    answers = by_slips(Solved(QUESTION, (text,), ("14",), (0,), (True,)), "answer", 3)
    assert answers[0].answer == "14" and answers[1].answer in wrong.answer
    nothing = Solved(QUESTION, ("It is \\boxed{14}.",) * 2, ("14", "14"), (0, 0), (True, True))
    assert by_slips(nothing, "solution", 3) == []


def test_how_good_a_judge_is_on_exercises_and_on_answers_to_one_question() -> None:
    """Together: right ones score .9 and .4, wrong ones .6 and .1: three of four pairs are in order; J is ½ − ½."""
    other = Question("Another?")
    given = [Exercise(q, t, t in "ac") for q, t in ((QUESTION, "a"), (QUESTION, "b"), (other, "c"), (other, "d"))]
    whole = measured(given, [0.9, 0.6, 0.4, 0.1], together=True)
    assert whole.pair_accuracy is not None and whole.pair_accuracy.value == pytest.approx(0.75)
    assert whole.j is not None and whole.j.value == pytest.approx(0)
    apart = measured(given, [0.9, 0.6, 0.4, 0.1], together=False)
    assert apart.pair_accuracy is not None and apart.pair_accuracy.value == pytest.approx(1)
