"""A step on enough debates, for when few carry a gradient: Adam makes a step from 4 debates as long as one from 40."""

from __future__ import annotations

import copy
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.engine.protocol import Sampler
from moot.tokens.turn import carries_gradient
from moot.training.batches import MOST_BATCHES, further_questions
from moot.training.part import Part
from moot.training.play import play_batch
from moot.training.score import score_batch, scoring_at
from moot.training.state import Batch, Progress, Setup


class MinSignal(Part):
    """Further questions are debated, up to 4 batches in all, until enough debates carry a gradient. Untried."""

    @dataclass(frozen=True)
    class Settings:
        debates: Annotated[int, Field(ge=1)]
        """How many debates of a step must carry a gradient."""

    settings: Settings

    async def played(self, setup: Setup, progress: Progress, step: int, batch: Batch, sampler: Sampler) -> Batch:
        carrying = await _with_gradient(setup, progress, step, batch)
        for wave in range(1, MOST_BATCHES):
            if carrying >= self.settings.debates:
                break
            asked = further_questions(setup, progress, setup.config.optim.batch_size)
            more = await play_batch(setup, progress, step, asked, sampler, f"/{wave}")
            carrying += await _with_gradient(setup, progress, step, more)
            batch += more
        return batch


async def _with_gradient(setup: Setup, progress: Progress, step: int, batch: Batch) -> int:
    # Only looking: the running means of the seats stay as they are.
    taught = await score_batch(setup, scoring_at(setup, progress, step), batch, copy.deepcopy(progress.seats))
    return sum(played.advantages is not None and carries_gradient(played.advantages) for played in taught)
