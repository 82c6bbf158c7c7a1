"""A task, and how one is found by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moot.debate.types import ConfigError, Question
from moot.tasks.answers import Extract, Grader, exact, last_number

BOXED = "Put the final answer in \\boxed{}."


@dataclass(frozen=True)
class Task:
    """Everything is fixed by the seed: question number i of a task is the same whenever it is asked for."""

    name: str
    train: Callable[[int], Question]
    """The i-th training question; sets of fixed size start over, in another order."""
    held_out: Sequence[Question]
    """Never trained on."""
    equal: Grader = exact
    extract: Extract = last_number
    solution: Callable[[Question], str] | None = None
    """A worked solution of a question with a known answer, for the warm start."""
    near_miss: Callable[[Question, int], str] | None = None
    """A wrong answer that looks right, the i-th of several."""


def load(name: str, seed: int = 0, held_out: int = 64) -> Task:
    """`arithmetic`, or a JSON lines file with the fields question and answer."""
    from moot.tasks import arithmetic, files

    if name == "arithmetic":
        return arithmetic.task(seed, held_out)
    if name.endswith((".jsonl", ".json")):
        return files.task(Path(name), seed, held_out)
    raise ConfigError(f"task must be arithmetic or a .jsonl file with question and answer, got {name!r}")
