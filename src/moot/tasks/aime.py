"""AIME 2024: thirty problems whose answers are whole numbers from 0 to 999. A test set alone: there is nothing to train on."""

from __future__ import annotations

from pathlib import Path

from moot.tasks.graders import grading
from moot.tasks.rows import Raw, Row, convert, fetch, field, read
from moot.tasks.sets import SetSettings, fixed_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

HUB = "HuggingFaceH4/aime_2024"


def row(raw: Raw, where: str) -> Row:
    return Row(field(raw, where, "problem", "question"), field(raw, where, "answer"), str(raw.get("solution") or ""))


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    chosen = spec.fill(SetSettings)
    splits = {
        "test": lambda: convert(read(Path(chosen.test)) if chosen.test else fetch("aime24", HUB, "train", files="test=FILE.jsonl"), row)
    }
    if chosen.train:
        splits["train"] = lambda: convert(read(Path(chosen.train)), row)
    return fixed_set(spec.label, grading(chosen.grader or "number"), splits, chosen.held_out or "test", seed, held_out)
