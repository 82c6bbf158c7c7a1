"""Scores of a debate: what its turns are paid, by stream, and what an estimator works on. One shape for every
reward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from moot.debate.types import Question, Vote

Per = Literal["turn", "agent"]
Rows = tuple[tuple[float, ...], ...]
"""A row for each agent: a value for each of its turns, or one for the whole debate."""

EVERY = "every"
"""In `stream_of`, in place of a section: the stream pays for every token of a turn, whatever became of it."""
AGENT = "agent"
"""The stream of a reward per agent."""
TURN = "step"
"""The stream of a reward per turn that pays for every token. Files call it so."""
SECTIONS: Mapping[str, str] = {"solution": "generator", "evaluation": "generator", "comparison": "judge"}
"""Which stream pays for the tokens of a section, unless a reward or a choice says otherwise."""


@dataclass(frozen=True)
class Grades:
    """What a grader found in each turn of a debate, in the order of the turns."""

    answers: tuple[str | None, ...]
    """The final answer, None where there is none (a failed turn, nothing to grade)."""
    correct: tuple[bool, ...]
    same: tuple[int | None, ...]
    """Turns with equal answers carry the same number, None where there is no answer."""
    given_up: int = 0
    """Comparisons that took too long: their answers count as different, unless they are written alike."""
    labelled: tuple[bool, ...] | None = None
    """Whether each turn's answer equals the question's label; None where it has none."""
    checked: bool = False
    """Whether a task's checker said what is correct, so that no right answer need be known."""

    def known(self, question: Question) -> bool:
        """Whether `correct` means something."""
        return self.checked or question.answer is not None


@dataclass(frozen=True)
class Stream:
    """One kind of reward, per agent and turn, or per agent."""

    values: Rows
    """What is reported."""
    to_center: tuple[tuple[float | None, ...], ...]
    """What an estimator subtracts a baseline from; None for a turn that takes no part and has advantage 0 before
    `added`. Of a reward per agent these are the returns."""
    added: Rows
    """Penalties, added after centring."""
    weight: float = 1.0
    lowest: float = 0.0
    """The least that can be paid before penalties, where 1 is the most: -1 for answers under generator_judge."""

    @property
    def totals(self) -> list[float]:
        """What each agent got in all, penalties included."""
        both = zip(self.to_center, self.added, strict=True)
        return [sum((value or 0.0) + extra for value, extra in zip(*rows, strict=True)) for rows in both]


@dataclass(frozen=True)
class Scores:
    """What a debate pays. A reward per agent is one stream, with one value for each agent's whole debate."""

    streams: dict[str, Stream]
    stream_of: Mapping[str, str] = field(default_factory=lambda: SECTIONS)
    """Which stream pays for the tokens of a section; `EVERY` stands for all of a turn."""
    per: Per = "turn"
    votes: tuple[Vote, ...] = ()
    """Those that the reward is made of: by agent where it is per agent, otherwise by the index of the turns they are
    about."""
    lines_invalid: int = 0
    """Per agent, comparisons that are malformed; otherwise, lines of comparison that gave no vote."""
    missing_comparisons: int = 0
    ballots: frozenset[tuple[int, int]] = frozenset()
    """Agent and turn of each ballot that could be read: nothing was generated in it, so means of generator rewards
    leave it out."""

    @property
    def rewards(self) -> tuple[float, ...]:
        """Of a reward per agent: what each is paid, failures apart."""
        return tuple(row[0] for row in self.streams[AGENT].values)

    @property
    def returns(self) -> tuple[float, ...]:
        """What each agent got in all: its reward minus 1 for each failed turn, or the sum of its turns' rewards."""
        return tuple(sum(paid) for paid in zip(*(stream.totals for stream in self.streams.values()), strict=True))

    @property
    def has_signal(self) -> bool:
        """Whether the votes say anything: some turn takes part in centring. With one stream, what takes part must
        differ."""
        rows = (row for stream in self.streams.values() for row in stream.to_center)
        values = {value for row in rows for value in row if value is not None}
        return len(values) > (1 if len(self.streams) == 1 else 0)


def answer_stream(streams: Iterable[str]) -> str:
    """Which of the streams pays for answers."""
    names = list(streams)
    return "generator" if "generator" in names else names[0]
