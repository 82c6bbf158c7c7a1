"""Rounds as a debate needs them: fewer where the answers agree, more while they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.errors import ConfigError
from moot.settings.train import TrainConfig
from moot.training.part import Part


class RoundsAsNeeded(Part):
    """A debate ends once all answers are equal, or has more rounds while they differ. Untried."""

    needs = ("agreement",)

    @dataclass(frozen=True)
    class Settings:
        stop_when_settled: bool = False
        """End a debate after a round in which all agents give one answer. This saves tokens; cons@k and rewards then
        rest on fewer rounds."""
        extra_rounds: Annotated[int, Field(ge=0, le=1000)] = 0
        """Add up to this many rounds while the answers still differ."""

    settings: Settings

    def check(self, config: TrainConfig) -> None:
        if not any(self.debate_settings().values()):
            raise ConfigError(
                "rounds_as_needed does nothing by itself; give stop_when_settled=yes, extra_rounds=1 or both"
            )

    def debate_settings(self) -> Mapping[str, Any]:
        return {"stop_when_settled": self.settings.stop_when_settled, "extra_rounds": self.settings.extra_rounds}
