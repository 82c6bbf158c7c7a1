"""Chat servers for labelling: a simulated model that knows how hard each question is and answers by the request's own seed, and
real models that answer what they were recorded to."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from support.asking import Answer, ChatServer, saying


def chance_of(question: str) -> float:
    """How often the simulated model is right: half of the questions are easy, the others hard."""
    draw = random.Random(f"hardness {question}").random()
    return 0.95 if draw < 0.5 else 0.15 + 0.6 * draw


def sum_in(question: str) -> int:
    a, _, b = question.removeprefix("What is ").split("?")[0].split()
    return int(a) + int(b)


class _Counting(ChatServer):
    """Counts what it is asked: a request is told from another by its model, its messages and its seed."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self._lock = threading.Lock()
        self.asked: Counter[str] = Counter()

    def _answer(self, number: int, body: dict[str, Any]) -> Answer:
        key = hashlib.sha256(json.dumps([body["model"], body["messages"], body.get("seed")]).encode()).hexdigest()
        with self._lock:
            self.asked[key] += 1
        return saying(self.say(body["model"], body["messages"][0]["content"].split("\n")[0], key))

    def say(self, model: str, question: str, key: str) -> str:
        raise NotImplementedError


class SimulatedModel(_Counting):
    """Says the sum in a box, or one that is off by a little."""

    def say(self, model: str, question: str, key: str) -> str:
        rng = random.Random(key)
        off = 0 if rng.random() < chance_of(question) else rng.choice((-10, -1, 1, 10))
        return f"It is \\boxed{{{sum_in(question) + off}}}."


GSM8K = Path(__file__).parents[1] / "unit/tools/fixtures/gsm8k_recorded.jsonl"
"""The first 500 questions of GSM8K's test split, by their numbers, with the known answer and six final answers of real
models: gpt-3.5-turbo asked in four ways, and text-davinci-003 in two (github.com/Tebmer/Rereading-LLM-Reasoning, Apache 2.0)."""


def recorded(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


class RecordedModels(_Counting):
    """Model `3` says what stands as answer 3 in the recording."""

    def __init__(self) -> None:
        super().__init__()
        self._said = {row["question"]: row["said"] for row in recorded(GSM8K)}

    def say(self, model: str, question: str, key: str) -> str:
        answer = self._said[question][int(model)]
        return "I cannot tell." if answer is None else f"It is \\boxed{{{answer}}}."
