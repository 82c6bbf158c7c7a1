"""The training loop, from top to bottom.

    restore -> [warm start] -> for each step: self-play, score, train, refresh the sampler, checkpoint -> evaluate

A step belongs to either phase. It is committed by its checkpoint, which carries all the loop knows; a run that was killed
continues from the newest checkpoint that is whole. Nothing random depends on when it happens: questions, turns and order come from
the seed and the step.
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moot.debate.rewards import Grades
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.engine.protocol import Sampler, SamplingParams
from moot.evaluate.report import Report
from moot.evaluate.training import evaluate_in_training
from moot.loop.batches import further_questions, look_back, questions
from moot.loop.commit import commit, fresh_optimizer, is_kept, restore, seat_past_self
from moot.loop.optimise import in_chunks, optimise
from moot.loop.renewed_judge import judge_metrics, renew_judge, seat_judge
from moot.loop.state import Loop, Stopped, Watcher
from moot.loop.still import keep_still, move_average, penalise_distance, still_point
from moot.loop.warm_step import warm_step
from moot.records.played import PlayedDebate
from moot.rl.advantages import SeatMeans, with_advantages
from moot.rl.best import NAME as BEST
from moot.rl.best import better_step, ranking, told_best
from moot.rl.config import MOST_BATCHES, section_limits
from moot.rl.datums import datums_by_debate
from moot.rl.explain import ALARMS
from moot.rl.frozen_labels import Labeller
from moot.rl.metrics import Metrics, answer_metrics, reward_metrics, rollout_metrics
from moot.rl.remedies import BatchQuestion, judges_of_a_share, seats_of_past_selves, winners_turns
from moot.rl.rollout import rollout
from moot.rl.schedules import scheduled
from moot.rl.trust import panel
from moot.tasks.answers import grade_all_async, settled_by
from moot.tasks.task import Task
from moot.turns import carries_gradient

__all__ = ["Loop", "Stopped", "Watcher", "train"]


async def train(loop: Loop) -> None:
    step = await restore(loop)
    if step == loop.config.warm_steps:
        await fresh_optimizer(loop, step)
    sampler = await loop.engine.snapshot()
    await evaluate_if_due(loop, step, sampler)

    while step < loop.config.warm_steps:
        step += 1
        loop.watcher.began(step, loop.config.total_steps, "warm")
        row = await warm_step(loop, step)
        step = row["step"]  # the last one, where there is nothing left to learn
        await commit(loop, step, row)
        if step == loop.config.warm_steps:
            await fresh_optimizer(loop, step)
            sampler = await loop.engine.snapshot()
            await evaluate_if_due(loop, step, sampler)

    await keep_still(loop, step, sampler)
    await seat_judge(loop, step, sampler)
    ahead: deque[_Batch] = deque()
    try:
        while step < loop.config.total_steps and not loop.spent:
            step += 1
            loop.watcher.began(step, loop.config.total_steps, "self_play")
            for next_step in range(step + len(ahead), min(step + loop.config.optim.max_staleness, loop.config.total_steps) + 1):
                playing = asyncio.create_task(play_batch(loop, next_step, questions(loop, next_step), sampler))
                ahead.append(_Batch(step - 1, playing))
            batch = ahead.popleft()
            asked, played = await with_enough_signal(loop, step, *await batch.playing, sampler)
            row = await learn(loop, step, asked, played, staleness=step - 1 - batch.sampled_at)
            await move_average(loop)
            sampler = await loop.engine.snapshot()
            await commit(loop, step, row)
            if loop.config.recipe.past_selves and is_kept(loop, step):
                seat_past_self(loop, step, sampler)
            await evaluate_if_due(loop, step, sampler)
            stop_if_alarmed(loop, row)
    finally:
        for batch in ahead:
            batch.playing.cancel()
    await evaluate_if_due(loop, step, sampler, last=True)


@dataclass(frozen=True)
class _Batch:
    sampled_at: int
    """The step whose weights it is sampled with."""
    playing: asyncio.Task[tuple[list[BatchQuestion], list[PlayedDebate]]]


# One step of self-play


async def play_batch(
    loop: Loop, step: int, asked: list[BatchQuestion], sampler: Sampler, wave: str = ""
) -> tuple[list[BatchQuestion], list[PlayedDebate]]:
    """The questions that are worth a debate, and their debates."""
    if loop.config.recipe.labels_from != "self":
        asked = await in_the_band(loop, asked)
    asked = [each for each in asked for _ in range(loop.config.debate.debates_per_question)]
    return asked, await self_play(loop, step, asked, sampler, wave)


async def in_the_band(loop: Loop, asked: list[BatchQuestion]) -> list[BatchQuestion]:
    """Those whose label has a share in the band, and further ones in the place of the others."""
    recipe, wanted, kept = loop.config.recipe, len(asked), []
    labeller = Labeller(loop.run, loop.rendering, SamplingParams(loop.config.debate.max_tokens), recipe.label_samples, loop.config.seed)
    if not loop.labels:
        loop.labels |= labeller.known()
    for _ in range(MOST_BATCHES):
        made = await labeller.label(asked, loop.curriculum.tasks, await still_point(loop, recipe.labels_from), loop.labels)
        loop.sampled += sum(label.tokens for label in made)
        loop.labels |= {(label.level, label.number): label for label in made}
        kept += [each for each in asked if loop.labels[each.level, each.number].within(recipe.label_band)]
        if len(kept) >= wanted:
            break
        asked = further_questions(loop, wanted - len(kept))
    if not kept:
        low, high = recipe.label_band
        raise Stopped(f"no question has a label with a share between {low:g} and {high:g}; widen label_band, or use other questions")
    return kept


async def with_enough_signal(
    loop: Loop, step: int, asked: list[BatchQuestion], played: list[PlayedDebate], sampler: Sampler
) -> tuple[list[BatchQuestion], list[PlayedDebate]]:
    """The batch, and further questions until `min_signal` debates carry a gradient. Those come from behind all batches."""
    config = loop.config
    wanted, size = config.optim.min_signal, config.optim.batch_size
    carrying = await count_with_gradient(loop, step, asked, played) if wanted else 0
    for wave in range(1, MOST_BATCHES):
        if carrying >= wanted:
            break
        more, further = await play_batch(loop, step, further_questions(loop, size), sampler, f"/{wave}")
        carrying += await count_with_gradient(loop, step, more, further)
        asked, played = [*asked, *more], [*played, *further]
    return asked, played


async def count_with_gradient(loop: Loop, step: int, asked: Sequence[BatchQuestion], played: Sequence[PlayedDebate]) -> int:
    # Only looking: the running means of the seats stay as they are.
    taught = await scored_and_taught(loop, step, asked, played, copy.deepcopy(loop.seats))
    return sum(each.advantages is not None and carries_gradient(each.advantages) for each in taught)


async def self_play(loop: Loop, step: int, asked: Sequence[BatchQuestion], sampler: Sampler, wave: str = "") -> list[PlayedDebate]:
    recipe, d, seed = loop.config.recipe, loop.config.debate, f"{loop.config.seed}/{step}{wave}"
    debates = [new_debate(loop, each) for each in asked]
    most = max((debate.num_agents for debate in debates), default=d.num_agents)  # more than usual where a question is debated again
    share = scheduled(recipe.judge_share, recipe.judge_schedule, loop.done(step))
    return await rollout(
        debates,
        sampler,
        loop.rendering,
        SamplingParams(max_tokens=d.max_tokens),
        concurrency=d.concurrency,
        tempered=loop.engine.capabilities.tempered_training,
        seed=seed,
        seats=seats_of_past_selves(list(loop.past.values()), recipe.past_selves, seed, d.num_agents),
        judges=judges_of_a_share(loop.judge, share, seed),
        limits=section_limits(d.evaluation_tokens, d.comparison_tokens, most),
        finished=lambda _, done: loop.watcher.debate_finished(done),
    )


def new_debate(loop: Loop, asked: BatchQuestion) -> Debate:
    config, recipe, task = loop.config, loop.config.recipe, loop.curriculum.tasks[asked.level]
    label = loop.labels.get((asked.level, asked.number))
    question = task.train(asked.number)
    return replace(
        config.empty_debate(question if label is None else replace(question, label=label.answer)),
        num_agents=asked.num_agents,
        settled=settled_by(task.equal, task.extract),
        stop_when_settled=recipe.stop_when_settled,
        extra_rounds=recipe.extra_rounds,
    )


async def learn(loop: Loop, step: int, batch: Sequence[BatchQuestion], played: list[PlayedDebate], staleness: int) -> dict[str, Any]:
    """Votes to rewards to advantages to datums to the engine. Answers with the step's metrics."""
    config, recipe, started = loop.config, loop.config.recipe, time.perf_counter()
    asked = [question for question, each in zip(batch, played, strict=True) if each.error is None]
    if not asked:
        raise Stopped(f"every debate of step {step} failed in the engine ({played[0].error}); mend that and start again to continue")
    taught = await scored_and_taught(loop, step, batch, played, loop.seats)
    scoring, grades = scoring_at(loop, step), [each.grades for each in taught if each.grades is not None]
    tasks = [loop.curriculum.tasks[each.level] for each in asked]

    groups, constant = datums_by_debate(taught, config.optim.remove_constant_groups)
    random.Random(f"{config.seed}/{step}/order").shuffle(groups)
    penalty = await penalise_distance(loop, [datum for group in groups for datum in group])
    chunks = in_chunks(penalty.datums, config.optim.num_substeps)
    rate = loop.pace.rate(config.optim, config.iteration(step), loop.done(step))
    trained = await optimise(loop, chunks, config.optim.loss, rate, measured=True, beside=constant)
    loop.pace.update(config.optim.target_kl, trained["optim/kl_step"])
    copied = await distill(loop, step, taught, rate)

    remaining = iter(taught)
    saved = [next(remaining) if each.error is None else replace(each, scoring=scoring) for each in played]
    loop.run.write_debates(step, saved, config.log_full_transcript)
    counts = rollout_metrics(played)
    loop.sampled += int((counts["tokens/sampled"] or 0) + (counts.get("tokens/jury") or 0) + (counts.get("tokens/forecasts") or 0))
    look_back(loop, step, asked, taught)
    answers = answers_by_task(loop, asked, taught)
    return {
        "step": step,
        "phase": "self_play",
        **counts,
        "tokens/spent": float(loop.sampled),
        **reward_metrics(taught),
        **answers,
        "grading/given_up": float(sum(each.given_up for each in grades)),
        **panel(taught),
        **judge_metrics(loop),
        **await loop.visits.update(step, "self_play", list(zip(tasks, taught, strict=True))),
        **loop.alarms.update(taught),
        **trained,
        **penalty.metrics,
        **copied,
        **truth_metrics(config.protocol.scoring, scoring),
        **({"recipe/curriculum_level": float(max(each.level for each in asked))} if recipe.curriculum else {}),
        **({"recipe/debated_again": float(sum(each.num_agents == recipe.hard_agents for each in asked))} if recipe.hard_agents else {}),
        **({"recipe/fewer_agents": float(sum(each.num_agents == recipe.easy_agents for each in asked))} if recipe.easy_agents else {}),
        "optim/staleness": float(staleness),
        "optim/lr": rate,
        **({"optim/lr_factor": loop.pace.factor} if config.optim.target_kl else {}),
        "debates/dropped": float(len(taught) - len(groups)),
        # What went wrong in the engine so far, and was made good.
        **{f"engine/{name}": float(count) for name, count in getattr(loop.engine, "faults", {}).items()},
        "time/train_s": time.perf_counter() - started,
    }


def answers_by_task(loop: Loop, asked: Sequence[BatchQuestion], taught: Sequence[PlayedDebate]) -> Metrics:
    """Each answer counts for its debate's own task, and for that task's promotion: what is debated again may be of an earlier one."""
    metrics: Metrics = {}
    for level in sorted({each.level for each in asked}):
        own = [each for question, each in zip(asked, taught, strict=True) if question.level == level]
        name = loop.curriculum.tasks[level].name
        metrics |= answer_metrics([each.debate for each in own], [each.grades for each in own if each.grades is not None], name)
        if loop.curriculum.update(level, metrics[f"train_{name}/correct"]):
            loop.watcher.note(f"the curriculum moves on to {loop.curriculum.task.name}")
    return metrics


async def scored_and_taught(
    loop: Loop, step: int, asked: Sequence[BatchQuestion], played: Sequence[PlayedDebate], seats: SeatMeans
) -> list[PlayedDebate]:
    """Graded, scored and with advantages; without the debates that the engine lost."""
    finished = [(loop.curriculum.tasks[question.level], each) for question, each in zip(asked, played, strict=True) if each.error is None]
    grades = await graded([each.debate for _, each in finished], [task for task, _ in finished])
    scoring = scoring_at(loop, step)
    scored = [each.scored(scoring, grade, loop.reward) for (_, each), grade in zip(finished, grades, strict=True)]
    return with_advantages(scored, loop.estimator, seats) if scored else []


def scoring_at(loop: Loop, step: int) -> Scoring:
    """How votes count at `step`: as the protocol says, with as much truth as its schedule has left."""
    scoring, schedule, done = loop.config.protocol.scoring, loop.config.recipe.truth_schedule, loop.done(step)
    mix, bonus = (scheduled(value, schedule, done) for value in (scoring.reward_mix, scoring.correct_bonus))
    return replace(scoring, reward_mix=mix, correct_bonus=bonus)


def truth_metrics(whole: Scoring, now: Scoring) -> Metrics:
    """How much truth is mixed in, where any ever is."""
    mixed = whole.reward_mix or whole.correct_bonus
    return {"recipe/reward_mix": now.reward_mix, "recipe/correct_bonus": now.correct_bonus} if mixed else {}


async def graded(debates: Sequence[Debate], tasks: Sequence[Task]) -> list[Grades]:
    """Each by its own task's grader, which may have processes to wait for; a batch holds few different tasks."""
    by_place: dict[int, Grades] = {}
    for task in dict(zip(map(id, tasks), tasks, strict=True)).values():
        own = [i for i, other in enumerate(tasks) if other is task]
        by_place |= zip(own, await grade_all_async([debates[i] for i in own], task.equal, task.extract, task.check), strict=True)
    return [by_place[i] for i in range(len(debates))]


async def distill(loop: Loop, step: int, debates: Sequence[PlayedDebate], rate: float) -> Metrics:
    """Now and then, one supervised step on what the winners said."""
    every = loop.config.recipe.distill_every
    if not every or loop.config.iteration(step) % every:
        return {}
    examples = winners_turns(debates)
    trained = await optimise(loop, [examples] if examples else [], "cross_entropy", rate)
    tokens = trained["optim/trained_tokens"] or 0.0
    return {
        "distill/examples": float(len(examples)),
        "distill/trained_tokens": tokens,
        "distill/loss_per_token": (trained["optim/loss"] or 0.0) / tokens if tokens else None,
    }


def stop_if_alarmed(loop: Loop, row: Mapping[str, Any]) -> None:
    ringing = [name for name, value in row.items() if name.startswith("alarm/") and value]
    if ringing and loop.config.recipe.stop_on_alarm:
        told = " ".join(f"{name} rings: {ALARMS[name].means} {ALARMS[name].remedy}" for name in ringing)
        best = told_best(loop.run.metrics(), loop.best, ranking(loop.config))
        ended = f"The run's result is its best checkpoint, {best}; moot eval, export and ask take that for {loop.run.path}."
        raise Stopped(f"{told} {ended if best else 'No evaluation names a best step, so its result is its last.'}")


# Evaluation on held-out questions


async def evaluate_if_due(loop: Loop, step: int, sampler: Sampler, last: bool = False) -> None:
    """Before anything, after the warm start, every `eval_every` steps, and at the end; not again for a step that has its row."""
    config = loop.config
    if not config.eval_every or not loop.task.held_out[: config.eval_questions]:
        return
    iteration = config.iteration(step)
    due = last or step in (0, config.warm_steps, config.total_steps) or (iteration > 0 and iteration % config.eval_every == 0)
    if not due or any(row["step"] == step and row["phase"] == "eval" for row in loop.run.metrics()):
        return
    loop.watcher.began(step, loop.config.total_steps, "eval")
    started, held_out = time.perf_counter(), list[PlayedDebate]()

    def keep(report: Report, debates: list[PlayedDebate]) -> None:
        held_out.extend(debates)
        report.save(loop.run.held_out_report(step))
        loop.run.write_held_out(step, debates)

    measured = await evaluate_in_training(
        sampler,
        loop.rendering,
        loop.task,
        config,
        tempered=loop.engine.capabilities.tempered_training,
        opponents=loop.opponents,
        judge=loop.judge,
        finished=loop.watcher.debate_finished,
        keep=keep,
    )
    row = {"step": step, "phase": "eval", **measured, "time/eval_s": time.perf_counter() - started}
    if step >= config.warm_steps:  # from the start on, so that a warm start that was taken over makes no difference
        row |= await loop.visits.update(step, "eval", [(loop.task, each) for each in held_out])
        row |= renew_judge(loop, row, sampler)
        loop.best = row[BEST] = better_step(loop.run.metrics(), loop.best, row, ranking(config))
    loop.run.append_metrics(row)
    loop.watcher.row(row)
