"""A frozen copy of the policy judges without a seat, and is replaced only by one that judges no worse.

A judge that moves with the policy rewards what the policy has come to like; one that never moves stays as weak as the
start. So at each evaluation the policy takes the judge's place if the agents' votes on held-out debates prefer right
answers at least as often as they did when the present judge was taken. Where that cannot be measured, the judge stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moot.engine.protocol import Capabilities, Sampler
from moot.errors import ConfigError
from moot.rl.metrics import Metrics
from moot.rl.rollout import Guest
from moot.settings.train import TrainConfig
from moot.training.judge_steps import is_no_worse
from moot.training.part import Part
from moot.training.state import Lesson, Progress, Setup
from moot.training.weights import weights_of_step

STEP, ACCURACY = "recipe/judge_step", "trust/judge_held_out"


@dataclass(frozen=True)
class JudgeTaken:
    """A copy of the policy that judges: its step, and the held-out accuracy of its votes then."""

    step: int
    accuracy: float | None


class RenewedJudge(Part):
    """A frozen copy of the policy judges, renewed at an evaluation at which votes are right no less often. Untried."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.guest: Guest | None = None
        self.taken: JudgeTaken | None = None

    def check(self, config: TrainConfig) -> None:
        if config.recipe.judge:
            raise ConfigError(
                f"renewed_judge is an outside judge itself, got --judge {config.recipe.judge} too; leave one of them "
                "out"
            )
        if not config.eval_every:
            raise ConfigError("renewed_judge needs evaluations, at which the judge is renewed: set eval_every, got 0")
        rules = config.protocol.rules
        if config.debate.max_rounds == 1 and rules.schedule == "parallel" and not rules.closing_ballot:
            raise ConfigError(
                "renewed_judge needs max_rounds of at least 2, got 1: it is renewed by how agents vote, and in one "
                "parallel round nobody reads anybody; use --with judge_training"
            )

    def check_engine(self, config: TrainConfig, capabilities: Capabilities) -> None:
        if not capabilities.frozen_samplers:
            raise ConfigError(
                "renewed_judge must be left out on this server: its samplers do not keep their weights; use --judge "
                "base"
            )

    def judge(self) -> Guest | None:
        return self.guest

    async def begin(self, setup: Setup, step: int, sampler: Sampler) -> None:
        if self.guest is None:
            self.taken = self.taken or judge_in(setup.run.metrics()) or JudgeTaken(setup.config.warm_steps, None)
            taken = self.taken.step
            self.guest = setup.guest(sampler if taken == step else await weights_of_step(setup, taken, "renewed_judge"))

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        return self._metrics()

    def evaluated(self, setup: Setup, row: Mapping[str, Any], sampler: Sampler) -> Metrics:
        """The weights of the first evaluation after the warm start are the first judge's."""
        accuracy = row["trust/judge_accuracy"]
        self.taken = self.taken or judge_in(
            setup.run.metrics()
        )  # a run that was cut off before this evaluation has one
        if self.taken is None or is_no_worse(accuracy, self.taken.accuracy):
            self.guest, self.taken = setup.guest(sampler), JudgeTaken(int(row["step"]), accuracy)
        return self._metrics()

    def _metrics(self) -> Metrics:
        return {} if self.taken is None else {STEP: self.taken.step, ACCURACY: self.taken.accuracy}

    def kept_steps(self) -> set[int]:
        return {self.taken.step} if self.taken else set()


def judge_in(rows: list[dict[str, Any]]) -> JudgeTaken | None:
    """Whom the evaluations of a run that continues have left in place."""
    row: dict[str, Any] = next((row for row in reversed(rows) if row["phase"] == "eval" and STEP in row), {})
    return JudgeTaken(int(row[STEP]), row[ACCURACY]) if row else None
