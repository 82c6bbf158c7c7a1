"""Labelled answers: those of a real model of half a billion parameters, by hand, and those that models write where nobody asks for a
box. Where the graders err, and how often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moot.tasks.answers import answer_in
from moot.tasks.graders import GRADERS


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()]


GRADER = {"gsm8k": "number", "arithmetic": "exact", "math": "math"}


def errors(labelled: list[dict[str, Any]]) -> list[tuple[int, bool, str | None]]:
    """The line, what the grader says where a person said the opposite, and the answer that was found."""
    wrong = []
    for number, row in enumerate(labelled, 1):
        grading = GRADERS[GRADER[row["set"]]]
        answer = answer_in(row["text"], grading.extract)
        verdict = answer is not None and grading.equal(answer, row["gold"])
        if verdict != row["label"]:
            wrong.append((number, verdict, answer))
    return wrong


def test_a_real_models_answers_are_graded_as_a_person_would() -> None:
    pytest.importorskip("math_verify")
    labelled = rows("labelled_answers.jsonl")
    assert (len(labelled), sum(row["label"] for row in labelled)) == (200, 49)
    assert errors(labelled) == []


def test_answers_without_a_box_are_found_where_models_write_them() -> None:
    pytest.importorskip("math_verify")
    labelled = rows("plain_answers.jsonl")
    assert (len(labelled), sum(row["label"] for row in labelled)) == (67, 52)
    assert errors(labelled) == []
