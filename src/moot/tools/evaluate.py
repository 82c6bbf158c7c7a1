"""From a run's checkpoint, or any model, to its report: what `moot eval` and `moot check` share."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from moot.errors import ConfigError
from moot.evaluate import AnswerStore, EvalConfig, EvalWatcher, Report, evaluate
from moot.evaluate.unseen import unseen_questions
from moot.evaluate.wins import Contest
from moot.judges.asking import judge_of
from moot.players.checkpoints import newest_whole
from moot.players.find import Players
from moot.rl.rollout import Player
from moot.runs import Run
from moot.runs.lock import PARTS
from moot.settings.model import ModelConfig
from moot.tasks.task import Task
from moot.tokens.played import PlayedDebate
from moot.util.disk import refuse_links


async def evaluate_players(
    players: Players,
    settings: EvalConfig,
    task: Task,
    count: int,
    watcher: EvalWatcher,
    *,
    step: int | str | None = None,
    opponents: Sequence[str] = (),
    judge: str | None = None,
    out: Path | None = None,
    name: str | None = None,
    beside: Callable[[list[PlayedDebate], Path], Awaitable[object]] | None = None,
) -> tuple[Report, Path]:
    """The policy on up to `count` held-out questions that its run has not trained on; the report, and the folder that
    holds the answers.

    `judge` names who decides between advocates, checks answers, or judges in mode wins; the policy decides or checks
    if nobody is named. What was answered before, with the same weights and settings, is found there again. With the
    debates and the folder, `beside` may ask the players for more. Closes the players.
    """
    config, run = players.config, players.run
    if run is not None and out is None:
        refuse_links(run.path, PARTS)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(players.close)
        at = await players.load(step)
        checkpoint = newest_whole(run, at) if run is not None and at else None
        saved = ((checkpoint and checkpoint.state) or {}).get("further", ())
        questions, notes = unseen_questions(task, None if run is None else config, at, count, saved)
        for note in notes:
            watcher.note(note)
        guests = await players.opponents(opponents) if "opponents" in settings.modes else {}
        identities = {guest: identity for guest, (_, identity) in guests.items()}
        decides, identity = (None, "") if judge is None or not settings.needs_judge else await players.judge(judge)
        contest, rival = None, ""
        if "wins" in settings.modes:
            contest, rival, identity = await _contest(players, run, at, judge or "base")
        settings = replace(settings, policy=players.identity, opponents=identities, judge=identity, rival=rival)
        folder = out or answers_folder(None if run is None else run.path, config.model, task.name, name, at)
        answers = stack.enter_context(contextlib.closing(AnswerStore(folder / "answers.jsonl")))
        seats = {guest: seat for guest, (seat, _) in guests.items()}
        debates: list[PlayedDebate] = []
        report = await evaluate(
            players.policy,
            task,
            settings,
            questions,
            opponents=seats,
            judge=decides,
            contest=contest,
            answers=answers,
            watcher=watcher,
            graded=debates.extend,
        )
        if beside is not None:
            await beside(debates, folder)
    about = {
        "run": None if run is None else str(run.path),
        "step": at,
        "model": config.model.kind.scripted or config.model.model,
    }
    if config.model.kind.scripted and "judge" in report.settings and judge in (None, "base"):
        about["judge"] = "the script"
    return replace(report, settings={**report.settings, **about}), folder


async def _contest(players: Players, run: Run | None, step: int, judge: str) -> tuple[Contest, str, str]:
    """The start and who judges, and what tells each apart from others."""
    if run is None or step == 0:
        raise ConfigError("mode wins compares a run with what it started from; name a run, at a step after 0")
    guests = await players.opponents([f"{run.path}@0", judge])
    (start, rival), (decides, identity) = guests[f"{run.path}@0"], guests[judge]
    if not isinstance(start, Player):
        raise ConfigError("mode wins needs a model's own weights, not a chat server")
    return Contest(start, judge_of(decides)), rival, identity


def answers_folder(run: Path | None, model: ModelConfig, task: str, name: str | None, step: int) -> Path:
    """`RUN/evals/TASK-stepN`, or `evals/MODEL-TASK`, unless it is named."""
    task = re.sub(r"[^\w.=,-]+", "-", task)
    if run is not None:
        return run / "evals" / (name or f"{task}-step{step}")
    return Path("evals") / (name or f"{Path(model.called).name}-{task}")
