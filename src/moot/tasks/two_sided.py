"""Questions with two sides: two answers to argue for, of which one is right. Which seat gets the right one alternates.

A file's rows have them in `sides`. For any other task with known answers the second side is a wrong answer that looks
right.
"""

from __future__ import annotations

import re
from dataclasses import replace

from moot.debate.rules import Rules
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks.rows import Raw, Row
from moot.tasks.task import Task

_WHOLE = re.compile(r"-?[0-9]{1,18}")


def with_sides_of(row: Row, raw: Raw, where: str) -> Row:
    """The row with the sides that stand in the file, the right one first where it is known."""
    given = raw.get("sides")
    if not isinstance(given, list) or not all(type(side) in (str, int, float) for side in given):
        raise ConfigError(f"{where}: sides must be a list of two texts, got {given!r:.80}; all rows need it, or none")
    sides = tuple(" ".join(str(side).split()) for side in given)
    if len(sides) != 2 or not all(sides) or _plain(sides[0]) == _plain(sides[1]):
        raise ConfigError(f"{where}: sides must be two different texts, got {given!r:.80}")
    if row.answer:
        answer = next((side for side in sides if _plain(side) == _plain(row.answer)), None)
        if answer is None:
            both = f"{sides[0]!r} and {sides[1]!r}"
            raise ConfigError(f"{where}: answer must be one of the sides {both}, got {row.answer!r:.80}")
        return replace(row, answer=answer, sides=(answer, next(side for side in sides if side != answer)))
    return replace(row, sides=sides)


def _plain(side: str) -> str | float:
    """What makes two sides one: `5` and `5.0` are, and so are `Paris` and `paris`."""
    try:
        return float(side)
    except ValueError:
        return " ".join(side.split()).casefold()


def instruction(sides: tuple[str, ...], usual: str) -> str:
    """For somebody who is asked alone. In an order that does not tell which side is right."""
    first, second = sorted(sides)
    return f'One of these two answers is right: "{first}" or "{second}". {usual}'


def seated(question: Question, number: int) -> Question:
    """The `number`-th question of a sequence: in even places seat 0 has the first side, in odd ones seat 1. So each
    seat argues for the right side equally often, whatever part of the sequence is taken."""
    return replace(question, sides=question.sides[::-1]) if number % 2 else question


def as_debated(task: Task, rules: Rules) -> Task:
    """The task with as many sides to each question as `rules` need."""
    return two_sided(task) if rules.sides else task


def two_sided(task: Task) -> Task:
    """The task with two sides to each question: its own, or the right answer and one that looks right."""
    near_miss = task.near_miss
    sample = next(iter(task.held_out), None) or task.train(0)
    if sample.sides:
        return task
    if near_miss is None or sample.answer is None:
        way_out = "name a file whose rows have the field sides, or a task with known answers"
        raise ConfigError(
            f"positions assigned needs questions with two sides, and task {task.name} has none; {way_out}"
        )

    def sided(question: Question, number: int) -> Question:
        right = question.answer or ""
        wrong = _either_way(right, near_miss(question, number), number // 2 % 2)
        return seated(replace(question, sides=(right, wrong)), number)

    held_out = [sided(question, number) for number, question in enumerate(task.held_out)]
    return replace(task, train=lambda number: sided(task.train(number), number), held_out=held_out)


def _either_way(right: str, wrong: str, below: int) -> str:
    """Wrong numbers that look right are mostly too large. Half of them are put as far below instead: size must not tell
    the sides apart."""
    if not below or not (_WHOLE.fullmatch(right) and _WHOLE.fullmatch(wrong)):
        return wrong
    mirrored = 2 * int(right) - int(wrong)
    return str(mirrored) if mirrored >= 0 or int(right) < 0 else wrong
