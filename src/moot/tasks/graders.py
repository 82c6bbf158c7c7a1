"""When are two answers the same, and when is one right? One dict: each way to compare answers comes with how to find
one where nothing is boxed, what to ask for, and how to make a wrong one that looks right. A user's own grader says what
is right and nothing else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from moot.debate.typed_fields import near
from moot.errors import ConfigError
from moot.tasks.answer_classes import ByKey, Grader
from moot.tasks.answers import TAIL, Checker, Extract, announced, exact, final_number
from moot.tasks.math_equality import equal_mathematics, last_mathematics
from moot.tasks.near_misses import next_letter, slip
from moot.util import user_code as users

STEPS = "Reason step by step, then put the final answer in \\boxed{}."
"""Measured on 200 training questions of GSM8K at temperature 0.8, untrained: Qwen2.5-Coder-1.5B is right in 62%, in 60%
where it is told to
keep it short, in 54% where it is told to write one calculation per line. The 0.5B is right in 25%."""
BOXED = "Work it out step by step, without code. End with the final answer in \\boxed{}."
LETTER = "Think it through in short steps. End with the letter of the right choice in \\boxed{}."
LONGEST = 1000
"""Of an answer that is read at all: longer ones are compared as they stand."""

_PLAIN = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_FRACTION = re.compile(r"([-+]?)\s*(?:\\[dt]?frac\s*\{([0-9]+)\}\s*\{([0-9]+)\}|([0-9]+)\s*/\s*([0-9]+))")
_WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
_NO_PART = re.compile(r"\\[,!; ]|(?<=[0-9]),(?=[0-9]{3})|(?<=[A-Za-z}])\s*\^\s*\{?[0-9]\}?")
_LETTER = re.compile(r"\W*(?:\\(?:text|mathrm|textbf|mathbf)\W*)?([A-Za-z])\W*")
_LABELLED = re.compile(r"\W*([A-Z])\s*[).:]")
_CHOSEN = re.compile(r"(?i:answer|choice|option)(?i:\s+is)?\s*:?\s*\W{0,4}([A-Z])\b|\(([A-Z])\)")


@dataclass(frozen=True)
class Grading:
    equal: Grader
    extract: Extract = final_number
    instruction: str = BOXED
    near_miss: Callable[[str, int], str] = slip
    check: Checker | None = None
    """None: right is what equals the known answer."""


def _value(text: str) -> Fraction | None:
    """The one number in it. A sum is worth what stands after its last equals sign; two numbers are no number."""
    if len(text) > LONGEST:
        return None
    text = _WRAPPED.sub(lambda wrapped: f" {wrapped[1]} ", text.rpartition("=")[2].replace("\u2212", "-"))
    text = _NO_PART.sub("", text).replace("\\$", "").strip(" $*").rstrip(".")
    if fraction := _FRACTION.fullmatch(text):
        above, below = fraction[2] or fraction[4], fraction[3] or fraction[5]
        return Fraction(int(f"{fraction[1]}{above}"), int(below)) if int(below) else None
    numbers = _PLAIN.findall(text)
    return Fraction(Decimal(numbers[0])) if len(numbers) == 1 else None


number = ByKey(_value)
"""Equal as exact numbers; signs of currency, separators and units apart."""
text = ByKey(lambda answer: tuple(answer.split()))
"""The same characters, white space apart."""


def last_text(solution: str) -> str | None:
    """What follows the last "answer is" on its line, or else the last line."""
    text = announced(solution)
    line = solution[-TAIL:].strip().rpartition("\n")[2] if text is None else text.partition("\n")[0]
    return line.strip(" \t.*$`") or None


def _letter(answer: str) -> str | None:
    """B, (b), \\text{B}, and `B) because …`."""
    match = _LETTER.fullmatch(answer[:LONGEST]) or _LABELLED.match(answer[:LONGEST])
    return match[1].upper() if match else None


choice = ByKey(_letter)


def last_choice(solution: str) -> str | None:
    tail = solution[-TAIL:]
    letters = _CHOSEN.findall(tail)
    return letters[-1][0] or letters[-1][1] if letters else _letter(tail.strip().rpartition("\n")[2])


GRADERS: dict[str, Grading] = {
    "exact": Grading(exact),
    "number": Grading(number, instruction=STEPS),
    "text": Grading(text, last_text),
    "choice": Grading(choice, last_choice, LETTER, next_letter),
    "math": Grading(equal_mathematics, last_mathematics),
}


def grading(name: str, equal: str = "") -> Grading:
    """What is right goes by `name`: a grader's, or a user's `path.py:function` of (question, answer). What is the same
    goes by `equal`:
    another name, or a `path.py:function` of two answers; if not given by the grader itself, and beside a user's by
    `exact`."""
    graded = GRADERS.get(name) or Grading(exact, check=_users("grader", name, ("question", "answer")))
    if not equal:
        return graded
    same = GRADERS[equal].equal if equal in GRADERS else _users("equal", equal, ("a", "b"))
    # What is right does not change with what is the same.
    return replace(graded, equal=same, check=graded.check or _by_known_answer(graded.equal))


def _users(setting: str, name: str, parameters: tuple[str, str]) -> Callable[[Any, str], bool]:
    if ":" not in name:
        known = f"one of {', '.join(GRADERS)} or path.py:function"
        raise ConfigError(f"{setting} must be {known}, got {name!r}{near(name, GRADERS)}")
    function = users.load(name, setting)
    names = list(inspect.signature(function).parameters)
    if len(names) != 2 or (setting == "grader" and names[0] != "question"):
        wanted = f"({', '.join(parameters)}), got ({', '.join(names)})"
        known = "; the known answer is question.answer" if setting == "grader" else ""
        raise ConfigError(f"{setting} {name!r} must have the parameters {wanted}{known}")

    def called(first: Any, second: str) -> bool:
        try:
            return bool(function(first, second))
        except ConfigError as error:  # which names the line; here it is known for which answers
            why = str(error).removeprefix(f"{setting} {name!r} fails: ")
            a, b = (first, f"and {second[:80]!r}") if setting == "equal" else (second, f"to {first.text[:80]!r}")
            raise ConfigError(f"{setting} {name!r} failed on {a[:80]!r} {b}: {why}") from error

    return called


def _by_known_answer(equal: Grader) -> Checker:
    return lambda question, answer: question.answer is not None and equal(answer, question.answer)
