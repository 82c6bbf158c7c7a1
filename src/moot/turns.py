"""The tokens of one turn, the sections they stand in, and what each of them is taught.

numpy is imported where tokens are: `moot score` has none, and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

from moot.debate.scoring import Scoring
from moot.debate.types import Parsed, ParseFailure, Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from moot.engine.protocol import Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class SampledTurn:
    """The tokens of one turn, beside its text in the debate."""

    prompt: Ints
    """The whole prompt, or only what was new if `extends`."""
    extends: bool
    """The prompt is the agent's last one, what it sampled then, and this."""
    tokens: Ints
    logprobs: Floats
    starts: NDArray[np.int32]
    """The character of the turn's text that each token starts in."""
    temperature: float = 1.0
    stop_reason: Literal["stop", "length"] = "stop"
    learns: bool = True
    """False for a turn of somebody else's: a past self, another model. It is judged and shown like any other, and never trained on."""


@cache
def text_only(stop_reason: Literal["stop", "length"] = "stop") -> SampledTurn:
    """A turn whose tokens nobody knows: of a speaker that answers in text, or of a record without them."""
    import numpy as np

    nothing = np.zeros(0, dtype=np.int32)
    return SampledTurn(nothing, False, nothing, np.zeros(0, dtype=np.float32), nothing, stop_reason=stop_reason, learns=False)


def section_slices(parsed: Parsed | ParseFailure, starts: NDArray[np.int32]) -> Mapping[str, slice]:
    """Which tokens of a turn belong to which section: those whose first character stands in it; what follows the last goes with it."""
    import numpy as np

    if isinstance(parsed, ParseFailure):
        return {}
    slices: dict[str, slice] = {}
    last = list(parsed.spans)[-1]
    for name, (begin, end) in parsed.spans.items():
        a = int(np.searchsorted(starts, begin))
        b = len(starts) if name == last else int(np.searchsorted(starts, end))
        slices[name] = slice(a, b)
    return slices


# What is taught


@dataclass(frozen=True)
class AgentAdvantages:
    """One number per agent, for every token it sampled."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class StepAdvantages:
    """By stream, per agent and step."""

    streams: dict[str, tuple[tuple[float, ...], ...]]
    stream_of: Mapping[str, str] = field(default_factory=lambda: Scoring().stream_of)
    """Which stream pays for the tokens of a section. The stream `step` pays for all of them."""


Advantages = AgentAdvantages | StepAdvantages


def carries_gradient(advantages: Advantages) -> bool:
    if isinstance(advantages, AgentAdvantages):
        return any(advantages.values)
    return any(value for rows in advantages.streams.values() for row in rows for value in row)


def credit(turn: Turn, sampled: SampledTurn, step: int, advantages: Advantages) -> Floats:
    """The advantage of each sampled token of one turn."""
    import numpy as np

    count = len(sampled.tokens)
    if isinstance(advantages, AgentAdvantages):
        return np.full(count, advantages.values[turn.agent], dtype=np.float32)
    if "step" in advantages.streams:
        return np.full(count, advantages.streams["step"][turn.agent][step], dtype=np.float32)
    if turn.failed:
        return np.full(count, advantages.streams["generator"][turn.agent][step], dtype=np.float32)
    values = np.zeros(count, dtype=np.float32)
    for name, tokens in section_slices(turn.parsed, sampled.starts).items():
        # In a ballot there is no answer: all of it is judging.
        stream = "judge" if turn.ballot else advantages.stream_of.get(name)
        if stream in advantages.streams:
            values[tokens] = advantages.streams[stream][turn.agent][step]
    return values
