"""Weights that do not move with each step, to keep near to and to take labels from.

base     the model before any training
start    the policy after the warm start; where there was none, what the run started from
ema      a moving average of the policy, for engines that can keep one
a run    RUN or RUN@STEP: a checkpoint, in an engine of its own
"""

from __future__ import annotations

from moot.engine.protocol import Averaging, Capabilities, Sampler
from moot.errors import ConfigError
from moot.players.checkpoints import is_untrained, newest_whole
from moot.settings.train import TrainConfig
from moot.training.part import Part
from moot.training.state import Setup

OURS = ("base", "start", "ema")
"""Those that the run's own engine has; every other name is a run's."""


class BesideStillWeights(Part):
    """A part whose setting `weights` names some of these; `ema_decay` says how the average moves."""

    start: Sampler | None = None
    """The policy as it was when self-play began."""

    def weights(self) -> str:
        return str(self.settings.weights)

    def ema_decay(self) -> float | None:
        return self.settings.ema_decay if self.weights() == "ema" else None

    def check_engine(self, config: TrainConfig, capabilities: Capabilities) -> None:
        if self.weights() == "ema" and not capabilities.averages:
            raise ConfigError(
                f"{self.name}: weights may not be ema here: this engine keeps no average of its weights; use start or "
                "base"
            )
        if self.weights() == "start" and not self.is_base(config) and not capabilities.frozen_samplers:
            raise ConfigError(
                f"{self.name}: weights may not be start on this server: its samplers do not keep their weights; use "
                "base"
            )

    async def begin(self, setup: Setup, step: int, sampler: Sampler) -> None:
        """Remembers the start, or finds it again in a run that continues."""
        first = setup.config.warm_steps
        if self.weights() == "start" and not self.is_base(setup.config) and self.start is None:
            named = f"{self.name}: weights start"
            self.start = sampler if step == first else await weights_of_step(setup, first, named)

    def is_base(self, config: TrainConfig) -> bool:
        """Whether they are those of the model before any training."""
        return self.weights() == "base" or (self.weights() == "start" and not (config.warm_steps or config.start))

    async def still(self, setup: Setup) -> Sampler:
        if self.is_base(setup.config):
            return await setup.engine.base()
        if self.weights() == "ema":
            assert isinstance(setup.engine, Averaging)  # checked with the capabilities before the run began
            return await setup.engine.averaged()
        weights = self.start if self.weights() == "start" else setup.weights.get(self.weights())
        if weights is None:
            raise ConfigError(
                f"the weights of {self.weights()} are not there; {self.name}: weights must be base, start, ema, a "
                "run's folder or RUN@STEP"
            )
        return weights


async def move_average(setup: Setup) -> None:
    """After each iteration; the first call starts the average. It is saved with the engine's state."""
    if (decay := next((decay for part in setup.parts if (decay := part.ema_decay()) is not None), None)) is not None:
        assert isinstance(setup.engine, Averaging)
        await setup.engine.average(decay)


async def weights_of_step(setup: Setup, step: int, setting: str) -> Sampler:
    """Those of an earlier step of a run that is continued: its checkpoint was kept, and the newest one is loaded again
    after it."""
    if is_untrained(setup.run, step):
        return await setup.engine.base()
    earlier, newest = newest_whole(setup.run, step), newest_whole(setup.run)
    if earlier is None or newest is None:
        raise ConfigError(f"{setting} needs the checkpoint of step {step}, which is missing or damaged; use base")
    await setup.engine.load_state(earlier.engine_state)
    sampler = await setup.engine.snapshot()
    await setup.engine.load_state(newest.engine_state)
    return sampler
