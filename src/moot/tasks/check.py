"""Is the data fit to be graded? Every right answer must pass its own grader, a wrong one that looks like it must not,
and no test question may be trained on. A checker may take several answers for right: it must refuse what is no answer
at all, and is tried on answers of other questions."""

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
KINDS = ("failing", "passing", "as_text", "given_up", "unlike", "others_accepted")


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
    others_tried: int = 0
    """Questions of a checker that was asked about the right answer of another question."""
    others_accepted: tuple[Trouble, ...] = ()
    """Those of which it takes that answer too: one answer may be right for two questions, but for most it is not."""
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
    wrong: str = ""
    """What a checker was given as wrong answers; empty where there is none."""

    @property
    def good(self) -> bool:
        return not self.overlap and not any(s.failing or s.passing or s.contradictions for s in self.splits.values())

    def as_json(self) -> dict[str, Any]:
        splits = {name: asdict(split) for name, split in self.splits.items()}
        return {"task": self.task, "good": self.good, "splits": splits, "overlap": self.overlap, "notes": self.notes,
                "wrong": self.wrong}  # fmt: skip


def gather(task: Task, most: int) -> Mapping[str, Sequence[Question]]:
    """All of a fixed set, or its first `most`; so many of one without end, beside what is held out of it."""
    if task.splits is None:
        return {"train": [task.train(i) for i in range(most or 1000)], "held_out": task.held_out}
    return {name: questions[: most or None] for name, questions in task.splits().items()}


def _of_others(task: Task, questions: Sequence[Question]) -> Mapping[str, tuple[str, str]]:
    """By question an answer that is right for another: the next one's that is not the same, and its own."""
    if task.check is None or isinstance(task.equal, EqualPrograms):
        return {}
    known = [(question.id, answer) for question in questions if (answer := _right(task, question)) is not None]
    others: dict[str, tuple[str, str]] = {}
    for place, (id, own) in enumerate(known):
        following = (answer for _, answer in [*known[place + 1 :], *known[:place]])
        if (other := next((answer for answer in following if answer != own), None)) is not None:
            others[id] = (own, other)
    return others


def _right(task: Task, question: Question) -> str | None:
    """The known answer, or that of the worked solution."""
    if question.answer is not None or task.solution is None:
        return question.answer
    return boxed(task.solution(question))


def check(
    task: Task, splits: Mapping[str, Sequence[Question]], checked: Callable[[], object] = lambda: None
) -> DataReport:
    """`checked` is called after each question, from whichever thread."""
    reports = {name: _split(task, questions, checked) for name, questions in splits.items()}
    trained = {normal(question.text): question.id for question in splits.get("train", ())}
    others = [question for name, questions in splits.items() if name != "train" for question in questions]
    overlap = [(trained[text], question.id) for question in others if (text := normal(question.text)) in trained]
    untried = task.check is not None and not any(report.right_tried for report in reports.values())
    notes = (*task.notes, UNTRIED) if untried else task.notes
    near = task.near_miss is not None and any(q.answer is None for split in splits.values() for q in split)
    wrong = "" if task.check is None else f"{NO_ANSWER} and near misses" if near else NO_ANSWER
    return DataReport(task.name, reports, tuple(overlap), notes, wrong)


def _split(task: Task, questions: Sequence[Question], checked: Callable[[], object]) -> SplitReport:
    others = _of_others(task, questions)

    def one(numbered: tuple[int, Question]) -> dict[str, Trouble]:
        troubles, question = _question(task, *numbered), numbered[1]
        if task.check is not None and question.id in others:
            own, other = others[question.id]
            if task.check(question, other):
                troubles["others_accepted"] = Trouble(question.id, own, other)
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
        len(questions), graded, **troubles, right_tried=rights, wrong_tried=wrongs, others_tried=len(others),
        duplicates=repeated, contradictions=contradictions,
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
