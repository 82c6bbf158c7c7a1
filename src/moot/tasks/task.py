"""What a task is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks.answer_classes import Grader
from moot.tasks.answers import Checker, Extract, exact, final_number


class Exercise(NamedTuple):
    """An answer to be judged, of which it is known whether it is right, because it was made so."""

    question: Question
    answer: str
    right: bool
    kept: tuple[bool, ...] = ()
    """Which of its question's rules it keeps, in their order, where the task says rules."""
    rule: str = ""
    """The one rule that it is about, and then `right` is whether that is kept; empty: all of the question."""


def halves(rng: random.Random) -> Iterator[bool]:
    """One True and one False of each two, in either order."""
    while True:
        first = rng.random() < 0.5
        yield from (first, not first)


FRUITLESS = 10_000
"""Questions in a row that are known already, after which no new one is waited for."""


def distinct(questions: Iterable[Question], count: int) -> tuple[Question, ...]:
    """The first `count` with texts of their own; fewer where there seem to be no more."""
    found: dict[str, Question] = {}
    coming, known = iter(questions), 0
    while len(found) < count and known < FRUITLESS and (question := next(coming, None)) is not None:
        known = known + 1 if question.text in found else 0
        found.setdefault(question.text, question)
    return tuple(found.values())


@dataclass(frozen=True)
class Task:
    """Everything is fixed by the seed: question number i of a task is the same whenever it is asked for."""

    name: str
    train: Callable[[int], Question]
    """The i-th training question; sets of fixed size start over, in another order."""
    held_out: Sequence[Question]
    """Never trained on, whatever the seed."""
    equal: Grader = exact
    """When two answers are the same. It never sees which one is right, unless that is asked of it by `right`."""
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
    check: Checker | None = None
    """When an answer is right. None: when it equals the known one."""
    exercises: Callable[[int], Iterator[Exercise]] | None = None
    """By a seed: answers without end to train a judge on, half of them right, to questions that are not held out."""

    shown: Callable[[str], str | None] = str
    """A final answer as a judge is shown it; None where there is nothing in it to judge."""
    comparable: bool = True
    """Whether one answer can be told from another: not where none is known and no grader is named, as with poems."""
    rules: Callable[[Question], Sequence[str]] | None = None
    """The single things that a question asks for, each a sentence that can be checked without the question. A judge
    may be asked about each alone."""

    def rules_of(self, question: Question) -> tuple[str, ...]:
        """Each once. Refused where there are none to ask about."""
        rules = () if self.rules is None else tuple(dict.fromkeys(filter(None, map(str.strip, self.rules(question)))))
        if not rules:
            raise ConfigError(
                f"task {self.name} does not say which rules its questions have, so a judge cannot be asked about each "
                "alone; use rules=together, or give the task rules(question) (docs/tasks.md)"
            )
        return rules

    def as_shown(self, answer: str | None) -> str | None:
        """A final answer as a judge is shown it; None where there is none, or nothing in it to judge."""
        return None if answer is None else self.shown(answer)

    def right(self, question: Question, answer: str) -> bool:
        """Whether an answer is right; False where nobody knows."""
        if self.check is not None:
            return self.check(question, answer)
        return question.answer is not None and self.equal(answer, question.answer)

    def gradable(self, question: Question) -> bool:
        """Whether anybody knows which answers are right."""
        return self.check is not None or question.answer is not None
