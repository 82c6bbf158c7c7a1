"""GSM8K: grade school word problems. The pattern for a published set: where it is, and how a row becomes a question."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from moot.tasks.graders import grading
from moot.tasks.rows import Raw, Row, convert, fetch, field, read
from moot.tasks.sets import SetSettings, fixed_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

HUB, CONFIG = "openai/gsm8k", "main"
_CALCULATOR = re.compile(r"<<[^<>]*>>")


def row(raw: Raw, where: str) -> Row:
    """The answer stands after ####; the notes to a calculator would only teach a model to write them."""
    worked, marker, answer = field(raw, where, "answer").rpartition("####")
    answer = answer.strip()
    solution = f"{_CALCULATOR.sub('', worked).strip()}\nThe answer is \\boxed{{{answer}}}." if marker else ""
    return Row(field(raw, where, "question"), answer, solution)


def split(name: str, file: str) -> list[Row]:
    return convert(read(Path(file)) if file else fetch("gsm8k", HUB, name, CONFIG), row)


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    chosen = spec.fill(SetSettings)
    files = {"train": chosen.train, "test": chosen.test}
    named = {name: file for name, file in files.items() if file} or files  # one file alone is the whole set
    splits = {name: partial(split, name, file) for name, file in named.items()}
    return fixed_set(spec.label, grading(chosen.grader or "number"), splits, chosen.held_out, seed, held_out)
