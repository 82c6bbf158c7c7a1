"""AIME 2024: thirty problems whose answers are whole numbers from 0 to 999. A test set: `aime24:past` has the problems
of the years before it to train on."""

from __future__ import annotations

from moot.errors import ConfigError
from moot.tasks.graders import grading
from moot.tasks.rows import Hub, Raw, Row, convert, field, load
from moot.tasks.sets import SetSettings, fixed_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

HUB, PAST_HUB = Hub("HuggingFaceH4/aime_2024", "train"), Hub("di-zhang-fdu/AIME_1983_2024", "train")
TESTED_YEAR = "2024"


def row(raw: Raw, where: str) -> Row | None:
    """Copies of the sets name things differently. Where years are told, those of the test set are left out."""
    if str(raw.get("Year", "")) >= TESTED_YEAR:
        return None
    question, answer = field(raw, where, "problem", "question", "Question"), field(raw, where, "answer", "Answer")
    return Row(question, answer, str(raw.get("solution") or ""))


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    if spec.words not in ((), ("past",)):
        there = "there is past, the problems of the years before 2024"
        raise ConfigError(f"task {spec.text!r}: {spec.words[0]!r} means nothing here; {there}")
    chosen = spec.fill(SetSettings)
    splits = {"test": lambda: convert(load(chosen.test, spec.name, HUB, ["test"]), row)}
    if chosen.train or spec.words:
        splits["train"] = lambda: convert(load(chosen.train, spec.name, PAST_HUB, ["train"]), row)
    graded = grading(chosen.grader or "number", chosen.equal)
    return fixed_set(spec.label, graded, splits, chosen.held_out or "test", seed, held_out)
