"""Debates of a batch to their grades, scores and advantages."""

from __future__ import annotations

from collections.abc import Sequence

from moot.debate.rewards import Grades
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.rl.advantages import SeatMeans, with_advantages
from moot.tasks.answers import grade_all_async
from moot.tasks.task import Task
from moot.tokens.played import PlayedDebate
from moot.training.state import Batch, Progress, Setup


async def score_batch(setup: Setup, scoring: Scoring, batch: Batch, seats: SeatMeans) -> list[PlayedDebate]:
    """Graded, scored and with advantages; without the debates that the engine lost. Moves the running means of the
    `seats`."""
    pairs = zip(batch.asked, batch.played, strict=True)
    finished = [(setup.tasks[question.level], played) for question, played in pairs if played.error is None]
    grades = await _graded([played.debate for _, played in finished], [task for task, _ in finished])
    scored = [played.scored(scoring, grade, setup.reward) for (_, played), grade in zip(finished, grades, strict=True)]
    return with_advantages(scored, setup.estimator, seats) if scored else []


def scoring_at(setup: Setup, progress: Progress, step: int) -> Scoring:
    """How votes count at `step`: as the protocol says, and as parts change it."""
    scoring, done = setup.config.protocol.scoring, progress.done(setup.config, step)
    for part in setup.parts:
        scoring = part.scoring(scoring, done)
    return scoring


async def _graded(debates: Sequence[Debate], tasks: Sequence[Task]) -> list[Grades]:
    """Each by its own task's grader, which may have processes to wait for; a batch holds few different tasks."""
    by_index: dict[int, Grades] = {}
    for task in dict(zip(map(id, tasks), tasks, strict=True)).values():
        own = [i for i, other in enumerate(tasks) if other is task]
        by_index |= zip(
            own, await grade_all_async([debates[i] for i in own], task.equal, task.extract, task.check), strict=True
        )
    return [by_index[i] for i in range(len(debates))]
