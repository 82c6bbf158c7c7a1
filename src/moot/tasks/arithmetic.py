"""Procedural arithmetic: sums that never run out. As it stands, easy enough for a model of a hundred million
parameters; `arithmetic:operands=3,operators=+-x,digits=2` is harder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks.graders import STEPS
from moot.tasks.near_misses import slip
from moot.tasks.spec import Spec
from moot.tasks.task import Exercise, Task, distinct, halves

TRIES = 10_000
SIGNS = {"+": "+", "-": "-", "x": "*", "*": "*"}


@dataclass(frozen=True)
class ArithmeticSettings:
    operands: int = 2
    digits: int = 0
    """Of each operand; 0 means from 2 to 49."""
    operators: str = "+-"
    """Any of + - x; products come before sums, as everywhere."""

    def __post_init__(self) -> None:
        if not 2 <= self.operands <= 20:
            raise ConfigError(f"operands must be from 2 to 20, got {self.operands}")
        if not 0 <= self.digits <= 20:
            raise ConfigError(f"digits must be from 0 to 20, got {self.digits}")
        if not self.operators or not set(self.operators) <= SIGNS.keys():
            raise ConfigError(f"operators must be some of + - x, got {self.operators!r}")

    @property
    def range(self) -> tuple[int, int]:
        return (max(2, 10 ** (self.digits - 1)), 10**self.digits - 1) if self.digits else (2, 49)


def question(seed: object, split: str, number: int, settings: ArithmeticSettings = ArithmeticSettings()) -> Question:
    """Held-out questions are those whose operands sum to a multiple of 7; training skips them, so the two never meet.

    No result on the way is negative.
    """
    rng = random.Random(f"{seed}/{split}/{number}")
    signs = "".join(SIGNS[sign] for sign in settings.operators)
    for _ in range(TRIES):
        operands = [rng.randint(*settings.range) for _ in range(settings.operands)]
        operators = [rng.choice(signs) for _ in operands[1:]]
        if operators == ["-"]:
            operands.sort(reverse=True)
        pieces = [str(operands[0])]
        for sign, operand in zip(operators, operands[1:], strict=True):
            pieces += [sign, str(operand)]
        if (sum(operands) % 7 == 0) == (split == "held_out") and (lines := _steps(pieces)) is not None:
            return Question(f"What is {' '.join(pieces)}?", lines[-1], id=f"{split}-{number}", instruction=STEPS)
    nothing = f"{settings} leaves nothing to ask whose result is not negative"
    raise ConfigError(f"task arithmetic: {nothing}; use fewer operands or add +")


def _steps(pieces: list[str]) -> list[str] | None:
    """What is left after each operation, products first, then from left to right; None where it turns negative."""
    lines = []
    while len(pieces) > 1:
        at = pieces.index("*") if "*" in pieces else 1
        a, b = int(pieces[at - 1]), int(pieces[at + 1])
        result = {"+": a + b, "-": a - b, "*": a * b}[pieces[at]]
        if result < 0:
            return None
        pieces = [*pieces[: at - 1], str(result), *pieces[at + 2 :]]
        lines.append(" ".join(pieces))
    return lines


def solution(asked: Question) -> str:
    """Step by step: long products by their digits first, then the sum with one operation fewer each time."""
    sum_ = asked.text.removeprefix("What is ").removesuffix("?")
    pieces = sum_.split()
    lines = _steps(pieces) or []
    said: list[str] = []
    for left in (line.split() for line in [sum_, *lines]):
        if "*" in left:
            at = left.index("*")
            if working := _product(int(left[at - 1]), int(left[at + 1])):
                said.append(f"{working}.")
    if not (len(pieces) == 3 and said):
        said.append(f"{' = '.join([sum_, *lines])}.")
    return f"{' '.join(said)} The answer is \\boxed{{{asked.answer}}}."


def _product(a: int, b: int) -> str:
    """23 * 45 = 23 * 40 + 23 * 5 = 920 + 115 = 1035. Empty where there is nothing to take apart."""
    digits = b if b > 9 else a
    parts = [
        int(digit) * 10**place for place, digit in reversed(list(enumerate(reversed(str(digits))))) if digit != "0"
    ]
    if digits < 10 or len(parts) < 2:
        return ""
    split = " + ".join(f"{a} * {part}" if b > 9 else f"{part} * {b}" for part in parts)
    return f"{a} * {b} = {split} = {' + '.join(str((a if b > 9 else b) * part) for part in parts)} = {a * b}"


def near_miss(asked: Question, number: int) -> str:
    return slip(asked.answer or "0", number)


def exercises(seed: int, settings: ArithmeticSettings = ArithmeticSettings()) -> Iterator[Exercise]:
    """One right and one wrong answer of each two, in either order: the result, or a near miss."""
    rng = random.Random(f"{seed}/exercises")
    for number, is_right in enumerate(halves(rng)):
        asked = question(f"{seed}/exercises", "train", number, settings)
        answer = (asked.answer or "") if is_right else near_miss(asked, rng.randrange(5))
        yield Exercise(asked, answer, is_right)


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    settings = spec.fill(ArithmeticSettings)
    return Task(
        spec.label,
        lambda i: question(seed, "train", i, settings),
        distinct((question(seed, "held_out", i, settings) for i in range(100 * held_out)), held_out),
        solution=solution,
        near_miss=near_miss,
        exercises=lambda seed: exercises(seed, settings),
    )
