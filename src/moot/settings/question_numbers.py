"""The numbers of a task's questions that a run asks for: batch after batch, and further ones from behind all batches.
None comes twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from moot.errors import ConfigError

MOST = 10_000_000
"""Of a run's further questions: all their numbers are looked at."""


@dataclass
class Further:
    """The questions debated beyond the batches. A run that is made longer has batches where they stood, and passes over
    them."""

    ranges: list[list[int]] = field(default_factory=list)
    """First number and count, in ascending order."""

    @classmethod
    def from_state(cls, saved: Any) -> Further:
        """As a checkpoint has them."""
        try:
            read = [[int(first), int(count)] for first, count in saved]
        except (TypeError, ValueError, OverflowError):
            read = [[-1, -1]]
        if any(first < 0 or count < 0 for first, count in read) or sum(count for _, count in read) > MOST:
            raise ConfigError(f"a checkpoint's further questions are damaged: {saved!r:.60}; name another step")
        return cls(read)

    def number(self, place: int) -> int:
        """The number of the question in that place, if there were no further ones."""
        for first, count in self.ranges:
            place += count if place >= first else 0
        return place

    def take(self, behind: int, count: int) -> list[int]:
        """The next `count` numbers, none of which a batch that ends at `behind` will ask for."""
        first = max([self.number(behind), *(begin + length for begin, length in self.ranges)])
        if self.ranges and sum(self.ranges[-1]) == first:
            self.ranges[-1][1] += count
        else:
            self.ranges.append([first, count])
        return list(range(first, first + count))

    @property
    def numbers(self) -> Sequence[int]:
        return [number for first, count in self.ranges for number in range(first, first + count)]
