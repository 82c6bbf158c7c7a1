"""The majority counts only where the judge approves it.

A plurality that a judge doubts is no label: its question then pays no answer, and is recorded all the same. A failed
turn still costs 1 there: the form is taught whoever is right. The judge is the one that the settings name, or that
another part brings; it is asked about the plurality alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.debate.checks import EQUAL, Show, approval
from moot.engine.protocol import Sampler, SamplingParams
from moot.errors import ConfigError, EngineError
from moot.judges.asking import Asked, Judge, judge_of
from moot.judges.learning import Solved
from moot.rl.metrics import Metrics
from moot.rl.rollout import Judges
from moot.settings.train import TrainConfig
from moot.tasks.answers import grade_all_async
from moot.tokens.played import PlayedDebate
from moot.tokens.speaker import turn_seed
from moot.training.judge_lessons import solved_of
from moot.training.part import Part
from moot.training.state import Batch, Lesson, Progress, Setup

NOBODY = ""
"""A label that no answer equals."""


class JudgeFilter(Part):
    """The majority is the reward only where a judge without a seat approves it. Untried."""

    @dataclass(frozen=True)
    class Settings:
        checks: Annotated[int, Field(ge=1, le=1000)] = 4
        """How often the judge checks the plurality."""
        least: Annotated[float, Field(ge=0, le=1)] = 0.5
        """The mean of its checks must be above this."""
        show: Show = "solution"
        """What it is shown: one solution that ends in the plurality, or that answer alone."""

    settings: Settings
    sets_labels = True

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.counts: Metrics = {}
        """Of the batch that was played last."""

    def check(self, config: TrainConfig) -> None:
        rule = config.protocol.scoring.rule
        if rule.grades != "same" or rule.checked:
            raise ConfigError(f"judge_filter needs the reward majority, got {config.protocol.scoring.reward}")

    def check_beside(self, config: TrainConfig, others: Sequence[Part]) -> None:
        if not config.recipe.judge and not any(part.brings_judge for part in others):
            raise ConfigError(
                "judge_filter needs a judge without a seat: name one with --judge, as in --judge base, or add --with "
                "judge_training"
            )

    def judges(self, judges: Judges) -> Judges:
        """They are asked here, and not for comparisons that nobody would count."""
        return lambda number: []

    def asks(self) -> Mapping[str, Any]:
        """About the plurality, and not for votes."""
        return {"ballot": "approval", "checks": self.settings.checks, "show": self.settings.show}

    async def played(self, setup: Setup, progress: Progress, step: int, batch: Batch, sampler: Sampler) -> Batch:
        guest = setup.outside_judge()
        assert guest is not None  # checked before the run began
        whole = [i for i, played in enumerate(batch.played) if played.error is None]
        tasks = [setup.tasks[question.level] for question in batch.asked]
        solved = {i: await _solved(batch.played[i], tasks[i]) for i in whole}
        judge, gate = judge_of(guest), asyncio.Semaphore(256)

        async def approved(i: int) -> tuple[bool, int]:
            async with gate:
                return await self._approved(setup, judge, solved[i], f"{step}/{i}")

        verdicts = dict(zip(whole, await asyncio.gather(*map(approved, whole)), strict=True))
        kept = [played if verdicts.get(i, (True, 0))[0] else _unpaid(played) for i, played in enumerate(batch.played)]
        tokens = sum(spent for _, spent in verdicts.values())
        right = [solved[i].correct[_holder(solved[i])] for i in whole if verdicts[i][0]]
        self.counts = {
            "judge/majority_approved": sum(is_kept for is_kept, _ in verdicts.values()) / len(whole) if whole else None,
            "judge/majority_approved_right": sum(right) / len(right) if right and _known(setup, batch) else None,
        }
        return replace(batch, played=kept, tokens=batch.tokens + tokens)

    async def _approved(self, setup: Setup, judge: Judge, solved: Solved, seed: str) -> tuple[bool, int]:
        """Whether the judge approves the plurality, and the tokens that it took; a question without one is not asked
        about."""
        holder, config, show = _holder(solved), setup.config, self.settings.show
        finals = [setup.tasks[0].as_shown(answer) for answer in solved.answers]
        text = None if holder < 0 else (solved.solutions if show == "solution" else finals)[holder]
        if not text or not text.strip():
            return False, 0
        asked = Asked(solved.question, (text,), "approval", show, config.prompts)
        params = SamplingParams(config.debate.evaluation_tokens, config.protocol.rules.temperature)
        seeds = [turn_seed(config.seed, "filter", seed, number) for number in range(self.settings.checks)]
        try:
            checks = await asyncio.gather(*(judge.check(asked, replace(params, seed=own)) for own in seeds))
        except EngineError:  # nobody knows, so nobody is paid
            return False, 0
        score = approval([check.value for check in checks])
        return score is not None and score > self.settings.least + EQUAL, sum(check.tokens or 0 for check in checks)

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        return self.counts


async def _solved(played: PlayedDebate, task: Any) -> Solved:
    (grades,) = await grade_all_async([played.debate], task.equal, task.extract, task.check)
    return solved_of(played.debate, grades)


def _holder(solved: Solved) -> int:
    """The first that holds the plurality; -1 where nobody has an answer."""
    most = solved.most
    return -1 if most is None else solved.same.index(most)


def _unpaid(played: PlayedDebate) -> PlayedDebate:
    return replace(played, debate=replace(played.debate, question=replace(played.debate.question, label=NOBODY)))


def _known(setup: Setup, batch: Batch) -> bool:
    return all(
        setup.tasks[asked.level].gradable(played.debate.question)
        for asked, played in zip(batch.asked, batch.played, strict=True)
    )
