"""What an agent forecasts of its own answer when all is said: how likely it is to win the vote, and how likely it is to
be right.

A forecast is a short exchange after an agent's last turn and no turn of the debate: nobody else reads it, no vote is
about it. Its
tokens are taught by their own score alone. The Brier score is proper: nobody does better than by saying what they
believe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from moot.debate.sections import content_of

About = Literal["win", "right"]
FORECASTS: dict[str, tuple[About, ...]] = {"none": (), "win": ("win",), "right": ("right",), "both": ("win", "right")}
"""What each choice of `forecast` asks for, in order."""
FORECAST = "forecast"
"""The contract of such an exchange, and its section: plain text, no tags."""
WORDS: dict[About, str] = {"win": "forecast: wins", "right": "forecast: is right"}
"""What a reader is told that a forecast is about."""

_PERCENT = r"([0-9]{1,3}(?:\.[0-9]{1,9})?)(?:\s?%|\s?percent\b|\s?(?:/|out of)\s?100\b)?"
_BEGINS = re.compile(rf"[\s*_`\"']*+{_PERCENT}[*_`\"']*+(?=\s*+\Z|\s*?\n|[.,;:!](?![0-9]))", re.A)
"""A number, and then the end of a line or of a sentence. `29 - 19 = 10` begins with one too, and is no forecast."""
_OUT_OF_100 = re.compile(r"\s?(?:/|out of)\s?100\b", re.A)
_DIGIT = re.compile(r"[0-9]", re.A)


@dataclass(frozen=True)
class Forecast:
    agent: int
    about: About
    text: str
    """The reply as it was said."""
    chance: float | None
    """From 0 to 1; None where the reply cannot be read."""

    @property
    def percent(self) -> str:
        return "unreadable" if self.chance is None else f"{100 * self.chance:g}%"


def read_chance(reply: str) -> float | None:
    """The number that a reply begins with, or else the only one in it, if it lies in 0 to 100. A per cent sign may
    follow."""
    said = content_of(reply)[1]
    begins, words = _BEGINS.match(said), [word for word in _OUT_OF_100.sub("", said).split() if _DIGIT.search(word)]
    number = begins[1] if begins else words[0].strip("*_`\"'()%.,;:!") if len(words) == 1 else ""
    percent = float(number) if re.fullmatch(_PERCENT, number) else -1.0
    # Nobody can tell whether 0.7 is a chance or per cent.
    return percent / 100 if percent == 0 or 1 <= percent <= 100 else None


def brier(chance: float, outcome: bool) -> float:
    """The squared distance of a forecast from what came: 0 is perfect, 1 the worst, 1/4 what saying 50 gets."""
    return (chance - outcome) ** 2


UNREADABLE = 1.0
"""The score of a forecast that cannot be read: as bad as the worst one that can."""


def advantage(chance: float | None, outcome: bool | None) -> float:
    """What a forecast's tokens are taught: 1/4 minus its Brier score, so that saying 50 gets 0. Nothing where nobody
    knows what came."""
    if outcome is None:
        return 0.0
    return 0.25 - (UNREADABLE if chance is None else brier(chance, outcome))


def chances(forecasts: Sequence[Forecast], about: About) -> dict[int, float | None]:
    """By agent, those about winning, or about being right."""
    return {each.agent: each.chance for each in forecasts if each.about == about}
