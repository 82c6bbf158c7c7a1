"""What all tasks share: how held-out questions are drawn."""

from __future__ import annotations

from collections.abc import Iterator

from moot.debate.types import Question
from moot.tasks import load
from moot.tasks.task import FRUITLESS, distinct


def test_no_more_is_drawn_where_nothing_new_comes() -> None:
    drawn = 0

    def questions() -> Iterator[Question]:
        nonlocal drawn
        while drawn < 3 * FRUITLESS:
            yield Question("abc"[min(drawn // 10, 2)])
            drawn += 1

    assert [question.text for question in distinct(questions(), 4)] == ["a", "b", "c"]
    assert drawn < 21 + FRUITLESS + 1


def test_a_task_with_fewer_questions_than_are_asked_for_gives_those_that_it_has() -> None:
    assert len(load("arithmetic:digits=1", held_out=1_000_000).held_out) == 14
