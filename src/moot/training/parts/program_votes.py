"""Programs as votes, for questions whose answer is a number: the policy writes a function, the sandbox runs it, and its
result is one more vote for the answer that the majority takes for right.

Who calculates in words slips in other places than who calculates in code, so their mistakes agree less often than those
of one way alone; and a function is shorter than a worked solution.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from moot.debate.state import Debate
from moot.debate.types import Message, Question
from moot.engine.protocol import Sampler, SamplingParams
from moot.errors import ConfigError, EngineError
from moot.rl.metrics import Metrics, mean
from moot.settings.train import TrainConfig
from moot.tasks import sandbox
from moot.tasks.answer_classes import plurality_label
from moot.tasks.answers import answer_in
from moot.tasks.programs import CODE, LIMITS, LONGEST, last_program
from moot.tasks.task import Task
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import answer_plainly, turn_seed
from moot.training.part import Part
from moot.training.state import Batch, Lesson, Progress, Setup

ASK = (
    "{question}\n\nAnswer with a Python function solve() that takes no arguments, calculates the answer step by step, "
    f"and returns it as a number. {CODE}"
)
_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30}(?:e[-+]?[0-9]{1,3})?)?")


def result(text: str) -> str | None:
    """The number that the function in a reply returns, as a solution would write it; None for anything else."""
    program = last_program(text)
    if program is None or len(program) > LONGEST:
        return None
    ran = sandbox.run(program, calls=["solve()"], limits=LIMITS)
    value = ran.values[0] if ran.passed else ""
    if not _NUMBER.fullmatch(value):
        return None
    return f"{float(value):.10g}" if "." in value else value  # 0.1 + 0.2 is 0.3 to whoever calculates in words


async def ask_for_programs(
    sampler: Sampler, rendering: Rendering, question: Question, params: SamplingParams, count: int
) -> tuple[list[str | None], int]:
    """What so many programs come to, and the tokens that they took. Raises EngineError."""
    message = Message("user", ASK.replace("{question}", question.text))
    said = await answer_plainly(sampler, rendering, [message], params, count)
    values = await asyncio.gather(*(asyncio.to_thread(result, text) for text, _ in said))
    return list(values), sum(len(sample.tokens) for _, sample in said)


@plain_dataclass(frozen=True)
class Votes:
    """What was voted about one question."""

    programs: list[str | None]
    tokens: int
    label: str | None
    """What most say, answers and programs."""
    counted: str | None
    """What most answers say."""
    right: tuple[bool, bool] | None
    """Whether either is; None where nobody knows."""


class ProgramVotes(Part):
    """Programs vote beside the answers, for majority on number questions. Untried."""

    @dataclass(frozen=True)
    class Settings:
        programs: Annotated[int, Field(ge=1, le=1000)] = 4
        """Functions that are asked for about each question."""

    settings: Settings
    sets_labels = True

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.counts: Metrics = {}
        """Of the batch that was played last."""

    def check(self, config: TrainConfig) -> None:
        rule = config.protocol.scoring.rule
        if rule.grades != "same" or rule.checked:
            raise ConfigError(f"program_votes needs the reward majority, got {config.protocol.scoring.reward}")

    def check_beside(self, config: TrainConfig, others: Sequence[Part]) -> None:
        if other := next((part.name for part in others if part.sets_labels), None):
            raise ConfigError(f"program_votes says which answer is right, got {other} too; leave one of them out")

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.open_ended or task.check is not None or not task.equal("7", "7.0"):
                raise ConfigError(f"program_votes needs questions whose answer is a number, and {task.name} has others")
        sandbox.require()

    async def played(self, setup: Setup, progress: Progress, step: int, batch: Batch, sampler: Sampler) -> Batch:
        debates, tasks = list(batch.played), [setup.tasks[asked.level] for asked in batch.asked]
        whole = [i for i, debate in enumerate(debates) if debate.error is None]
        voted = await asyncio.gather(
            *(self._votes(setup, debates[i].debate, tasks[i], sampler, f"{step}/{i}") for i in whole)
        )
        for i, votes in zip(whole, voted, strict=True):
            debate = debates[i].debate
            labelled = replace(debate, question=replace(debate.question, label=votes.label))
            debates[i] = replace(debates[i], debate=labelled)
        right = [votes.right for votes in voted if votes.right is not None]
        self.counts = {
            "votes/programs_run": mean(value is not None for votes in voted for value in votes.programs),
            "votes/changed": mean(votes.label != votes.counted for votes in voted),
            "votes/right": mean(with_programs for with_programs, _ in right),
            "votes/right_without": mean(without for _, without in right),
        }
        return replace(batch, played=debates, tokens=batch.tokens + sum(votes.tokens for votes in voted))

    async def _votes(self, setup: Setup, debate: Debate, task: Task, sampler: Sampler, seed: str) -> Votes:
        """What agents ended with, and what the programs come to. Of level answers the agents' comes first."""
        answers = [answer_in(debate.turns[i].solution, task.extract) for i in sorted(debate.answers().values())]
        config = setup.config
        own = turn_seed(config.seed, "programs", seed)
        params = SamplingParams(config.debate.max_tokens, config.protocol.rules.temperature, seed=own)
        try:
            programs, tokens = await ask_for_programs(
                sampler, setup.rendering, debate.question, params, self.settings.programs
            )
        except EngineError:  # the answers alone count
            programs, tokens = [], 0
        return await asyncio.to_thread(_counted, task, debate.question, answers, programs, tokens)

    async def learned(self, setup: Setup, progress: Progress, lesson: Lesson) -> Metrics:
        return self.counts


def _counted(
    task: Task, question: Question, answers: list[str | None], programs: list[str | None], tokens: int
) -> Votes:
    label, counted = (plurality_label(votes, task.equal)[0] for votes in ([*answers, *programs], answers))
    right = tuple(voted is not None and task.right(question, voted) for voted in (label, counted))
    return Votes(programs, tokens, label, counted, (right[0], right[1]) if task.gradable(question) else None)
