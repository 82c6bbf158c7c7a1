"""Wrong answers that look right, for the warm start and for checking graders."""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(r"[0-9]*\.[0-9]+|[0-9]+")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_WORDS = re.compile(r"\\text\s*\{([^{}]*)\}")
_STEPS = (1, 10, 2, 11, -1)


def slip(right: str, number: int) -> str:
    """The i-th slip: another number where there is one, otherwise another letter, another word, or one more."""
    step = _STEPS[number % len(_STEPS)]
    if _INTEGER.fullmatch(right) and len(right) < 1000:
        return str(int(right) + step)
    # The first number: later ones may be part of a unit or a base, which not every grader reads. Of an equation, its
    # right side.
    if digits := _NUMBER.search(right, right.rfind("=") + 1) or _NUMBER.search(right):
        return right[: digits.start()] + _moved(digits[0], 3 if step < 0 else step) + right[digits.end() :]
    words = _WORDS.search(right)
    if letter := re.fullmatch(r"\(?([A-Za-z])\)?", words[1].strip() if words else right):
        return right[: right.rindex(letter[1])] + _next(letter[1], number) + right[right.rindex(letter[1]) + 1 :]
    if words:
        return f"{right[: words.start(1)]}not {words[1].strip()}{right[words.end(1) :]}"
    return f"{right} + {number % 5 + 1}" if re.search(r"[\\^_+*/-]", right) else f"not {right}"


def _moved(digits: str, step: int) -> str:
    """A decimal is moved in its leading digit: in its last one it might round to the same."""
    if "." in digits:
        value = Decimal(digits)
        return str(value + Decimal(step).scaleb(value.adjusted() if value else 0))
    head, tail = digits[:-300], digits[-300:]  # Python reads no longer numbers
    return head + str(int(tail) + step).zfill(len(tail))[-len(tail) if head else 0 :]


def next_letter(right: str, number: int) -> str:
    """Another letter of a choice from A to D."""
    letters = re.findall(r"[A-Za-z]", right)
    return _next(letters[-1].upper(), number, "ABCD") if letters else "A"


def _next(letter: str, number: int, letters: str = "abcdefghijklmnopqrstuvwxyz") -> str:
    letters = letters if letter in letters else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[(letters.index(letter) + 1 + number % 3) % len(letters)]
