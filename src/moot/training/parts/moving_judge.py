"""The policy of now judges its own answers: a control, beside judges that stand still."""

from __future__ import annotations

from typing import Any

from moot.engine.protocol import Capabilities, Sampler
from moot.errors import ConfigError
from moot.rl.rollout import Guest
from moot.settings.train import TrainConfig
from moot.training.part import Part
from moot.training.state import Setup


class MovingJudge(Part):
    """The policy as it is now judges without a seat. Measured: it comes to approve wrong answers, one seed."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.guest: Guest | None = None

    def check(self, config: TrainConfig) -> None:
        if other := config.recipe.judge:
            raise ConfigError(f"moving_judge is the judge itself, got {other} too; leave one of them out")

    def check_engine(self, config: TrainConfig, capabilities: Capabilities) -> None:
        if not capabilities.frozen_samplers:
            raise ConfigError("moving_judge must be left out on this server: its samplers do not keep their weights")

    def judge(self) -> Guest | None:
        return self.guest

    async def begin(self, setup: Setup, step: int, sampler: Sampler) -> None:
        self.guest = setup.guest(sampler)

    def committed(self, setup: Setup, step: int, sampler: Sampler) -> None:
        self.guest = setup.guest(sampler)
