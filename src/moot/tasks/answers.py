"""The final answer in a solution, and whether it is right."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeVar

from moot.debate.rewards import Grades
from moot.debate.state import Debate, Settled
from moot.debate.types import Parsed, Question, Turn
from moot.tasks.answer_classes import ByKey, Comparing, Grader

Extract = Callable[[str], str | None]
"""A solution's text -> its final answer, for solutions without a box."""
Checker = Callable[[Question, str], bool]
"""(a question, an answer) -> whether it is right; for tasks with several right answers, or with none that is known."""

T = TypeVar("T")
R = TypeVar("R")

_BRACES = re.compile(r"\\boxed\{|\\.|[{}]", re.S)
_SIGN = r"(?:(?<![0-9A-Za-z)\]}])[-+\u2212])?"
"""Not between two numbers, where it is an operator."""
_NUMBER = re.compile(_SIGN + r"[0-9]++(?:,[0-9]{3}(?![0-9]))*+(?:\.[0-9]++)?(?:/[0-9]++)?")
_THOUSANDS = re.compile(r"(?<=[0-9])(?:\{,\}|,\\!|\\[,!])(?=[0-9]{3}(?![0-9]))")
_ANNOUNCED = re.compile(r"(?:\banswer(?:\s+to\s[^.\n:=]{0,80}?)?[*_\s]{0,4}(?:\bis\b|:|=)|####)[*_\s:]*+", re.I)
_AFTERTHOUGHT = re.compile(r"(?:,|\s)\s*(?:which|because|since|so|where|as)\b|\.(?=\s|$)|[;(]\s*[A-Za-z]{2}")
TAIL = 4000
"""Characters at the end of a solution in which its answer is looked for."""


def boxed(text: str) -> str | None:
    """The content of the last complete `\\boxed{...}`, the inner one where they are nested; braces inside it balance.

    One pass, so that hostile text stays cheap.
    """
    opened: list[int | None] = []
    content, innermost = None, -1
    for match in _BRACES.finditer(text):
        if match[0] == "\\boxed{":
            opened.append(match.end())
        elif match[0] == "{":
            opened.append(None)
        elif match[0] == "}" and opened and (start := opened.pop()) is not None and start > innermost:
            content, innermost = text[start : match.start()].strip(), start
    return content


def last_number(text: str) -> str | None:
    number = None
    for match in _NUMBER.finditer(_THOUSANDS.sub(",", text)):
        number = match[0].replace("\u2212", "-")
    return number


def announced(solution: str) -> str | None:
    """What follows the last "The answer is", "**Answer:**" or "####", to the end of the solution; empty where it was
    cut off there.

    None where no answer is announced.
    """
    tail = solution[-TAIL:]
    ends = [match.end() for match in _ANNOUNCED.finditer(tail)]
    return tail[ends[-1] :] if ends else None


def first_clause(text: str) -> str:
    """Its first line, without what only comments on it: "42, which is even", "42 because", "42 (see above)"."""
    return _AFTERTHOUGHT.split(text.partition("\n")[0], maxsplit=1)[0].strip(" \t.,*_`")


def final_number(solution: str) -> str | None:
    """The number that is announced as the answer, or else the last one. Of 6 * 7 = 42 the result counts."""
    text = announced(solution)
    if text is None:
        return last_number(solution)
    clause = first_clause(_THOUSANDS.sub(",", text))
    number = _NUMBER.search(clause.rpartition("=")[2]) or _NUMBER.search(clause)
    return number[0].replace("\u2212", "-") if number else last_number(text)


def answer_in(solution: str, otherwise: Extract = final_number) -> str | None:
    return boxed(solution) or otherwise(solution)


def _decimal(text: str) -> Decimal | None:
    text = text.strip().strip("$").replace(",", "").rstrip(".")
    if len(text) > 1000:
        return None
    try:
        number = Decimal(text)
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() else None


def _number_or_text(answer: str) -> Hashable:
    number = _decimal(answer)
    return " ".join(answer.split()).casefold() if number is None else number


exact = ByKey(_number_or_text)
"""Equal as numbers where both are numbers, otherwise as text, white space and case apart."""


def _answer_of(turn: Turn, otherwise: Extract) -> str | None:
    """None for a turn that cannot be read, for one without an answer, and for a ballot, which holds no solution."""
    solution = turn.parsed.fields.get("solution") if isinstance(turn.parsed, Parsed) else None
    return None if solution is None else answer_in(solution, otherwise)


def _held(debate: Debate, turn: Turn, otherwise: Extract) -> str | None:
    """What a turn stands for: the position of its seat, whatever its argument comes to, or the answer that it gives."""
    position = debate.position(turn.agent)
    if position is None:
        return _answer_of(turn, otherwise)
    return position if turn.answers else None


def settled_by(equal: Grader = exact, otherwise: Extract = final_number) -> Settled:
    """For `Debate.settled`: everybody's turn of the round could be read, has an answer, and all answers are equal."""
    return _SettledBy(equal, otherwise)


@dataclass(frozen=True)
class _SettledBy:
    equal: Grader
    otherwise: Extract

    def __call__(self, turns: tuple[Turn, ...]) -> bool:
        first, *others = (_answer_of(turn, self.otherwise) for turn in turns)
        return first is not None and all(answer is not None and self.equal(answer, first) for answer in others)

    @property
    def workers(self) -> int:
        """How many processes the grader has: with several it may be asked from a thread."""
        return int(getattr(self.equal, "workers", 1))


def grade(
    debate: Debate, equal: Grader = exact, otherwise: Extract = final_number, check: Checker | None = None
) -> Grades:
    """Every turn's own answer: which are the same, by `equal` alone, and then which are right, by `check` or by the
    known answer.

    Without either nothing is correct, but answers can still be compared.
    """
    answers = [_held(debate, turn, otherwise) for turn in debate.turns]
    comparing, question = Comparing(equal), debate.question
    said = [(answer, turn.agent) for turn, answer in zip(debate.turns, answers, strict=True)]
    same = [None if answer is None else comparing.class_of(answer, agent) for answer, agent in said]
    label = None if question.label is None else comparing.class_of(question.label, debate.num_agents)
    labelled = None if label is None else tuple(number == label for number in same)
    known, right = question.answer, dict[str, bool]()
    for answer, agent in said:
        if answer is None or answer in right:
            continue
        if check is not None:
            right[answer] = check(question, answer)
        else:
            right[answer] = known is not None and comparing.equals(answer, known, agent)
    correct = tuple(answer is not None and right[answer] for answer in answers)
    return Grades(tuple(answers), correct, tuple(same), comparing.given_up, labelled, checked=check is not None)


def grade_all(
    debates: Iterable[Debate], equal: Grader = exact, otherwise: Extract = final_number, check: Checker | None = None
) -> list[Grades]:
    """Many debates, in order; as many at once as the grader has processes."""
    return in_parallel(lambda debate: grade(debate, equal, otherwise, check), list(debates), equal)


async def grade_all_async(
    debates: Iterable[Debate], equal: Grader = exact, otherwise: Extract = final_number, check: Checker | None = None
) -> list[Grades]:
    """The same from a coroutine, while the event loop continues."""
    return await asyncio.to_thread(grade_all, list(debates), equal, otherwise, check)


def in_parallel(work: Callable[[T], R], over: Sequence[T], equal: Grader) -> list[R]:
    """Threads are of use only where a grader waits for other processes; a user's own function need not stand them."""
    workers = min(len(over), getattr(equal, "workers", 1))
    if workers < 2:
        return [work(item) for item in over]
    with ThreadPoolExecutor(workers, thread_name_prefix="moot-grading") as threads:
        return list(threads.map(work, over))
