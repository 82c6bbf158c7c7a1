"""How the learning rate rises and falls over a run, as the part `lr_schedule` sets it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.settings.part_names import read_settings, split_part

NAME = "lr_schedule"


@dataclass(frozen=True)
class RateSchedule:
    shape: Literal["constant", "linear", "cosine"] = "constant"
    """How the rate falls to 0 over the run."""
    warmup: Annotated[int, Field(ge=0)] = 0
    """Steps over which the rate rises to its value. Adam's first steps are as long as later ones, and rest on the least
    data."""


def rate_settings(parts: Iterable[str]) -> RateSchedule:
    """As one of the parts sets them, or a rate that stays."""
    named = (text for text in parts if split_part(text)[0] == NAME)
    return next((read_settings(RateSchedule, text) for text in named), RateSchedule())
