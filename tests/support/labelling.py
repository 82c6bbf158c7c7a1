"""A chat server with a simulated model: it knows how hard each question is, and answers by the request's own seed."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections import Counter
from typing import Any

from support.asking import Answer, ChatServer, saying


def chance_of(question: str) -> float:
    """How often the simulated model is right: half of the questions are easy, the others hard."""
    draw = random.Random(f"hardness {question}").random()
    return 0.95 if draw < 0.5 else 0.15 + 0.6 * draw


def sum_in(question: str) -> int:
    a, _, b = question.removeprefix("What is ").split("?")[0].split()
    return int(a) + int(b)


class SimulatedModel(ChatServer):
    """Says the sum in a box, or one that is off by a little. It counts what it is asked: a request is told from another
    by its messages and its seed."""

    def __init__(self, judging: bool = False) -> None:
        super().__init__(self._answer)
        self._lock = threading.Lock()
        self.asked: Counter[str] = Counter()

    def _answer(self, number: int, body: dict[str, Any]) -> Answer:
        key = hashlib.sha256(json.dumps([body["messages"], body.get("seed")]).encode()).hexdigest()
        with self._lock:
            self.asked[key] += 1
        question = body["messages"][0]["content"]
        rng = random.Random(key)
        off = 0 if rng.random() < chance_of(question.split("\n")[0]) else rng.choice((-10, -1, 1, 10))
        return saying(f"It is \\boxed{{{sum_in(question) + off}}}.")
