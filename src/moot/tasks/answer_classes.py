"""Which answers of one debate are the same, in time that no answer can stretch.

Every new answer is compared with one representative of each class so far, or with none where the grader can read
answers by themselves. The right answer takes no part: which answers are the same must not tell which are right.
Comparing formulas takes processor time, and each agent has so much of it in a debate: whoever writes answers that take
long to evaluate uses up their own. What is left then is compared as it is written, and counted. Which answers are right
is asked afterwards, in the time that is left.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

Grader = Callable[[str, str], bool]
"""(an answer, another) -> whether they are the same.

One that waits for processes says how many in `workers`, and compares in limited time in `within(given, right, seconds)
-> Limited`.
One that can read an answer by itself has `key(answer)`: two answers with keys are equal if and only if their keys
are."""

AGENT_SECONDS = 2.0
"""Of processor time, for all comparisons of an agent's answers in one debate. Honest ones take milliseconds."""
ANY_FORMULA = "\\frac{1}{2}"
"""What takes too long to compare with this takes too long to compare at all."""


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

    def __init__(self, equal: Grader) -> None:
        self.given_up = 0
        """Comparisons that were left undone because their agent's time was used up."""
        self._equal = equal
        self._endless: set[str] = set()
        """Answers that take too long to compare with anything."""
        self._probes = hasattr(equal, "within")
        self._key: Callable[[str], Hashable | None] = getattr(equal, "key", lambda answer: None)
        self._seconds_left: dict[int, float] = defaultdict(lambda: AGENT_SECONDS)
        self._by_text: dict[str, int] = {}
        self._by_key: dict[Hashable, int] = {}
        self._representatives: list[tuple[int, str]] = []
        """Of each class that others may still belong to, one answer."""
        self._without_key: list[tuple[int, str]] = []
        """Those of them that an answer with a key may be equal to."""
        self._count = 0

    def equals(self, answer: str, right: str, agent: int) -> bool:
        """Whether an answer equals the right one; asked when all classes are made, so that they cannot depend on it."""
        if answer in self._endless:
            return in_time(self._equal, answer, right, 0.0).equal
        return self._compare(answer, right, agent).equal

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
        if self._probes and key is None and self._compare(answer, ANY_FORMULA, agent).given_up:
            self._endless.add(answer)
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


def plurality_label(answers: Sequence[str | None], equal: Grader) -> tuple[str | None, float]:
    """What most samples say, the first of those level, and its share of all of them: a sample without an answer is one
    of them too."""
    comparing = Comparing(equal)
    kinds = [(comparing.class_of(answer, i), answer) for i, answer in enumerate(answers) if answer is not None]
    if not kinds:
        return None, 0.0
    (most, count), *_ = Counter(kind for kind, _ in kinds).most_common(1)
    return next(answer for kind, answer in kinds if kind == most), count / len(answers)
