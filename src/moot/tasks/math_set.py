"""MATH: competition problems in seven subjects and five levels; tested on MATH-500. `math:algebra,level=1-3`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

from moot.errors import ConfigError
from moot.tasks.answers import boxed
from moot.tasks.rows import Hub, Raw, Row, field
from moot.tasks.sets import SetSettings, published_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

HUB = {"train": Hub("DigitalLearningGmbH/MATH-lighteval", "train"), "test": Hub("HuggingFaceH4/MATH-500", "test")}
SUBJECTS = (
    "algebra", "counting-and-probability", "geometry", "intermediate-algebra", "number-theory", "prealgebra",
    "precalculus",
)  # fmt: skip


@dataclass(frozen=True)
class MathSettings(SetSettings):
    level: str = ""
    """1 to 5: one, or a range as 1-3."""


def row(raw: Raw, where: str, subjects: tuple[str, ...] = (), levels: range = range(1, 6)) -> Row | None:
    """Copies of the set name things differently. Where one has no answers, they are in the solutions' boxes."""
    if subjects and spelled(field(raw, where, "subject", "type")) not in subjects:
        return None
    if len(levels) < 5:
        level = re.search(r"[1-5]", field(raw, where, "level"))
        if level is None or int(level[0]) not in levels:
            return None
    solution = str(raw.get("solution") or "")
    answer = field(raw, where, "answer") if "answer" in raw else boxed(solution) or ""
    return Row(field(raw, where, "problem", "question"), answer, solution)


def spelled(subject: str) -> str:
    return re.sub(r"[^a-z]+", "-", subject.lower().replace("&", "and"))


def _levels(given: str) -> range:
    if not given:
        return range(1, 6)
    bounds = re.fullmatch(r"([1-5])(?:-([1-5]))?", given)
    if bounds is None or int(bounds[2] or bounds[1]) < int(bounds[1]):
        raise ConfigError(f"task math: level must be 1 to 5, or a range as 1-3, got {given!r}")
    return range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1)


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    chosen = spec.fill(MathSettings)
    subjects = tuple(spelled(word) for word in spec.words)
    if unknown := set(subjects) - set(SUBJECTS):
        raise ConfigError(f"task {spec.text!r}: there is no subject {min(unknown)!r}; there are {', '.join(SUBJECTS)}")
    chosen_rows = partial(row, subjects=subjects, levels=_levels(chosen.level))
    return published_set(spec, chosen, HUB, chosen_rows, "math", seed, held_out)
