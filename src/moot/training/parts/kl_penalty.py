"""A penalty for moving away from weights that stand still."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.engine.protocol import Datum
from moot.rl.metrics import Metrics
from moot.training.state import Setup
from moot.training.weights import BesideStillWeights


class KlPenalty(BesideStillWeights):
    """A penalty for each token that the policy makes likelier than the reference does. Untried."""

    @dataclass(frozen=True)
    class Settings:
        coef: Annotated[float, Field(gt=0, allow_inf_nan=False)]
        """Weight of the penalty."""
        weights: str = "start"
        """The reference: base; start, the policy after the warm start; ema, a moving average of the policy; or RUN or
        RUN@STEP."""
        ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
        """How much of the moving average stays at each step, where the reference is ema."""

    settings: Settings

    async def datums(self, setup: Setup, datums: list[Datum]) -> tuple[list[Datum], Metrics]:
        """Moves each token's advantage by how much likelier the policy makes it than the reference does, less the
        batch's mean."""
        if not datums:
            return datums, {}
        reference = await self.still(setup)
        starts = [int(np.argmax(d.mask > 0)) + 1 for d in datums]  # before its first own token nothing need be computed
        asked = [
            (np.append(d.tokens, d.targets[-1]), d.temperature, start) for d, start in zip(datums, starts, strict=True)
        ]
        standing = await asyncio.gather(*(reference.compute_logprobs(*question) for question in asked))
        pairs = zip(datums, standing, strict=True)
        gaps = [np.where(d.mask > 0, (d.logprobs - logprobs[1:]) * d.mask, 0) for d, logprobs in pairs]
        mean = float(sum(gap.sum() for gap in gaps) / max(1.0, sum(d.mask.sum() for d in datums)))
        moved = [
            replace(d, advantages=(d.advantages + self.settings.coef * (mean - gap) * d.mask).astype(np.float32))
            for d, gap in zip(datums, gaps, strict=True)
        ]
        return moved, {"optim/kl_policy_base" if self.is_base(setup.config) else "optim/kl_policy_reference": mean}
