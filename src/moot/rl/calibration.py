"""How well agents forecast their own success: what they said beside what came. Forecasts that cannot be read are only
counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from moot.debate.forecasts import FORECASTS, About, brier
from moot.tokens.played import PlayedDebate
from moot.util.intervals import RESAMPLES, cautious_intervals

KINDS = FORECASTS["both"]
BINS = 10
Judged = tuple[About, float, bool]
"""What a forecast is about, the chance it gave, and whether it came true."""


def judged(each: PlayedDebate) -> list[Judged]:
    """The forecasts of a debate that can be read and of which it is known what came."""
    known = ((forecast, each.forecast_came(forecast)) for forecast in each.debate.forecasts)
    return [
        (forecast.about, forecast.chance, came)
        for forecast, came in known
        if forecast.chance is not None and came is not None
    ]


def keys(debates: Iterable[PlayedDebate]) -> list[str]:
    """The numbers there are to tell, where anybody was asked."""
    asked = {forecast.about for each in debates for forecast in each.debate.forecasts}
    return ["forecast/readable"] * bool(asked) + [
        f"forecast/{about}_{name}" for about in KINDS if about in asked for name in ("brier", "mean", "came")
    ]


def counts(each: PlayedDebate) -> dict[str, tuple[float, float]]:
    """One debate's share in each number: what was counted, and of how many. Brier score, mean chance and share that
    came true are all over
    the same forecasts, so that the last two can be compared."""
    forecasts, known = each.debate.forecasts, judged(each)
    shares = {
        "forecast/readable": (float(sum(forecast.chance is not None for forecast in forecasts)), float(len(forecasts)))
    }
    for about in KINDS:
        own = [(chance, came) for kind, chance, came in known if kind == about]
        of = float(len(own))
        shares[f"forecast/{about}_brier"] = (sum(brier(chance, came) for chance, came in own), of)
        shares[f"forecast/{about}_mean"] = (sum(chance for chance, _ in own), of)
        shares[f"forecast/{about}_came"] = (float(sum(came for _, came in own)), of)
    return shares


@dataclass(frozen=True)
class Bin:
    """Forecasts of about the same chance."""

    forecast: float
    """Their mean."""
    came: float
    """The share of them that came true, with the 95% interval that every share of the panel has."""
    low: float
    high: float
    of: int


def reliability(debates: Sequence[Sequence[Judged]], about: About, resamples: int = RESAMPLES) -> list[Bin]:
    """By tenths of the chance, those that nobody forecast left out: where a bin's share is its mean forecast, forecasts
    are calibrated.

    `debates` has the forecasts of each debate, because they hang together: one agent wins, and all answer one question.
    """
    said, came, count = (np.zeros((BINS, len(debates))) for _ in range(3))
    for place, own in enumerate(debates):
        for kind, chance, came_true in own:
            if kind == about:
                # A chance is a number of at most nine decimals over 100: what rounding takes from 0.7 must not put it
                # under 0.7.
                tenth = min(int(chance * BINS + 1e-9), BINS - 1)
                said[tenth, place] += chance
                came[tenth, place] += came_true
                count[tenth, place] += 1
    shares = cautious_intervals(list(zip(came, count, strict=True)), resamples=resamples) if debates else []
    bins = zip(shares, said.sum(axis=1), count.sum(axis=1), strict=False)
    return [Bin(float(total / of), share.value, share.low, share.high, int(of)) for share, total, of in bins if share]
