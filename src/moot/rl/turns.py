"""The tokens of a turn, and which section each of them belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from moot.debate.types import Parsed, ParseFailure
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
    """False for a turn of somebody else's: a past self, another model. It is judged and shown like any other, and never trained on."""
    inserted: Flags | None = None
    """Which tokens were put there by the rules: tags that are given, requests for the next section. They are observations: no credit, no
    logprob, never counted as sampled. None where all were sampled."""

    counted: int | None = None
    """How many tokens a server says that it wrote, where the tokens themselves are not here."""

    @property
    def sampled(self) -> Flags:
        """Which tokens the model chose."""
        return np.ones(len(self.tokens), dtype=bool) if self.inserted is None else ~self.inserted

    @property
    def count(self) -> int:
        """How many tokens were sampled, as far as anybody says."""
        if self.counted is not None:
            return self.counted
        return len(self.tokens) if self.inserted is None else int(self.sampled.sum())


def turn_in_text(counted: int | None = None, stop_reason: Literal["stop", "length"] = "stop") -> SampledTurn:
    """A turn of somebody who speaks in text alone: a chat server, a script, a person. Nobody is trained on it."""
    nothing, no_logprobs = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
    return SampledTurn(nothing, False, nothing, no_logprobs, nothing, stop_reason=stop_reason, learns=False, counted=counted)


@dataclass(frozen=True)
class PlainAnswer:
    """What was said to a plain question, outside any debate."""

    text: str
    stop_reason: Literal["stop", "length"]
    tokens: int
    """How many were written; 0 where a server does not say."""


def tokens_by_section(parsed: Parsed | ParseFailure, starts: NDArray[np.int32]) -> Mapping[str, Flags]:
    """Which tokens of a turn belong to which section: those whose first character stands in it; what follows the last goes with it."""
    if isinstance(parsed, ParseFailure) or not parsed.spans:
        return {}
    spans = sorted(parsed.spans.items(), key=lambda item: item[1])
    begins = np.array([begin for _, (begin, _) in spans], dtype=np.int64)
    ends = np.array([end for _, (_, end) in spans], dtype=np.int64)
    ends[-1] = np.iinfo(np.int64).max
    at = np.searchsorted(begins, starts, side="right") - 1
    inside = (at >= 0) & (starts < ends[np.maximum(at, 0)])
    return {name: inside & (at == i) for i, (name, _) in enumerate(spans)}
