"""GSM8K: grade school word problems. The pattern for a published set: where it is, and how a row becomes a question."""

from __future__ import annotations

import re

from moot.tasks.rows import Hub, Raw, Row, field
from moot.tasks.sets import SetSettings, published_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

HUB = {split: Hub("openai/gsm8k", split, "main") for split in ("train", "test")}
_CALCULATOR = re.compile(r"<<[^<>]*>>")


def row(raw: Raw, where: str) -> Row:
    """The answer stands after ####; the notes to a calculator would only teach a model to write them."""
    worked, marker, answer = field(raw, where, "answer").rpartition("####")
    answer = answer.strip()
    solution = f"{_CALCULATOR.sub('', worked).strip()}\nThe answer is \\boxed{{{answer}}}." if marker else ""
    return Row(field(raw, where, "question"), answer, solution)


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    return published_set(spec, spec.fill(SetSettings), HUB, row, "number", seed, held_out)
