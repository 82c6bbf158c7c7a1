"""Which answers of one debate are equal, in time that no answer can stretch.

Every new answer is compared with the right one first. Those that equal it are one class; the others are compared with one
representative of each class so far, or with none where the grader can read answers by themselves. Comparing formulas takes
processor time, and each agent has so much of it in a debate: whoever writes answers that take long to evaluate uses up their own.
What is left then is compared as it is written, and counted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

Grader = Callable[[str, str], bool]
"""(an answer, the right one or another answer) -> whether they are equal.

One that waits for processes says how many in `workers`, and compares in limited time in `within(given, right, seconds) -> Limited`.
One that can read an answer by itself has `key(answer)`: two answers with keys are equal if and only if their keys are.
One to which right is another matter than equal, as with programs and their tests, has `passes(given, right)`."""

AGENT_SECONDS = 2.0
"""Of processor time, for all comparisons of an agent's answers in one debate. Honest ones take milliseconds."""
ANY_FORMULA = "\\frac{1}{2}"
"""Stands in for a right answer that is not known: what takes too long to compare with this takes too long to compare at all."""


@dataclass(frozen=True)
class Limited:
    """A comparison in limited time."""

    equal: bool
    seconds: float = 0.0
    """The processor time it took."""
    given_up: bool = False


@dataclass(frozen=True)
class ByKey:
    """Answers are equal when their keys are. One whose key is None cannot be read, and equals nothing."""

    key: Callable[[str], Hashable | None]

    def __call__(self, given: str, right: str) -> bool:
        key = self.key(given)
        return key is not None and key == self.key(right)


def in_time(equal: Grader, given: str, right: str, seconds: float = math.inf) -> Limited:
    """Graders without limits of their own take the time they take."""
    within: Callable[[str, str, float], Limited] | None = getattr(equal, "within", None)
    return Limited(equal(given, right)) if within is None else within(given, right, seconds)


class Comparing:
    """The answers of one debate, one after another."""

    def __init__(self, equal: Grader, right: str | None) -> None:
        self.given_up = 0
        """Comparisons that were left undone because their agent's time was used up."""
        self.right_class: int | None = None
        self._equal, self._right = equal, right
        self._passes: Callable[[str, str], bool] | None = getattr(equal, "passes", None)
        self._probes = right is None and hasattr(equal, "within")
        self._key: Callable[[str], Hashable | None] = getattr(equal, "key", lambda answer: None)
        self._seconds_left: dict[int, float] = defaultdict(lambda: AGENT_SECONDS)
        self._by_text: dict[str, int] = {}
        self._by_key: dict[Hashable, int] = {}
        self._representatives: list[tuple[int, str]] = []
        """Of each class that others may still belong to, one answer."""
        self._without_key: list[tuple[int, str]] = []
        """Those of them that an answer with a key may be equal to."""
        self._count = 0

    def is_right(self, answer: str, number: int) -> bool:
        """Whether an answer of that class is right."""
        if self._passes is not None and self._right is not None:
            return self._passes(answer, self._right)
        return number == self.right_class

    def class_of(self, answer: str, agent: int) -> int:
        """Equal answers have the same number. The first one is 0."""
        if answer not in self._by_text:
            key = self._key(answer)
            number = None if key is None else self._by_key.get(key)
            if number is None:
                number = self._compared(answer, key, agent)
            if key is not None:
                self._by_key[key] = number
            self._by_text[answer] = number
        return self._by_text[answer]

    def _compared(self, answer: str, key: Hashable | None, agent: int) -> int:
        if (self._right is not None and self._passes is None) or self._probes:
            first = self._compare(answer, ANY_FORMULA if self._right is None else self._right, agent)
            if first.equal and self._right is not None:
                if self.right_class is None:
                    self.right_class = self._new_class()
                return self.right_class
            if first.given_up:
                return self._new_class()  # nothing is compared with it, so that it costs its author alone, and only once
        for number, other in self._representatives if key is None else self._without_key:
            if self._compare(answer, other, agent).equal:
                return number
        number = self._new_class()
        if not isinstance(self._equal, ByKey):  # to which an answer without a key is equal to nothing
            self._representatives.append((number, answer))
            if key is None:
                self._without_key.append((number, answer))
        return number

    def _compare(self, answer: str, other: str, agent: int) -> Limited:
        compared = in_time(self._equal, answer, other, self._seconds_left[agent])
        self._seconds_left[agent] -= compared.seconds
        self.given_up += compared.given_up
        return compared

    def _new_class(self) -> int:
        self._count += 1
        return self._count - 1
