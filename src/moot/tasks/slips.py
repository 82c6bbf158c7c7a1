"""Slips planted into solutions: the result of one calculation is changed and carried through to the final answer.

A judge learns from them without labels: whatever the solution was worth, the one with the slip is wrong where it was
right. Later calculations with a changed number are done anew, other mentions of it are replaced. Where that cannot be
done for certain there is no slip: the old result stands earlier in the text, a later equation cannot be read, or a
result has no short way to be written.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from moot.tasks.answers import answer_in
from moot.tasks.expressions import parsed, value
from moot.tasks.graders import number as same_number

LONGEST = 8000
"""Characters of a solution that is read at all."""
TRIES = 8
"""Calculations that are tried, at most."""
STEPS = (1, -1, 2, -2, 10, -10, 3, 5)
PLACES = 4
"""After the decimal point, of a result that is written."""
_FIGURE = r"[0-9]{1,15}+(?![0-9])(?:,[0-9]{3}(?![0-9])){0,5}+(?:\.[0-9]{1,9}+(?![0-9]))?+"
_ATOM = rf"(?:\\boxed\{{\s*)?(?:\\?\$)?{_FIGURE}(?:\s*\}})?"
_OPERATOR = r"(?:[-+*/×·⋅÷−]|\\(?:times|cdot|div)(?![A-Za-z]))"
_SIDE = rf"(?:\(\s*){{0,5}}{_ATOM}(?:[\s)]*{_OPERATOR}[\s(]*{_ATOM}){{0,20}}+\)*"
_EQUATION = re.compile(rf"{_SIDE}(?:\s*=\s*{_SIDE})+")
_SINGLE = re.compile(rf"\s*{_ATOM}\s*")
_CALCULATION = re.compile(rf"[\s(]*{_ATOM}\s*{_OPERATOR}\s*{_ATOM}[\s)]*")
_NUMBER = re.compile(rf"(?<![\w.]){_FIGURE}(?!(?:st|nd|rd|th)\b)")
_NAME = re.compile(r"(?im)^\W*[0-9]+[.):](?=\s)|\bstep\s+[0-9]+")
"""Numbers that count lines and steps: no quantities."""
_JOINED = re.compile(rf"[0-9.,]\Z|(?:[%^]|{_OPERATOR})[\s$(]*\Z|(?<![A-Za-z\s])\s*=[\s$(]*\Z")
"""Before an equation: it would be part of a longer one. A name and = may stand there."""
_CLAUSE = re.compile(r"[\n=:;]|\.(?![0-9])")
_JOINS = re.compile(rf"[\s$)]*(?:[=%^]|{_OPERATOR})")


@dataclass(frozen=True)
class Slip:
    text: str
    """The whole solution, with the slip."""
    at: int
    """Where the changed result begins: all before it is as it was."""
    result: str
    """What stands there now."""
    answer: str
    """What the solution now ends in."""


@dataclass(frozen=True)
class _Side:
    """One side of an equation, and where it stands in the text."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def single(self) -> bool:
        return _SINGLE.fullmatch(self.text) is not None

    @property
    def value(self) -> Fraction | None:
        bare = re.sub(r"\\boxed\{|\\\$|[{},]", "", self.text).strip()
        # A parenthesis may stand around the whole equation.
        extra = bare.count("(") - bare.count(")")
        bare = bare.removeprefix("(" * extra) if extra > 0 else bare.removesuffix(")" * -extra)
        expression = parsed(bare)
        return None if expression is None else value(expression)


def plant(solution: str, seed: int, question: str = "") -> Slip | None:
    """A slip in one of the solution's calculations, drawn by the seed; None where none can be carried through."""
    rng = random.Random(f"{seed}/{solution}")
    results = list(_results(solution, question)) if len(solution) <= LONGEST else []
    rng.shuffle(results)
    known = _amounts(f"{question} {solution}")
    for sides, place in results[:TRIES]:
        for step in rng.sample(STEPS, len(STEPS)):
            old = sides[place].value
            assert old is not None
            new = old + step * (1 if old.denominator == 1 else Fraction(1, 10))
            if new > 0 and new not in known and (slip := _planted(solution, question, sides, place, new)):
                return slip
    return None


def _results(solution: str, question: str) -> Iterator[tuple[list[_Side], int]]:
    """Right calculations `a op b = c` where c is said for the first time: the equation, and which side c is."""
    asked, first = _amounts(question), dict[Fraction, int]()
    for figure in _NUMBER.finditer(solution):
        first.setdefault(_amount(figure[0]), figure.start())
    for sides in _equations(solution):
        for place, (left, right) in enumerate(itertools.pairwise(sides), 1):
            calculated = left.value if right.single and _CALCULATION.fullmatch(left.text) else None
            if calculated is None or calculated != right.value or calculated in asked:
                continue
            if first.get(calculated, 0) >= right.start:
                yield sides, place


def _equations(text: str) -> Iterator[list[_Side]]:
    """Those that can be read whole."""
    for match in _EQUATION.finditer(text):
        if _JOINED.search(text[max(0, match.start() - 40) : match.start()]) or _JOINS.match(text, match.end()):
            continue
        sides, start = [], match.start()
        for side in match[0].split("="):
            sides.append(_Side(start, side))
            start += len(side) + 1
        yield sides


def _planted(solution: str, question: str, sides: list[_Side], place: int, new: Fraction) -> Slip | None:
    result = sides[place]
    try:
        carrying = _Carrying(_amounts(f"{question} {solution[: result.start]}"))
        written = carrying.following(sides[place:], new)
        rest = carrying.through(solution, sides[-1].end)
    except _LostError:
        return None
    text = solution[: result.start] + written + rest
    before, now = answer_in(solution), answer_in(text)
    if before is None or now is None or before == now or same_number(before, now):
        return None
    first = _NUMBER.search(text, result.start)
    assert first is not None
    return Slip(text, first.start(), first[0], now)


class _LostError(Exception):
    """The slip cannot be carried through."""


class _Carrying:
    """What became of each number so far, from left to right."""

    def __init__(self, unchanged: set[Fraction]) -> None:
        self.changed: dict[Fraction, Fraction] = {}
        self.unchanged = unchanged
        """Said, and still what they were: a number cannot stand for another from here on."""

    def through(self, solution: str, start: int) -> str:
        names = {at for name in _NAME.finditer(solution) for at in range(*name.span())}
        pieces = []
        for sides in _equations(solution):
            if sides[0].start >= start:
                pieces += [self.prose(solution, start, sides[0].start, names), self.equation(sides)]
                start = sides[-1].end
        return "".join([*pieces, self.prose(solution, start, len(solution), names)])

    def prose(self, solution: str, start: int, end: int, names: set[int]) -> str:
        for sign in re.finditer("=", solution[start:end]):
            said = _CLAUSE.split(solution[: start + sign.start()][-200:])[-1]
            if _amounts(said) & self.changed.keys():  # a calculation that cannot be read
                raise _LostError

        def mentioned(figure: re.Match[str]) -> str:
            return figure[0] if start + figure.start() in names else self.mention(figure[0])

        return _NUMBER.sub(mentioned, solution[start:end])

    def mention(self, figure: str) -> str:
        amount = _amount(figure)
        if amount in self.changed:
            return _written(self.changed[amount], figure)
        self.unchanged.add(amount)
        return figure

    def equation(self, sides: list[_Side]) -> str:
        """Done anew where an operand has changed."""
        if not self.changed.keys() & {amount for side in sides for amount in _amounts(side.text)}:
            return "=".join(_NUMBER.sub(lambda figure: self.mention(figure[0]), side.text) for side in sides)
        first, old = _NUMBER.sub(lambda figure: self.mention(figure[0]), sides[0].text), sides[0].value
        new = _Side(0, first).value
        if old is None or new is None or any(side.value != old for side in sides):
            raise _LostError
        return "=".join([first, self.following(sides[1:], new)])

    def following(self, sides: list[_Side], new: Fraction) -> str:
        """The sides of an equation that now comes to `new`: results are written anew, calculations must come to it."""
        written = []
        for side in sides:
            old = side.value
            if side.single and old is not None:
                self.change(old, new)
                written.append(_NUMBER.sub(lambda figure: _written(new, figure[0]), side.text))
            else:
                written.append(_NUMBER.sub(lambda figure: self.mention(figure[0]), side.text))
                if old is None or _Side(0, written[-1]).value != new:
                    raise _LostError
        return "=".join(written)

    def change(self, old: Fraction, new: Fraction) -> None:
        """One number cannot have become two, nor be what it was in one place and something else in another."""
        if self.changed.get(old, old if old in self.unchanged else new) != new:
            raise _LostError
        if old != new:
            self.changed[old] = new
        else:
            self.unchanged.add(old)


def _amount(figure: str) -> Fraction:
    return Fraction(figure.replace(",", ""))


def _amounts(text: str) -> set[Fraction]:
    return {_amount(figure) for figure in _NUMBER.findall(_NAME.sub(" ", text))}


def _written(amount: Fraction, like: str) -> str:
    """As the number was written that stood there: its commas, and its decimals where they are enough."""
    for places in (len(like.partition(".")[2]), *range(1, PLACES + 1)):
        if amount >= 0 and (amount * 10**places).denominator == 1:
            return f"{Decimal(amount.numerator) / amount.denominator:{',' if ',' in like else ''}.{places}f}"
    raise _LostError
