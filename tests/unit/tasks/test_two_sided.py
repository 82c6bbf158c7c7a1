"""Files of two-sided questions, and which seat gets which side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks import load
from moot.tasks.two_sided import two_sided


def file(where: Path, *rows: dict[str, Any]) -> str:
    path = where / "sided.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def row(i: int, **changes: Any) -> dict[str, Any]:
    return {"question": f"Is {i} even?", "sides": ["no", "yes"], "answer": ("no", "yes")[i % 2 == 0], **changes}


def right_seats(questions: Sequence[Question]) -> list[int]:
    return [question.sides.index(question.answer or "") for question in questions]


def test_both_seats_get_the_right_side_equally_often(tmp_path: Path) -> None:
    """Twenty questions: four are held out, sixteen trained on, and every two in a row give it to both seats."""
    sided = file(tmp_path, *(row(i) for i in range(20)))
    task = load(sided, seed=3)
    assert right_seats(task.held_out) == [0, 1, 0, 1]
    trained = [task.train(number) for number in range(16)]
    assert right_seats(trained) == [0, 1] * 8
    assert len({question.text for question in (*task.held_out, *trained)}) == 20
    assert task.train(5) == task.train(5), "the same whenever it is asked for"
    assert [load(sided, seed=4).train(number).text for number in range(16)] != [question.text for question in trained]


def test_asked_alone_one_is_told_both_answers_in_an_order_that_tells_nothing(tmp_path: Path) -> None:
    task = load(file(tmp_path, *(row(i) for i in range(10))))
    assert {question.instruction.partition(". ")[0] for question in task.held_out} == {
        'One of these two answers is right: "no" or "yes"'
    }


def test_without_a_key_sides_come_as_the_file_has_them(tmp_path: Path) -> None:
    task = load(
        file(tmp_path, *({"question": f"Is {i} a nice number?", "sides": ["for", "against"]} for i in range(10)))
    )
    assert task.open_ended and not task.notes
    assert [question.sides for question in task.held_out] == [("for", "against"), ("against", "for")]
    assert all(question.answer is None and not question.instruction for question in task.held_out)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sides": ["no"]}, "sides must be two different texts, got ['no']"),
        ({"sides": ["no", "no "]}, "sides must be two different texts"),
        ({"sides": ["5", "5.0"]}, "sides must be two different texts"),
        ({"sides": ["Paris", "paris"]}, "sides must be two different texts"),
        ({"sides": "no"}, "sides must be a list of two texts, got 'no'"),
        ({"sides": [True, False]}, "sides must be a list of two texts"),
        ({"answer": "maybe"}, "answer must be one of the sides 'no' and 'yes', got 'maybe'"),
    ],
)
def test_a_wrong_row_is_refused_by_its_line(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(file(tmp_path, row(0), row(1, **wrong)))
    assert "sided.jsonl, line 2: " in str(error.value) and says in str(error.value)


def test_a_row_without_sides_among_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="line 2: sides must be a list of two texts, got None; all rows need it, or none"
    ):
        load(file(tmp_path, row(0), {"question": "Is 1 even?", "answer": "no"}))


def test_any_task_with_answers_has_a_wrong_side_that_looks_right() -> None:
    task = two_sided(load("arithmetic", held_out=16))
    assert right_seats(task.held_out) == [0, 1] * 8
    gaps = []
    for question in (*task.held_out, *(task.train(number) for number in range(16))):
        (wrong,) = set(question.sides) - {question.answer}
        gaps.append(int(wrong) - int(question.answer or ""))
    assert 0 not in gaps and min(sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)) >= 12, (
        "size does not tell which is right"
    )


def test_a_task_without_answers_has_no_sides(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"Write poem {i}." for i in range(10)))
    with pytest.raises(ConfigError, match="task prompts has none; name a file whose rows have the field sides"):
        two_sided(load(str(prompts)))
