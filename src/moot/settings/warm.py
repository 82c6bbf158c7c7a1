"""How the supervised start teaches, as the part `warm_start` sets it. How long it is, `warm_questions` says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.settings.part_names import read_settings, split_part

NAME = "warm_start"


@dataclass(frozen=True)
class WarmStart:
    batch_size: Annotated[int, Field(ge=1)] = 8
    """Questions per optimizer step."""
    learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-4
    """Learning rate of Adam."""
    wrong: Literal["near_miss", "sampled", "none"] = "near_miss"
    """Where the wrong answers to be judged come from: near_miss changes the right one a little; sampled asks the
    untrained model, which shows judges the mistakes they will really meet; with none, right solutions alone are
    learned, and no judging."""
    solutions: Literal["task", "own"] = "task"
    """Where the right ones come from: the task's worked solutions, or own, what the untrained model gets right by
    itself (without known answers, what most of its answers agree on). With own, its mistakes are the wrong ones, and
    the phase ends when the form is learned."""


def warm_settings(parts: Iterable[str]) -> WarmStart:
    """As one of the parts sets them, or the usual ones."""
    named = (text for text in parts if split_part(text)[0] == NAME)
    return next((read_settings(WarmStart, text) for text in named), WarmStart())
