"""Fewer agents for questions that were easy, for sets whose questions come by more than once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.debate.rewards import held_answers
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.rl.metrics import Metrics
from moot.settings.train import TrainConfig
from moot.tokens.played import PlayedDebate
from moot.training.part import Part
from moot.training.state import BatchQuestion, Lesson, Progress, Setup


class EasyAgents(Part):
    """A question to which all agents ended with one answer is debated by fewer when it comes by again. Untried."""

    needs = ("agreement",)

    @dataclass(frozen=True)
    class Settings:
        agents: Annotated[int, Field(ge=3, le=1000)] = 3
        """How many debate it then; at least 3, because with fewer nobody can vote."""

    settings: Settings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.easy: set[str] = set()
        """Questions whose last visit ended in one answer, by level and id."""

    def check(self, config: TrainConfig) -> None:
        if self.settings.agents >= (usual := config.debate.num_agents):
            raise ConfigError(
                f"easy_agents: agents must be below num_agents, which is {usual}, got {self.settings.agents}"
            )

    def fresh(self, setup: Setup, question: BatchQuestion) -> BatchQuestion:
        met = setup.tasks[question.level].train(question.number)
        return (
            replace(question, num_agents=self.settings.agents)
            if _key(setup, question.level, met) in self.easy
            else question
        )

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        pairs = zip(lesson.asked, lesson.taught, strict=True)
        keys = [_key(setup, question.level, played.debate.question) for question, played in pairs]
        self.easy = found_easy(self.easy, keys, lesson.taught)
        return {
            "recipe/fewer_agents": float(sum(question.num_agents == self.settings.agents for question in lesson.asked))
        }

    def state(self) -> dict[str, Any]:
        return {"easy": sorted(self.easy)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.easy = set(state["easy"])


def _key(setup: Setup, level: int, question: Question) -> str:
    """By what a question is known when it comes by again; empty where none does, because the task makes each anew."""
    return f"{level}/{question.id}" if setup.tasks[level].training else ""


def found_easy(easy: Set[str], keys: Sequence[str], debates: Sequence[PlayedDebate]) -> set[str]:
    """`easy` after further debates, whose questions go by `keys`: those that all their agents ended with one answer to
    are in it."""
    held = [set(held_answers(played.debate, played.grades)) for played in debates]
    disputed = {key for key, answers in zip(keys, held, strict=True) if len(answers) > 1 or None in answers}
    return {key for key in {*easy, *keys} - disputed if key}
