"""An outside judge for a share of the debates, for when it is expensive or is to be phased out."""

from __future__ import annotations

import random
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.errors import ConfigError
from moot.rl.rollout import Judges
from moot.rl.schedules import scheduled
from moot.settings.part_names import split_part
from moot.settings.train import Schedule, TrainConfig
from moot.training.part import Part


class JudgeShare(Part):
    """The outside judge is asked about a share of the debates, which may fall to 0 over the run. Untried."""

    @dataclass(frozen=True)
    class Settings:
        share: Annotated[float, Field(ge=0, le=1)] = 1.0
        """Share of debates about which the judge is asked, drawn by lot."""
        schedule: Schedule = "constant"
        """How the share falls to 0: linear or cosine phase a stronger judge out."""

    settings: Settings

    def check(self, config: TrainConfig) -> None:
        if config.protocol.scoring.rule.checked:
            raise ConfigError(
                f"judge_share must be left out with reward {config.protocol.scoring.reward}: a debate that no judge "
                "checks teaches nothing"
            )
        if not config.recipe.judge and "renewed_judge" not in (split_part(text)[0] for text in config.parts):
            raise ConfigError("judge_share needs an outside judge; name one with --judge, or leave it out")

    def judges(self, judges: Judges, done: float, seed: str) -> Judges:
        share = scheduled(self.settings.share, self.settings.schedule, done)
        return lambda number: judges(number) if random.Random(f"{seed}/judge/{number}").random() < share else []
