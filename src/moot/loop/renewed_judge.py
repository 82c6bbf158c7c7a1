"""`judge renewed`: a frozen copy of the policy judges without a seat, and is replaced only by one that judges no worse.

A judge that moves with the policy rewards what the policy has come to like; one that never moves stays as weak as the start. So at each
evaluation the policy takes the judge's place if the agents' votes on held-out debates prefer right answers at least as often as
they did when the present judge was taken. Where that cannot be measured, the judge stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moot.engine.protocol import Sampler
from moot.loop.state import JudgeTaken, Loop
from moot.loop.still import weights_of_step
from moot.rl.config import RENEWED
from moot.rl.metrics import Metrics

STEP, ACCURACY = "recipe/judge_step", "trust/judge_held_out"


def is_no_worse(new: float | None, standing: float | None) -> bool:
    """Level is no worse; what was not measured is not known to be."""
    return new is not None and (standing is None or new >= standing)


def renew_judge(loop: Loop, evaluated: Mapping[str, Any], sampler: Sampler) -> Metrics:
    """Called with each evaluation after the warm start, whose weights `sampler` has; the first one's are the first judge."""
    if loop.config.recipe.judge != RENEWED:
        return {}
    accuracy = evaluated["trust/judge_accuracy"]
    loop.judge_taken = loop.judge_taken or judge_in(loop.run.metrics())  # a run that was cut off before this evaluation has one
    if loop.judge_taken is None or is_no_worse(accuracy, loop.judge_taken.accuracy):
        loop.judge, loop.judge_taken = loop.guest(sampler), JudgeTaken(int(evaluated["step"]), accuracy)
    return judge_metrics(loop)


def judge_metrics(loop: Loop) -> Metrics:
    taken = loop.judge_taken
    return {} if taken is None else {STEP: taken.step, ACCURACY: taken.accuracy}


def judge_in(rows: list[dict[str, Any]]) -> JudgeTaken | None:
    """Whom the evaluations of a run that continues have left in place."""
    row: dict[str, Any] = next((row for row in reversed(rows) if row["phase"] == "eval" and STEP in row), {})
    return JudgeTaken(int(row[STEP]), row[ACCURACY]) if row else None


async def seat_judge(loop: Loop, step: int, sampler: Sampler) -> None:
    """As self-play begins or continues at `step`, with the policy as it is then."""
    if loop.config.recipe.judge != RENEWED or loop.judge is not None:
        return
    loop.judge_taken = loop.judge_taken or judge_in(loop.run.metrics()) or JudgeTaken(loop.config.warm_steps, None)
    taken = loop.judge_taken.step
    loop.judge = loop.guest(sampler if taken == step else await weights_of_step(loop, taken, f"judge {RENEWED}"))
