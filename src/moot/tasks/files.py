"""Questions from a JSON lines file: `question` (or `problem`) and `answer`, whose last `#### x` is the answer where there is one."""

from __future__ import annotations

import json
import random
from pathlib import Path

from moot.debate.types import ConfigError, Question
from moot.tasks.answers import last_number
from moot.tasks.task import BOXED, Task


def read(path: Path) -> list[tuple[Question, str]]:
    """Questions with their worked solutions, the empty text where there is none."""
    if not path.is_file():
        raise ConfigError(f"task {str(path)!r}: there is no such file")
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text = row.get("question") or row["problem"]
            worked, marker, answer = str(row["answer"]).rpartition("####")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f"{path}, line {number}: needs the fields question and answer ({error})") from None
        answer = answer.strip()
        solution = f"{worked.strip()}\nThe answer is \\boxed{{{answer}}}." if marker else str(row.get("solution", ""))
        found.append((Question(str(text), answer or None, id=str(number), instruction=BOXED), solution))
    if not found:
        raise ConfigError(f"{path} holds no questions")
    return found


def task(path: Path, seed: int = 0, held_out: int = 64) -> Task:
    rows = read(path)
    random.Random(seed).shuffle(rows)
    held_out = min(held_out, len(rows) // 5)
    tests, train = rows[:held_out], rows[held_out:]
    worked = {question.id: solution for question, solution in rows}

    def pick(number: int) -> Question:
        epoch, i = divmod(number, len(train))
        order = list(range(len(train)))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        return train[order[i]][0]

    def solution(question: Question) -> str:
        return worked.get(question.id) or f"The answer is \\boxed{{{question.answer}}}."

    def near_miss(question: Question, number: int) -> str:
        digits = last_number(question.answer or "")
        return str(int(float(digits.replace(",", ""))) + number + 1) if digits else f"not {question.answer}"

    return Task(path.stem, pick, [question for question, _ in tests], solution=solution, near_miss=near_miss)
