"""Truth that fades out, for leaning on answers early and on peers alone late."""

from __future__ import annotations

from dataclasses import replace

from pydantic.dataclasses import dataclass

from moot.debate.scoring import Scoring
from moot.errors import ConfigError
from moot.rl.schedules import scheduled
from moot.settings.train import Schedule, TrainConfig
from moot.training.part import Part


class TruthSchedule(Part):
    """The truth that is mixed into the reward (reward_mix, correct_bonus) falls to 0 over the run. Untried."""

    @dataclass(frozen=True)
    class Settings:
        schedule: Schedule = "linear"
        """How it falls: linear or cosine."""

    settings: Settings

    def check(self, config: TrainConfig) -> None:
        if not config.protocol.rules.own_answers:
            raise ConfigError(
                "truth_schedule must be left out with positions assigned: no reward of advocates has truth in it"
            )

    def scoring(self, scoring: Scoring, done: float) -> Scoring:
        mix, bonus = (
            scheduled(value, self.settings.schedule, done) for value in (scoring.reward_mix, scoring.correct_bonus)
        )
        return replace(scoring, reward_mix=mix, correct_bonus=bonus)
