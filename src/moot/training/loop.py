"""The training loop, from top to bottom.

    restore -> [warm start] -> for each step: self-play, score, train, refresh the sampler, checkpoint -> evaluate

A step belongs to either phase. It is committed by its checkpoint, which carries all the run remembers; a run that was
killed continues from the newest checkpoint that is whole. Nothing random depends on when it happens: questions, turns
and order come from the seed and the step.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from moot.debate.scoring import Scoring
from moot.engine.protocol import Datum
from moot.rl.metrics import Metrics, answer_metrics, reward_metrics, rollout_metrics
from moot.rl.trust import panel
from moot.tokens.datums import datums_by_debate, with_credits
from moot.tokens.played import PlayedDebate
from moot.training.batches import questions
from moot.training.commit import commit, fresh_optimizer, restore
from moot.training.evaluations import evaluate_if_due
from moot.training.optimise import optimise
from moot.training.play import play_batch
from moot.training.score import score_batch, scoring_at
from moot.training.state import Batch, BatchQuestion, History, Lesson, Progress, Setup, Stopped
from moot.training.warm_step import warm_step
from moot.training.weights import move_average


async def train(setup: Setup, start_from: int | None = None) -> Progress:
    """Trains to the end, from the newest checkpoint or from that of step `start_from`; answers with what the run
    remembers then."""
    config, engine = setup.config, setup.engine
    step, progress, history = await restore(setup, start_from)
    if step == config.warm_steps:
        await fresh_optimizer(setup, step)
    sampler = await engine.snapshot()
    await evaluate_if_due(setup, history, step, sampler)

    while step < config.warm_steps:
        step += 1
        setup.watcher.began(step, config.total_steps, "warm")
        row = await warm_step(setup, progress, step)
        step = row["step"]  # the last one, where there is nothing left to learn
        await commit(setup, progress, history.best, step, row)
        if step == config.warm_steps:
            await fresh_optimizer(setup, step)
            sampler = await engine.snapshot()
            await evaluate_if_due(setup, history, step, sampler)

    if step == config.warm_steps:
        await move_average(setup)
    for part in setup.parts:
        sampler = await part.begin(setup, step, sampler) or sampler
    while step < config.total_steps and not progress.spent(config):
        step += 1
        setup.watcher.began(step, config.total_steps, "self_play")
        batch = await play_batch(setup, progress, step, questions(setup, progress, step), sampler)
        for part in setup.parts:
            batch = await part.played(setup, progress, step, batch, sampler)
        row = await learn(setup, progress, history, step, batch)
        await move_average(setup)
        sampler = await engine.snapshot()
        await commit(setup, progress, history.best, step, row)
        for part in setup.parts:
            part.committed(setup, step, sampler)
        await evaluate_if_due(setup, history, step, sampler)
        for part in setup.parts:
            part.ended(setup, history, row)
    await evaluate_if_due(setup, history, step, sampler, last=True)
    return progress


async def learn(setup: Setup, progress: Progress, history: History, step: int, batch: Batch) -> dict[str, Any]:
    """Votes to rewards to advantages to datums to the engine. Answers with the step's metrics."""
    config, started = setup.config, time.perf_counter()
    asked = [question for question, played in zip(batch.asked, batch.played, strict=True) if played.error is None]
    if not asked:
        raise Stopped(
            f"every debate of step {step} failed in the engine ({batch.played[0].error}); mend that and start again to "
            "continue"
        )
    progress.sampled += batch.tokens
    scoring, done = scoring_at(setup, progress, step), progress.done(config, step)
    taught = await score_batch(setup, scoring, batch, progress.seats)

    groups, constant = datums_by_debate(taught, apart=True)
    random.Random(f"{config.seed}/{step}/order").shuffle(groups)
    placed = [datum for group in groups for datum in group]
    datums, moved = await _moved(setup, [datum.datum for datum in placed])
    taught = with_credits(taught, placed, datums)
    rate = setup.rate(config.iteration(step), done)
    trained = await optimise(
        setup.engine,
        progress,
        datums,
        config.optim.loss,
        rate,
        measured=True,
        beside=[datum.datum for datum in constant],
    )
    lesson, of_parts = Lesson(step, asked, taught, rate, trained), dict(moved)
    for part in setup.parts:
        of_parts |= await part.learned(setup, progress, lesson)

    remaining = iter(taught)
    saved = [next(remaining) if played.error is None else replace(played, scoring=scoring) for played in batch.played]
    setup.run.write_debates(step, saved)
    counts = rollout_metrics(batch.played)
    progress.sampled += int(sum(counts.get(f"tokens/{who}") or 0 for who in ("sampled", "jury")))
    tasks = [setup.tasks[question.level] for question in asked]
    return {
        "step": step,
        "phase": "self_play",
        **counts,
        "tokens/spent": float(progress.sampled),
        **reward_metrics(taught),
        **answers_by_task(setup, asked, taught),
        "grading/given_up": float(sum(played.grades.given_up for played in taught if played.grades is not None)),
        **panel(taught),
        **await history.visits.update(step, "self_play", list(zip(tasks, taught, strict=True))),
        **progress.alarms.update(taught),
        **trained,
        **truth_metrics(config.protocol.scoring, scoring),
        **of_parts,
        "optim/lr": rate,
        "debates/dropped": float(len(taught) - len(groups)),
        # What went wrong in the engine so far, and was made good.
        **{f"engine/{name}": float(count) for name, count in getattr(setup.engine, "faults", {}).items()},
        "time/train_s": time.perf_counter() - started,
    }


async def _moved(setup: Setup, datums: list[Datum]) -> tuple[list[Datum], Metrics]:
    """With the advantages that parts give them."""
    metrics: Metrics = {}
    for part in setup.parts:
        datums, own = await part.datums(setup, datums)
        metrics |= own
    return datums, metrics


def answers_by_task(setup: Setup, asked: Sequence[BatchQuestion], taught: Sequence[PlayedDebate]) -> Metrics:
    """Each answer counts for its debate's own task: what is debated again may be of an earlier one."""
    metrics: Metrics = {}
    for level in sorted({question.level for question in asked}):
        own = [played for question, played in zip(asked, taught, strict=True) if question.level == level]
        grades = [played.grades for played in own if played.grades is not None]
        metrics |= answer_metrics([played.debate for played in own], grades, setup.tasks[level].name)
    return metrics


def truth_metrics(whole: Scoring, now: Scoring) -> Metrics:
    """How much truth is mixed in, where any ever is."""
    mixed = whole.reward_mix or whole.correct_bonus
    return {"recipe/reward_mix": now.reward_mix, "recipe/correct_bonus": now.correct_bonus} if mixed else {}
