"""Evaluations on held-out questions during training, and the best of them."""

from __future__ import annotations

import time

from moot.engine.protocol import Sampler
from moot.evaluate.report import Report
from moot.evaluate.training import evaluate_in_training, wins_in_training
from moot.rl.best import NAME as BEST
from moot.rl.best import better_step, ranking
from moot.tokens.played import PlayedDebate
from moot.training.state import History, Setup
from moot.training.weights import weights_of_step


async def evaluate_if_due(setup: Setup, history: History, step: int, sampler: Sampler, last: bool = False) -> None:
    """Before anything, after the warm start, every `eval_every` steps, and at the end; not again for a step that has
    its row."""
    config, run, task = setup.config, setup.run, setup.task
    if not config.eval_every or not task.held_out[: config.eval_questions]:
        return
    iteration = config.iteration(step)
    due = (
        last
        or step in (0, config.warm_steps, config.total_steps)
        or (iteration > 0 and iteration % config.eval_every == 0)
    )
    if not due or any(row["step"] == step and row["phase"] == "eval" for row in run.metrics()):
        return
    setup.watcher.began(step, config.total_steps, "eval")
    started, held_out = time.perf_counter(), list[PlayedDebate]()

    def keep(report: Report, debates: list[PlayedDebate]) -> None:
        held_out.extend(debates)
        report.save(run.held_out_report(step))
        run.write_held_out(step, debates)

    measured = await evaluate_in_training(
        sampler,
        setup.rendering,
        task,
        config,
        debate_settings={name: value for part in setup.parts for name, value in part.debate_settings().items()},
        tempered=setup.tempered,
        opponents=setup.opponents,
        judge=setup.outside_judge(),
        finished=setup.watcher.debate_finished,
        keep=keep,
    )
    if _wins_are_due(setup, step, last or step == config.total_steps):
        start = setup.guest(await weights_of_step(setup, 0, "mode wins of eval_modes"))
        judge = setup.outside_judge() or setup.guest(await setup.engine.base())
        measured |= await wins_in_training(sampler, setup.rendering, task, config, start, judge)
    row = {"step": step, "phase": "eval", **measured, "time/eval_s": time.perf_counter() - started}
    if step >= config.warm_steps:  # from the start on, so that a warm start that was taken over makes no difference
        row |= await history.visits.update(step, "eval", [(task, played) for played in held_out])
        for part in setup.parts:
            row |= part.evaluated(setup, row, sampler)
        history.best = row[BEST] = better_step(run.metrics(), history.best, row, ranking(config, task))
    run.append_metrics(row)
    setup.watcher.row(row)


def _wins_are_due(setup: Setup, step: int, last: bool) -> bool:
    """Where they are asked for, at every evaluation after the start. Where no answer is known and nothing else was
    asked for, at the end: there is no other number that says whether training helped."""
    config, task = setup.config, setup.task
    if step == 0 or "wins" in config.protocol.rules.refused_modes:
        return False
    if config.start and not setup.engine.capabilities.frozen_samplers:
        return False  # the weights it started from cannot stand beside today's
    unknown = not any(map(task.gradable, task.held_out[: config.eval_questions]))
    return "wins" in config.eval_modes or (last and unknown and not config.eval_modes)
