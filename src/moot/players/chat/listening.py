"""Speakers that are heard while they speak, and say what it cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moot.debate.types import Observation, Said, Turn


class Listener:
    """Hears a debate as it happens. This one does nothing with it."""

    def began(self, agent: int, round: int) -> None:
        """An agent is about to speak."""

    def heard(self, agent: int, piece: str) -> None:
        """A piece of what it says."""

    def retried(self, agent: int, why: str, wait_s: float) -> None:
        """What it said in this turn does not count; it is asked anew."""

    def said(self, turn: Turn) -> None:
        """The whole turn."""


class CountedSpeaker(Protocol):
    """One seat of one debate, and what its turns cost."""

    spent: tuple[int | None, int | None]
    """Tokens read and written for what it said last, None where nobody says."""

    async def __call__(self, observation: Observation) -> Said: ...


Casting = Callable[[str, int, Listener], CountedSpeaker]
"""(id of the question, seat) -> who speaks there, and tells the listener what it says on the way."""
