"""The tokens of one turn, the sections they stand in, and what each of them is taught.

numpy is imported where tokens are: `moot score` has none, and waits for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

from moot.debate.scores import AGENT, EVERY, SECTIONS, Per, Rows, answer_stream
from moot.debate.state import Debate
from moot.debate.types import Parsed, ParseFailure, Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from moot.engine.protocol import Floats, Ints

    Flags = NDArray[np.bool_]


NOWHERE = -1
"""In `starts`, for a token that is no part of the turn's text: a request between two parts of a turn."""


@dataclass(frozen=True, eq=False, repr=False)
class SampledTurn:
    """The tokens of one turn, beside its text in the debate."""

    prompt: Ints
    """The whole prompt, or only what was new if `extends`."""
    extends: bool
    """The prompt is the agent's last one, what it sampled then, and this."""
    tokens: Ints
    """What was sampled, and between its parts what was inserted."""
    logprobs: Floats
    """0 where a token was inserted."""
    starts: NDArray[np.int32]
    """The character of the turn's text that each token starts in; `NOWHERE` for one that is no part of it."""
    temperature: float = 1.0
    stop_reason: Literal["stop", "length"] = "stop"
    learns: bool = True
    """False for a turn of somebody else's: a past self, another model. It is judged and shown like any other, and
    never trained on."""
    inserted: Flags | None = None
    """Which tokens were put there by the rules: tags that are given, requests for the next section. They are
    observations: no credit, no logprob, never counted as sampled. None where all were sampled."""
    counted: int | None = None
    """How many tokens a server says that it wrote, where the tokens themselves are not here."""

    @property
    def sampled(self) -> Flags:
        """Which tokens the model chose."""
        import numpy as np

        return np.ones(len(self.tokens), dtype=bool) if self.inserted is None else ~self.inserted

    @property
    def count(self) -> int:
        """How many tokens were sampled, as far as anybody says."""
        if self.counted is not None:
            return self.counted
        return len(self.tokens) if self.inserted is None else int(self.sampled.sum())


@cache
def turn_in_text(counted: int | None = None, stop_reason: Literal["stop", "length"] = "stop") -> SampledTurn:
    """A turn whose tokens nobody knows: of somebody who speaks in text alone (a chat server, a script, a person), or
    of a record without them. Nobody is trained on it."""
    import numpy as np

    nothing, no_logprobs = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
    return SampledTurn(
        nothing, False, nothing, no_logprobs, nothing, stop_reason=stop_reason, learns=False, counted=counted
    )


@dataclass(frozen=True)
class PlainAnswer:
    """What was said to a plain question, outside any debate."""

    text: str
    stop_reason: Literal["stop", "length"]
    tokens: int
    """How many were written; 0 where a server does not say."""


def tokens_by_section(parsed: Parsed | ParseFailure, starts: NDArray[np.int32]) -> Mapping[str, Flags]:
    """Which tokens of a turn belong to which section: those whose first character stands in it; what follows the last
    goes with it."""
    import numpy as np

    if isinstance(parsed, ParseFailure) or not parsed.spans:
        return {}
    spans = sorted(parsed.spans.items(), key=lambda item: item[1])
    begins = np.array([begin for _, (begin, _) in spans], dtype=np.int64)
    ends = np.array([end for _, (_, end) in spans], dtype=np.int64)
    ends[-1] = np.iinfo(np.int64).max
    at = np.searchsorted(begins, starts, side="right") - 1
    inside = (at >= 0) & (starts < ends[np.maximum(at, 0)])
    return {name: inside & (at == i) for i, (name, _) in enumerate(spans)}


# What is taught


@dataclass(frozen=True)
class Advantages:
    """By stream, per agent and turn; one number per agent where the reward is per agent."""

    streams: dict[str, Rows]
    stream_of: Mapping[str, str] = field(default_factory=lambda: SECTIONS)
    """Which stream pays for the tokens of a section; `EVERY` stands for all of a turn."""
    per: Per = "turn"

    @classmethod
    def per_agent(cls, values: Sequence[float]) -> Advantages:
        """One number per agent, for every token it sampled."""
        return cls({AGENT: tuple((value,) for value in values)}, {EVERY: AGENT}, "agent")

    @property
    def values(self) -> tuple[float, ...]:
        """Of a reward per agent: the number of each."""
        return tuple(row[0] for row in self.streams[AGENT])

    def at(self, stream: str, agent: int, turn: int) -> float:
        """What an agent's turn gets of a stream; `turn` counts the agent's own, from 0."""
        return self.streams[stream][agent][turn if self.per == "turn" else 0]


def carries_gradient(advantages: Advantages) -> bool:
    return any(value for rows in advantages.streams.values() for row in rows for value in row)


def paid_by(turn: Turn, section: str, stream_of: Mapping[str, str]) -> str | None:
    """The stream that pays for the tokens of a section. In a ballot there is no answer: all of it is judging."""
    return stream_of.get(EVERY) or ("judge" if turn.ballot else stream_of.get(section))


def credit(turn: Turn, sampled: SampledTurn, number: int, advantages: Advantages) -> Floats:
    """The advantage of each token of one turn, its agent's `number`-th; 0 for those that were inserted."""
    import numpy as np

    return (_credit(turn, sampled, number, advantages) * sampled.sampled).astype(np.float32)


def credits(debate: Debate, sampled: Sequence[SampledTurn], advantages: Advantages) -> list[Floats]:
    """What each token of a debate is taught, turn by turn in the debate's order."""
    steps = debate.turn_numbers()
    return [credit(debate.turns[i], turn, steps[i], advantages) for i, turn in enumerate(sampled)]


_SOLUTION = re.compile(r"<solution>.*?</solution>", re.I | re.A | re.S)


def _broken(turn: Turn, sampled: SampledTurn) -> Flags:
    """The tokens that a failed turn failed by. Where the model writes the tags, all of them: they are one reply.
    Spoken in parts, a turn fails only by its solution (empty, or cut at its limit), so nothing that was judged
    before it is blamed."""
    import numpy as np

    where = None if sampled.inserted is None else _SOLUTION.search(turn.text)
    if where is None:
        return np.ones(len(sampled.tokens), dtype=bool)
    return (sampled.starts >= where.start()) & (sampled.starts < where.end())


def _credit(turn: Turn, sampled: SampledTurn, number: int, advantages: Advantages) -> Floats:
    import numpy as np

    count = len(sampled.tokens)
    if (whole := advantages.stream_of.get(EVERY)) is not None:
        return np.full(count, advantages.at(whole, turn.agent, number), dtype=np.float32)
    values = np.zeros(count, dtype=np.float32)
    if turn.failed:
        values[_broken(turn, sampled)] = advantages.at(answer_stream(advantages.streams), turn.agent, number)
        return values
    for name, tokens in tokens_by_section(turn.parsed, sampled.starts).items():
        stream = paid_by(turn, name, advantages.stream_of)
        if stream in advantages.streams:
            values[tokens] = advantages.at(stream, turn.agent, number)
    return values
