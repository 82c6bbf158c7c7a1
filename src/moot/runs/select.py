"""Steps and debates of a run by their names: `12`, `10-20`, `12/3`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from moot.errors import ConfigError
from moot.runs.record import Damaged
from moot.runs.run import Run
from moot.tokens.played import PlayedDebate


def pick_steps(run: Run, wanted: str | None) -> list[int]:
    """`12` or `10-20` of the steps that have debates; all of them if nothing is asked for."""
    present = run.steps()
    if not present:
        raise ConfigError(f"{run.path} has no debates yet; a run has them after its first step of self-play")
    if wanted is None:
        return present
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", wanted)
    if not match:
        raise ConfigError(f"steps must be a number or a range like 10-20, got {wanted!r}")
    first, last = int(match[1]), int(match[2] or match[1])
    if not (chosen := [step for step in present if first <= step <= last]):
        raise ConfigError(f"steps {wanted} has no debates; {run.path} has them for steps {present[0]} to {present[-1]}")
    return chosen


def pick_debates(
    run: Run, wanted: Sequence[str], steps: Sequence[int], damaged: list[Damaged], most: int = 20
) -> list[PlayedDebate]:
    """Those asked for, in that order; else the newest ones, oldest first."""
    chosen: list[PlayedDebate] = []
    if not wanted:
        for step in reversed(steps):
            here = list(run.debates([step]))
            damaged += [line for line in here if isinstance(line, Damaged) and line not in damaged]
            chosen = [one for one in here if isinstance(one, PlayedDebate)][: most - len(chosen)] + chosen
            if len(chosen) >= most:
                break
        if not chosen:
            raise ConfigError(f"html: {run.path} has no debate that can be read")
        return chosen
    for name in wanted:
        match = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", name)
        if not match:
            raise ConfigError(f"debates must be named STEP/NUMBER, like 12/3, got {name!r}")
        played = (one for one in run.debates([int(match[1])]) if isinstance(one, PlayedDebate))
        if (same := next((one for one in played if one.number == int(match[2])), None)) is None:
            raise ConfigError(f"debates: {run.path} has no debate {name} that can be read")
        chosen.append(same)
    return chosen
