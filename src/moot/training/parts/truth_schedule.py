"""Truth that fades out, for leaning on answers early and on peers alone late."""

from __future__ import annotations

from dataclasses import replace

from pydantic.dataclasses import dataclass

from moot.debate.scoring import Scoring
from moot.rl.schedules import scheduled
from moot.settings.train import Schedule
from moot.training.part import Part


class TruthSchedule(Part):
    """The truth that is mixed into the reward (reward_mix, correct_bonus) falls to 0 over the run. Untried."""

    needs = ("truth",)

    @dataclass(frozen=True)
    class Settings:
        schedule: Schedule = "linear"
        """How it falls: linear or cosine."""

    settings: Settings

    def scoring(self, scoring: Scoring, done: float) -> Scoring:
        mix, bonus = (
            scheduled(value, self.settings.schedule, done) for value in (scoring.reward_mix, scoring.correct_bonus)
        )
        return replace(scoring, reward_mix=mix, correct_bonus=bonus)
