"""Supervised updates on what the winners said, for when the contract is often broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.engine.protocol import Datum
from moot.rl.metrics import Metrics
from moot.tokens.datums import imitated
from moot.tokens.played import PlayedDebate
from moot.training.optimise import optimise
from moot.training.part import Part
from moot.training.state import Lesson, Progress, Setup


class Distill(Part):
    """Every so many steps, one supervised update on the turns of each debate's winner. Untried."""

    @dataclass(frozen=True)
    class Settings:
        every: Annotated[int, Field(ge=1)] = 5
        """Steps from one update to the next."""

    settings: Settings

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        if setup.config.iteration(lesson.step) % self.settings.every:
            return {}
        examples = winners_turns(lesson.taught)
        trained = await optimise(setup.engine, progress, examples, "cross_entropy", lesson.rate)
        tokens = trained["optim/trained_tokens"] or 0.0
        return {
            "distill/examples": float(len(examples)),
            "distill/trained_tokens": tokens,
            "distill/loss_per_token": (trained["optim/loss"] or 0.0) / tokens if tokens else None,
        }


def winners_turns(debates: Sequence[PlayedDebate]) -> list[Datum]:
    """What each debate's winner said, as supervised examples. Its failed turns stand in the context with weight 0."""
    examples: list[Datum] = []
    for played in debates:
        turns = [] if played.winner is None else played.debate.turns_by_agent()[played.winner]
        if not turns or not all(played.sampled[i].learns for i in turns):
            continue
        weights = [played.sampled[i].sampled * np.float32(not played.debate.turns[i].failed) for i in turns]
        examples += imitated([played.sampled[i] for i in turns], weights)
    return examples
