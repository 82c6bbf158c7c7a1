"""The trust panel with its intervals, from the debates of a run's last steps: what the page may claim, and what it may
not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from moot.page.index import lines, stamps
from moot.rl.alarms import WINDOW
from moot.rl.trust import LESS_HALF, MEANS, Share, counts
from moot.runs.record import read_line
from moot.tokens.played import PlayedDebate
from moot.util.intervals import cautious_interval, interval, wilson

MOST = 200
"""Debates of a step that are counted: each takes about two milliseconds, and somebody waits for the page."""
DRAWS = 2000
"""Of a bootstrap, for the same reason."""
FEWEST = 10
"""Debates without which a mean that is not a share has no interval."""
GAP = "trust/winner_gap"
"""How much more often the winner is right than the mean agent of the same debates."""


def measured(run: Path, last: int | None) -> dict[str, Any]:
    """By key of the panel: value, low, high, and of how many (votes, pairs or debates). Steps after `last` are still
    being written."""
    known = stamps(run)
    steps = sorted(step for step in known if last is None or step <= last)[-WINDOW:]
    counted = [shares for step in steps for shares in _step(run, step, known[step])]
    keys = [*counted[0], GAP] if counted else []
    panel = {key: about for key in keys if (about := _about(key, counted))}
    return {"steps": steps, "debates": len(counted), "panel": panel}


@lru_cache(maxsize=400)
def _step(run: Path, step: int, stamp: str) -> list[dict[str, Share]]:
    """The stamp says that the file is still the same."""
    debates = (read_line(line, step, place) for place, (_, line) in enumerate(islice(lines(run, step), MOST)))
    # One that cannot be read, or that the engine lost, has nothing to count.
    return [counts(played) for played in debates if isinstance(played, PlayedDebate) and played.error is None]


def _about(key: str, counted: Sequence[Mapping[str, Share]]) -> dict[str, Any] | None:
    """The wider of a bootstrap over debates and of Wilson's over votes: the votes of one debate hang together, and a
    few prove little."""
    top, bottom = zip(*(_gap(shares) if key == GAP else shares[key] for shares in counted), strict=True)
    share = key not in MEANS and key != GAP
    found = cautious_interval(top, bottom, resamples=DRAWS) if share else interval(top, bottom, resamples=DRAWS)
    if found is None:
        return None
    trials = round(sum(bottom))
    if key in MEANS and sum(votes > 0 for votes in bottom) < FEWEST:
        found = found.wider(-math.inf, math.inf)
    elif key == GAP:
        # The gap is the winners' share seen from the mean agent's.
        hits = round(sum(shares["trust/winner_correct"][0] for shares in counted))
        below = hits / trials - found.value
        low, high = wilson(hits, trials)
        found = found.wider(low - below, high - below)
    less = 0.5 * (key in LESS_HALF)
    return {"value": found.value - less, "low": found.low - less, "high": found.high - less, "of": trials}


def _gap(shares: Mapping[str, Share]) -> Share:
    won, debates = shares["trust/winner_correct"]
    return won - shares["trust/mean_accuracy"][0] * debates, debates
