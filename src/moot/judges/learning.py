"""What a judge learns from without labels: answers whose label is known because they were made, or follows from the
majority; and what its verdicts are paid. No model.

planted    exercises of the task, or slips planted into solutions that most agree with: right because they were made so
majority   the answers to a question whose plurality holds at least half of them: the plurality is to be approved
truth      the same answers, by what is right
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from moot.debate.checks import Show
from moot.debate.rewards import plurality
from moot.debate.types import Question
from moot.judges.measures import Judged, Measures, measure
from moot.tasks.slips import plant
from moot.tasks.task import Exercise

CLEAR = 0.5
"""The share of a question's answers that its plurality must hold: below it the label is noise."""


@dataclass(frozen=True)
class Solved:
    """One question's solutions, and what a grader read in them."""

    question: Question
    solutions: tuple[str, ...]
    answers: tuple[str | None, ...]
    same: tuple[int | None, ...]
    """Equal answers have one number; None where there is no answer."""
    correct: tuple[bool, ...]

    @property
    def most(self) -> int | None:
        """The plurality."""
        return plurality(self.same)

    @property
    def clear(self) -> int | None:
        """The plurality, where it holds enough of the answers."""
        most = self.most
        return most if most is not None and self.same.count(most) >= CLEAR * len(self.same) else None

    def exercises(self, show: Show, right: Callable[[int], bool]) -> list[Exercise]:
        """Those that have an answer, as a judge is shown them. Two that are shown the same are one."""
        shown = self.solutions if show == "solution" else self.answers
        labelled = [(shown[i], right(i)) for i, kind in enumerate(self.same) if kind is not None]
        return [
            Exercise(self.question, text, label) for text, label in dict.fromkeys(labelled) if text and text.strip()
        ]


def by_majority(solved: Solved, show: Show, seed: object) -> list[Exercise]:
    most = solved.clear
    return [] if most is None else solved.exercises(show, lambda i: solved.same[i] == most)


def by_truth(solved: Solved, show: Show, seed: object) -> list[Exercise]:
    return solved.exercises(show, lambda i: solved.correct[i])


def by_slips(solved: Solved, show: Show, seed: object) -> list[Exercise]:
    """One solution of a clear plurality as it is, and with a slip; nothing where none can be planted."""
    most, rng = solved.clear, random.Random(f"{seed}/slips/{solved.question.text}")
    holders = [i for i, kind in enumerate(solved.same) if most is not None and kind == most]
    for i in rng.sample(holders, len(holders)):
        if slip := plant(solved.solutions[i], rng.getrandbits(32), solved.question.text):
            texts = (solved.solutions[i], slip.text) if show == "solution" else (solved.answers[i], slip.answer)
            return [Exercise(solved.question, text or "", text is texts[0]) for text in texts]
    return []


def balanced(exercises: Iterable[Exercise], count: int, seed: object) -> list[Exercise]:
    """As many to approve as to disapprove, `count` in all where there are enough, drawn by the seed."""
    drawn, rng = list(exercises), random.Random(f"{seed}/balanced")
    rng.shuffle(drawn)
    kinds = [[exercise for exercise in drawn if exercise.right == right] for right in (True, False)]
    size = min(*map(len, kinds), count // 2)
    return [exercise for pair in zip(*(kind[:size] for kind in kinds), strict=True) for exercise in pair]


def rewards(labels: Sequence[bool], values: Sequence[float]) -> list[float]:
    """What its thinking is worth: the probability of the right verdict after it. `values` are those of a Yes."""
    return [value if label else 1 - value for label, value in zip(labels, values, strict=True)]


def weights(labels: Sequence[bool]) -> list[float]:
    """Either kind of answer weighs the same in a batch, and an answer 1 on average.

    Where there is one kind alone nothing is learned: it would teach to say one word."""
    counts = [sum(label == kind for label in labels) for kind in (False, True)]
    return [len(labels) / (2 * counts[label]) if all(counts) else 0.0 for label in labels]


def advantages(labels: Sequence[bool], paid: Sequence[float]) -> list[float]:
    """Either kind of answer is centred apart."""
    pays = [[pay for pay, label in zip(paid, labels, strict=True) if label == kind] for kind in (False, True)]
    means = [sum(kind) / len(kind) if kind else 0.0 for kind in pays]
    return [(pay - means[label]) * weight for pay, label, weight in zip(paid, labels, weights(labels), strict=True)]


def measured(exercises: Sequence[Exercise], scores: Sequence[float | None], together: bool, seed: int = 0) -> Measures:
    """How well scores tell what is to be approved. With `together` every answer is compared with every other, because
    each is to a question of its own; otherwise with those to the same question."""
    judged = sorted(zip(exercises, scores, strict=True), key=lambda pair: pair[0].question.text)
    groups = [judged] if together else [list(own) for _, own in groupby(judged, lambda pair: pair[0].question.text)]
    questions = [
        Judged(
            correct=tuple(exercise.right for exercise, _ in group),
            scores=tuple(score for _, score in group),
            lengths=tuple(len(exercise.answer) for exercise, _ in group),
            counting_fails=False,
        )
        for group in groups
    ]
    return measure(questions, "approval", seed)
