"""Is the data fit to be graded? Every right answer must pass its own grader, a wrong one that looks like it must not,
and no test question may be trained on. A checker may take several answers for right: it must refuse what is no answer
at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from moot.debate.types import Question
from moot.tasks.answer_classes import in_time
from moot.tasks.answers import Checker, answer_in, boxed, in_parallel
from moot.tasks.programs import EqualPrograms
from moot.tasks.sets import normal
from moot.tasks.task import Task


@dataclass(frozen=True)
class Trouble:
    id: str
    right: str
    """The answer that is known."""
    given: str = ""
    """What was graded against it."""


NO_ANSWER = "?"
UNTRIED = (
    "no right answer is known, so nobody has tried whether the checker accepts one; "
    "give the questions an answer that is right, one of many is enough"
)
KINDS = ("failing", "passing", "as_text", "given_up", "unlike")


@dataclass(frozen=True)
class SplitReport:
    questions: int
    graded: int
    failing: tuple[Trouble, ...] = ()
    """Right answers that their own grader does not accept."""
    passing: tuple[Trouble, ...] = ()
    """Wrong answers that it does."""
    as_text: tuple[Trouble, ...] = ()
    """Right answers that it can only compare as they stand: written another way they would count as wrong."""
    given_up: tuple[Trouble, ...] = ()
    """Answers that took the grader more time or memory than it has."""
    unlike: tuple[Trouble, ...] = ()
    """Worked solutions that end in another answer."""
    right_tried: int = 0
    """Questions of which an answer that is right was at hand."""
    wrong_tried: int = 0
    """The same for a wrong one."""
    duplicates: int = 0
    """Questions that stood there before."""
    contradictions: tuple[str, ...] = ()
    """Questions that stand there twice, with different answers."""


@dataclass(frozen=True)
class DataReport:
    task: str
    splits: Mapping[str, SplitReport]
    overlap: tuple[tuple[str, str], ...]
    """Questions of another split that are also trained on: (in train, in the other)."""
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.overlap and not any(s.failing or s.passing or s.contradictions for s in self.splits.values())

    def as_json(self) -> dict[str, Any]:
        splits = {name: asdict(split) for name, split in self.splits.items()}
        return {"task": self.task, "good": self.good, "splits": splits, "overlap": self.overlap, "notes": self.notes}


def gather(task: Task, most: int) -> Mapping[str, Sequence[Question]]:
    """All of a fixed set, or its first `most`; so many of one without end, beside what is held out of it."""
    if task.splits is None:
        return {"train": [task.train(i) for i in range(most or 1000)], "held_out": task.held_out}
    return {name: questions[: most or None] for name, questions in task.splits().items()}


def check(
    task: Task, splits: Mapping[str, Sequence[Question]], checked: Callable[[], object] = lambda: None
) -> DataReport:
    """`checked` is called after each question, from whichever thread."""
    reports = {name: _split(task, questions, checked) for name, questions in splits.items()}
    trained = {normal(question.text): question.id for question in splits.get("train", ())}
    others = [question for name, questions in splits.items() if name != "train" for question in questions]
    overlap = [(trained[text], question.id) for question in others if (text := normal(question.text)) in trained]
    untried = task.check is not None and not any(report.right_tried for report in reports.values())
    return DataReport(task.name, reports, tuple(overlap), (*task.notes, UNTRIED) if untried else task.notes)


def _split(task: Task, questions: Sequence[Question], checked: Callable[[], object]) -> SplitReport:
    def one(numbered: tuple[int, Question]) -> dict[str, Trouble]:
        troubles = _question(task, *numbered)
        checked()
        return troubles

    results = in_parallel(one, list(enumerate(questions)), task.equal)

    seen: dict[str, set[str | None]] = defaultdict(set)
    for question in questions:
        seen[normal(question.text)].add(question.answer)
    contradictions = tuple(text for text, answers in seen.items() if len(answers) > 1 and task.check is None)
    graded, repeated = sum(map(task.gradable, questions)), len(questions) - len(seen)
    troubles = {kind: tuple(result[kind] for result in results if kind in result) for kind in KINDS}
    tried = [_tried(task, question) for question in questions]
    rights, wrongs = (sum(result[kind] for result in tried) for kind in (0, 1))
    return SplitReport(
        len(questions), graded, **troubles, right_tried=rights, wrong_tried=wrongs, duplicates=repeated,
        contradictions=contradictions,
    )  # fmt: skip


def _tried(task: Task, question: Question) -> tuple[bool, bool]:
    """Whether there is a right answer to try, and a wrong one."""
    known, worked = question.answer is not None, task.solution is not None
    if isinstance(task.equal, EqualPrograms) and known:
        return worked, worked
    if task.check is not None:
        return known or worked, True
    return known, known and task.near_miss is not None


def _question(task: Task, number: int, question: Question) -> dict[str, Trouble]:
    right = question.answer
    if isinstance(task.equal, EqualPrograms) and right is not None:
        return _program(task, task.equal, number, question, right)
    if task.check is not None:
        return _checked(task, task.check, number, question)
    if right is None:
        return {}
    troubles: dict[str, Trouble] = {}

    def accepted(answer: str) -> bool:
        compared = in_time(task.equal, answer, right)
        if compared.given_up:
            troubles["given_up"] = Trouble(question.id, right, answer)
        return compared.equal

    def graded(answer: str) -> tuple[bool, str]:
        """As a model would write it."""
        read = answer_in(f"The answer is \\boxed{{{answer}}}.", task.extract)
        return read is not None and accepted(read), read or ""

    passes, read = graded(right)
    if not passes:
        troubles["failing"] = Trouble(question.id, right, read)
    if task.near_miss is not None:
        passes, read = graded(task.near_miss(question, number))
        if passes:
            troubles["passing"] = Trouble(question.id, right, read)
    outcome = None if right.isdecimal() else getattr(task.equal, "outcome", None)
    if outcome is not None and outcome(right, right) != "equal":
        troubles["as_text"] = Trouble(question.id, right)
    if task.solution is not None and (last := boxed(task.solution(question))) and not accepted(last):
        troubles["unlike"] = Trouble(question.id, right, last)
    return troubles


def _checked(task: Task, check: Checker, number: int, question: Question) -> dict[str, Trouble]:
    """A checker must take the known answer, or else that of the worked solution, and refuse what is no answer. Without
    a known answer it must refuse a near miss too: beside one, what is near to it may be right as well."""
    troubles: dict[str, Trouble] = {}
    known, wrong = question.answer, [NO_ANSWER]
    if known is not None and not check(question, known):
        troubles["failing"] = Trouble(question.id, known, known)
    if known is None and task.near_miss is not None:
        wrong.append(task.near_miss(question, number))
    if taken := next((answer for answer in wrong if check(question, answer)), None):
        troubles["passing"] = Trouble(question.id, known or "", taken)
    if task.solution is not None and (last := boxed(task.solution(question))) and not check(question, last):
        troubles["failing" if known is None else "unlike"] = Trouble(question.id, known or last, last)
    return troubles


def _program(task: Task, equal: EqualPrograms, number: int, question: Question, right: str) -> dict[str, Trouble]:
    """A known solution must pass its tests, and one that gives back something else must not."""
    if task.solution is None:
        return {}
    troubles: dict[str, Trouble] = {}
    solution, broken = task.extract(task.solution(question)) or "", equal.broken(right, number)
    if not equal.passes(solution, right):
        troubles["failing"] = Trouble(question.id, right, solution)
    if equal.passes(broken, right):
        troubles["passing"] = Trouble(question.id, right, broken)
    return troubles
