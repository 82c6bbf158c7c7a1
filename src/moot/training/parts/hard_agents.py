"""More agents for questions that stay open, for when disagreement deserves more voices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.debate.rewards import held_answers
from moot.rl.metrics import Metrics
from moot.tokens.played import PlayedDebate
from moot.training.part import Part
from moot.training.state import BatchQuestion, Lesson, Progress, Setup


class HardAgents(Part):
    """A question whose agents ended in disagreement is debated again in the next step by more agents. Untried."""

    needs = ("agreement",)

    @dataclass(frozen=True)
    class Settings:
        agents: Annotated[int, Field(ge=3, le=1000)] = 5
        """How many debate it then; at least 3, because with fewer nobody can vote."""

    settings: Settings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.reopened: list[BatchQuestion] = []
        """What is to be debated once more in the next step."""

    def again(self, step: int) -> Sequence[BatchQuestion]:
        return self.reopened

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        self.reopened = list(dict.fromkeys(still_open(lesson.asked, lesson.taught, self.settings.agents)))
        return {
            "recipe/debated_again": float(sum(question.num_agents == self.settings.agents for question in lesson.asked))
        }

    def state(self) -> dict[str, Any]:
        return {"again": [asdict(question) for question in self.reopened]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.reopened = [BatchQuestion(**question) for question in state["again"]]


def still_open(asked: Sequence[BatchQuestion], debates: Sequence[PlayedDebate], agents: int) -> list[BatchQuestion]:
    """The questions to debate again with more agents: those whose agents ended with different answers, and were not yet
    more."""
    pairs = zip(asked, debates, strict=True)
    disputed = [question for question, played in pairs if len(set(held_answers(played.debate, played.grades))) > 1]
    return [replace(question, num_agents=agents) for question in disputed if question.num_agents < agents]
