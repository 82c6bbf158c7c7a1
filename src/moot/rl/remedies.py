"""The remedies: what a run may do besides plain self-play. Each is one small part that the loop asks; off, it does nothing.

What changes from step to step goes into each checkpoint: `state` gives it, `restore` takes it back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from moot.debate.rewards import held_answers
from moot.debate.types import Question
from moot.engine.protocol import Datum
from moot.records.played import PlayedDebate
from moot.rl.datums import imitated
from moot.rl.rollout import Guest, Judges, Player, Seats
from moot.tasks.task import Task

WINDOW = 3
"""Steps whose accuracy must hold before a curriculum moves on."""


@dataclass
class Curriculum:
    """Tasks from easy to hard. Moves on when the measured accuracy of training debates says so, or after so many steps; never back."""

    tasks: Sequence[Task]
    promote_at: float = 0.7
    """Up to 1 an accuracy; above it, steps per task."""
    level: int = 0
    recent: list[float] = field(default_factory=list)
    steps: int = 0
    """Taken on this task so far."""

    @property
    def task(self) -> Task:
        return self.tasks[self.level]

    def key(self, level: int, question: Question) -> str:
        """By what a question is known when it comes by again; empty where none does, because the task makes each anew."""
        return f"{level}/{question.id}" if self.tasks[level].training else ""

    def update(self, level: int, accuracy: float | None) -> bool:
        """Takes one step's accuracy at `level`; answers whether it moved on. A batch sampled before the last move says nothing."""
        if level != self.level or self.level == len(self.tasks) - 1:
            return False
        self.steps += 1
        if accuracy is not None:
            self.recent = [*self.recent, accuracy][-WINDOW:]
        if not (self.steps >= self.promote_at if self.promote_at > 1 else self._holds()):
            return False
        self.level, self.recent, self.steps = self.level + 1, [], 0
        return True

    def _holds(self) -> bool:
        return len(self.recent) == WINDOW and sum(self.recent) / WINDOW >= self.promote_at

    def state(self) -> dict[str, Any]:
        return {"level": self.level, "recent": self.recent, "steps": self.steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.level, self.recent, self.steps = int(state["level"]), list(state["recent"]), int(state.get("steps", 0))


@dataclass(frozen=True)
class BatchQuestion:
    """A question of a batch: which one of which task, and by how many agents it is debated."""

    level: int
    number: int
    num_agents: int


def still_open(asked: Sequence[BatchQuestion], debates: Sequence[PlayedDebate], hard_agents: int) -> list[BatchQuestion]:
    """The questions to debate again with more agents: those whose agents ended with different answers, and were not yet more."""
    disputed = [question for question, each in zip(asked, debates, strict=True) if len(set(held_answers(each.debate, each.grades))) > 1]
    return [replace(question, num_agents=hard_agents) for question in disputed if question.num_agents < hard_agents]


def found_easy(easy: Set[str], keys: Sequence[str], debates: Sequence[PlayedDebate]) -> set[str]:
    """`easy` after further debates, whose questions go by `keys`: those that all their agents ended with one answer to are in it."""
    held = [set(held_answers(each.debate, each.grades)) for each in debates]
    disputed = {key for key, answers in zip(keys, held, strict=True) if len(answers) > 1 or None in answers}
    return {key for key in {*easy, *keys} - disputed if key}


def seats_of_past_selves(players: Sequence[Player], share: float, seed: str, num_agents: int) -> Seats | None:
    """In a share of debates one seat, drawn by lot, goes to one of the past selves."""
    if not players or not share:
        return None

    def seats(number: int, seat: int) -> Player | None:
        rng = random.Random(f"{seed}/past/{number}")
        taken, taker = rng.random() < share, rng.choice(players)
        return taker if taken and seat == rng.randrange(num_agents) else None

    return seats


def judges_of_a_share(judge: Guest | None, share: float, seed: str) -> Judges | None:
    """The outside judge is asked about a share of the debates, drawn by lot; as the share falls it is phased out, and costs less."""
    if judge is None or not share:
        return None
    return lambda number: [judge] if random.Random(f"{seed}/judge/{number}").random() < share else []


def winners_turns(debates: Sequence[PlayedDebate]) -> list[Datum]:
    """What each debate's winner said, as supervised examples. Its failed turns stand in the context with weight 0."""
    examples: list[Datum] = []
    for each in debates:
        turns = [] if each.winner is None else each.debate.turns_by_agent()[each.winner]
        if not turns or not all(each.sampled[i].learns for i in turns):
            continue
        weights = [each.sampled[i].sampled * np.float32(not each.debate.turns[i].failed) for i in turns]
        examples += imitated([each.sampled[i] for i in turns], weights)
    return examples
