"""Procedural arithmetic: sums that never run out, easy enough for a model of a hundred million parameters."""

from __future__ import annotations

import random

from moot.debate.types import Question
from moot.tasks.task import BOXED, Task


def question(seed: object, split: str, number: int) -> Question:
    """Held-out questions are those whose operands sum to a multiple of 7; training skips them, so the two never meet."""
    chance = random.Random(f"{seed}/{split}/{number}")
    while True:
        a, b = chance.randint(2, 49), chance.randint(2, 49)
        sign = chance.choice("+-")
        if sign == "-" and b > a:
            a, b = b, a
        if ((a + b) % 7 == 0) == (split == "held_out"):
            break
    answer = a + b if sign == "+" else a - b
    return Question(f"What is {a} {sign} {b}?", str(answer), id=f"{split}-{number}", instruction=BOXED)


def solution(asked: Question) -> str:
    sum_ = asked.text.removeprefix("What is ").removesuffix("?")
    return f"{sum_} = {asked.answer}. The answer is \\boxed{{{asked.answer}}}."


def near_miss(asked: Question, number: int) -> str:
    return str(int(asked.answer or 0) + (1, 10, 2, 11, -1)[number % 5])


def task(seed: int = 0, held_out: int = 64) -> Task:
    tests: dict[str, Question] = {}
    number = 0
    while len(tests) < held_out and number < 100 * held_out:
        found = question(seed, "held_out", number)
        tests.setdefault(found.text, found)
        number += 1
    return Task("arithmetic", lambda i: question(seed, "train", i), tuple(tests.values()), solution=solution, near_miss=near_miss)
