"""Mathematics that is equal though written differently: math-verify, elsewhere, behind what can be told at a glance."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Hashable
from decimal import Decimal

from moot.tasks.answer_classes import Limited
from moot.tasks.answers import TAIL, announced, first_clause, last_number
from moot.tasks.math_pool import Comparison, Outcome, Pool

LONGEST = 1000
"""Of an answer that is evaluated; longer ones are compared as they stand."""
MOST_REMEMBERED = 20_000
LEAST_SECONDS = 0.01
"""With less than that left, nothing is worth asking."""

_THIN = re.compile(r"(?<=[0-9]),(?:\\!)\s*(?=[0-9]{3})|(?<!\\)\\[,!;: ]|~")
_SPACE = re.compile(r"\s+|(?<!\\)\\[,!;: ]|~|\\left(?![a-z])|\\right(?![a-z])|^\$+|\$+$")
_NUMBER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?(?<=[0-9])")
_MIXED = re.compile(r"(?<![0-9./])([0-9]+)\s+([0-9]+)/([0-9]+)(?![0-9])")
_LETTER = re.compile(r"[A-Za-z<>!]")
_BASE = re.compile(r"_\{?([0-9]+)\}?$")
_BRACES = re.compile(r"\\.|[{}]", re.S)
_WORDS = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\{([^{}\\$]*)\}")
_WORD = re.compile(r"\(?[A-Za-z](?:[A-Za-z ,'-]*[A-Za-z])?\)?")
_FUNCTION = re.compile(r"\\[A-Za-z]+|sqrt|frac|sin|cos|tan|log|ln|exp|infty|infinity|degrees|\band\b")
_PROSE = re.compile(r"[A-Za-z]{3}")
_SPANS = re.compile(r"\$\$([^$]+)\$\$|\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.S)


class EqualMathematics:
    """Calls are safe from every thread, and never take longer than the pool's limit."""

    def __init__(self, pool: Pool | None = None) -> None:
        self.pool = pool or Pool()
        self._comparisons: OrderedDict[tuple[str, str], Comparison] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def workers(self) -> int:
        return self.pool.workers

    def __call__(self, given: str, right: str) -> bool:
        return self.within(given, right, self.pool.seconds).equal

    def key(self, answer: str) -> Hashable | None:
        """A number written out, or a text too long to be evaluated, is equal to another of them or not at a glance."""
        return answer if len(answer) > LONGEST else _number(_tidy(answer))

    def within(self, given: str, right: str, seconds: float) -> Limited:
        """The verdict, if it takes no more than so many seconds of processor time."""
        told = at_a_glance(given, right)
        if told is not None:
            return Limited(told)
        compared = self._compare(given, right, seconds)
        return Limited(compared.outcome == "equal", compared.seconds, compared.given_up)

    def outcome(self, given: str, right: str) -> Outcome:
        """What math-verify says of the two, and why not where it says nothing."""
        return self._compare(given, right, self.pool.seconds).outcome

    def _compare(self, given: str, right: str, seconds: float) -> Comparison:
        """Remembered, because agents repeat themselves and each other. It costs the same each time: otherwise who asked
        first would decide who runs out of time, and a run that is continued would grade differently."""
        pair = _spoken(given), _spoken(right)
        with self._lock:
            remembered = self._comparisons.get(pair)
            if remembered is not None:
                self._comparisons.move_to_end(pair)
        limit = min(seconds, self.pool.seconds)
        if limit < LEAST_SECONDS or (remembered is not None and remembered.seconds > limit):
            return Comparison("time", max(0.0, limit))
        if remembered is not None and not (remembered.outcome == "time" and remembered.seconds < limit):
            return remembered
        compared = self.pool.compare(*pair, limit)
        if compared.outcome != "lost":
            with self._lock:
                self._comparisons[pair] = compared
                while len(self._comparisons) > MOST_REMEMBERED:
                    self._comparisons.popitem(last=False)
        return compared


def at_a_glance(given: str, right: str) -> bool | None:
    """The verdict where no mathematics is needed; None where it is."""
    if given == right:
        return True
    if len(given) > LONGEST or len(right) > LONGEST:
        return False
    a, b = _tidy(given), _tidy(right)
    if a == b:
        return True
    if not a or not b:
        return False
    if (m := _number(a)) is not None and (n := _number(b)) is not None:
        return m == n  # to the last digit, where math-verify would round to six
    if (m_base := _BASE.search(a)) and (n_base := _BASE.search(b)) and m_base[1] != n_base[1]:
        return False
    if (words := _word(right)) is not None:
        return _unwrapped(given) == words
    return None if _balanced(given) else False


def _balanced(answer: str) -> bool:
    """Otherwise it could close the box it is put into, and say two things at once."""
    depth = 0
    for brace in _BRACES.findall(answer):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0


def _tidy(answer: str) -> str:
    """Without what is never shown or never means anything."""
    return _SPACE.sub("", answer.strip()).rstrip(".").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")


def _number(answer: str) -> Decimal | None:
    return Decimal(answer.replace(",", "")) if _NUMBER.fullmatch(answer) else None


def _spoken(answer: str) -> str:
    """As math-verify understands it: to it a thin space and a space between a whole and a part are products and sums,
    and a sum with its result an equation that holds or not."""
    answer = _THIN.sub("", answer).rstrip(" .,")
    sum_, _, result = answer.rpartition("=")
    return _MIXED.sub(r"\1\\frac{\2}{\3}", result if sum_ and not _LETTER.search(sum_) else answer)


def _word(right: str) -> str | None:
    """A right answer that is all words, `\\text{Evelyn}` or `\\text{(B)}`; None where there is anything to
    calculate."""
    words = _WORDS.fullmatch(right.strip().strip("$"))
    return _unwrapped(right) if words and _WORD.fullmatch(words[1].strip()) else None


def _unwrapped(answer: str) -> str:
    plain = " ".join(_WORDS.sub(r" \1 ", answer).strip(" $.").split()).casefold()
    return plain[1:-1].strip() if plain.startswith("(") and plain.endswith(")") else plain


def last_mathematics(solution: str) -> str | None:
    """What is announced as the answer, or else the last formula, or else the last number."""
    text = announced(solution)
    if text is None:
        tail = solution[-TAIL:]
        spans = list(_SPANS.finditer(tail))
        return _result(spans[-1]) if spans else last_number(tail)
    clause = first_clause(text)
    span = _SPANS.search(text)
    if span and span.start() <= max(len(clause), text.find("\n")):
        return _result(span)
    if _PROSE.search(_FUNCTION.sub("", clause)) and (number := last_number(clause.partition(" and ")[0])):
        return number  # 42 dollars, the number 42
    return clause[:LONGEST].strip(" $") or None


def _result(span: re.Match[str]) -> str | None:
    """Of a formula in dollars or brackets, what stands after its last equals sign."""
    return next(filter(None, span.groups()), "").rpartition("=")[2].strip() or None


equal_mathematics = EqualMathematics()
