"""When is an answer right? One dict: each way to compare answers comes with how to find one where nothing is boxed, what to ask
for, and how to make a wrong one that looks right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from moot import users
from moot.debate.choices import near
from moot.debate.types import ConfigError
from moot.tasks.answers import TAIL, Extract, announced, exact, final_number
from moot.tasks.comparing import ByKey, Grader
from moot.tasks.math_equality import equal_mathematics, last_mathematics
from moot.tasks.near_misses import next_letter, slip

STEPS = "Reason step by step, then put the final answer in \\boxed{}."
"""Measured on 200 training questions of GSM8K at temperature 0.8, untrained: Qwen2.5-Coder-1.5B is right in 62%, in 60% where it is told to
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


def grading(name: str) -> Grading:
    """By name, or a user's own `path.py:function` of (answer, right answer)."""
    if name in GRADERS:
        return GRADERS[name]
    if ":" not in name:
        raise ConfigError(f"grader must be one of {', '.join(GRADERS)} or path.py:function, got {name!r}{near(name, GRADERS)}")
    function = users.load(name, "grader")

    def equal(given: str, right: str) -> bool:
        try:
            return bool(function(given, right))
        except ConfigError as error:  # which names the line; here it is known for which answers
            why = str(error).removeprefix(f"grader {name!r} fails: ")
            raise ConfigError(f"grader {name!r} failed on {given[:80]!r} against {right[:80]!r}: {why}") from error

    return Grading(equal)
