"""What a task is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moot.debate.types import Question
from moot.tasks.answers import Extract, exact, final_number
from moot.tasks.comparing import Grader


@dataclass(frozen=True)
class Task:
    """Everything is fixed by the seed: question number i of a task is the same whenever it is asked for."""

    name: str
    train: Callable[[int], Question]
    """The i-th training question; sets of fixed size start over, in another order."""
    held_out: Sequence[Question]
    """Never trained on, whatever the seed."""
    equal: Grader = exact
    extract: Extract = final_number
    solution: Callable[[Question], str] | None = None
    """A worked solution of a question with a known answer, for the warm start."""
    near_miss: Callable[[Question, int], str] | None = None
    """A wrong answer that looks right, the i-th of several."""
    open_ended: bool = False
    """No right answers are known: votes can be learned from, but nothing can be graded."""
    splits: Callable[[], Mapping[str, Sequence[Question]]] | None = None
    """All questions of a set of fixed size, by split, as they were published: for checking the data."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    training: Sequence[Question] = ()
    """All questions that are trained on, of a set of fixed size."""
