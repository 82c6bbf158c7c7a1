"""Which of a run's checkpoints is the best, by the evaluations during training.

Each row of an evaluation names the best step so far as `test/best_step`; retention never deletes that checkpoint, and
`RUN@best` means it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moot.runs.run import measured
from moot.settings.train import TrainConfig
from moot.tasks.task import Task

NAME = "test/best_step"
UNRANKED = (
    "none is the best: no right answer is known, and agreement ranks only where the reward compares answers by a "
    "grader that the task names (FILE:grader=number); the last step is the result"
)


def ranking(config: TrainConfig, task: Task) -> str:
    """What ranks evaluations. Agreement stands in for accuracy only where the reward itself compares answers, and
    these can be compared: a number in a poem is no answer."""
    compared = config.protocol.scoring.rule.grades == "same" and task.comparable
    return "accuracy or agreement" if compared else "accuracy"


def held_out_score(row: Mapping[str, Any], by: str = "") -> tuple[str, float] | None:
    """The accuracy of an evaluation's debates, or how far their agents agree; None where neither ranks it."""
    accuracy = measured(row, "test_*/correct")
    if accuracy is not None:
        return "accuracy", accuracy
    if by == "accuracy":
        return None
    share = row.get("trust/plurality_share")
    return None if share is None else ("agreement", share)


def better_step(rows: Sequence[Mapping[str, Any]], best: int | None, row: Mapping[str, Any], by: str) -> int | None:
    """`best`, or the step of the new `row` if that is higher. Of equals the earlier one stays: it moved less. A best
    that another rule named, as an older moot had it, is none."""
    standing = _evaluation(rows, best)
    new, old = held_out_score(row, by), held_out_score(standing, by) if standing else None
    return int(row["step"]) if new is not None and (old is None or new[1] > old[1]) else best if old else None


def nothing_right(rows: Sequence[Mapping[str, Any]], best: int | None) -> bool:
    """Whether even the best came to 0: then no step is better than another, and only the earliest has the name."""
    row = _evaluation(rows, best)
    found = held_out_score(row) if row else None
    return found is not None and found[1] == 0


def told_best(rows: Sequence[Mapping[str, Any]], best: int | None) -> str:
    """`step 30 (held-out accuracy 41%)`; empty where there is none."""
    row = _evaluation(rows, best)
    found = held_out_score(row) if row else None
    return f"step {best} (held-out {found[0]} {found[1]:.0%})" if found else ""


def _evaluation(rows: Sequence[Mapping[str, Any]], step: int | None) -> Mapping[str, Any] | None:
    return next((row for row in rows if row["phase"] == "eval" and row["step"] == step), None)
