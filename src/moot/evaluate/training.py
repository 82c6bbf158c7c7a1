"""Evaluation during training: the same evaluator, its numbers under the names of a run's metrics.

Debates of the policy with itself are always played. What `eval_modes` names comes beside them: plain answers, votes,
and debates in which the policy takes each seat once against fixed opponents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from moot.engine.protocol import Sampler
from moot.evaluate.modes import EvalConfig
from moot.evaluate.play import evaluate
from moot.evaluate.report import Report, ReportRow
from moot.evaluate.store import question_key
from moot.evaluate.wins import Contest
from moot.judges.asking import judge_of
from moot.rl.metrics import Metrics, answer_metrics, rollout_metrics
from moot.rl.rollout import Guest, Player
from moot.rl.trust import panel
from moot.settings.train import TrainConfig
from moot.tasks.task import Task
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering


async def evaluate_in_training(
    sampler: Sampler,
    rendering: Rendering,
    task: Task,
    config: TrainConfig,
    *,
    debate_settings: Mapping[str, Any] | None = None,
    tempered: bool = True,
    opponents: Mapping[str, Guest] | None = None,
    judge: Guest | None = None,
    finished: Callable[[PlayedDebate], None] = lambda _: None,
    keep: Callable[[Report, list[PlayedDebate]], None] = lambda report, debates: None,
) -> Metrics:
    """The seed is the run's own each time, so that two evaluations differ by the weights alone. `keep` gets the whole
    report, question by
    question, so that two of them can be compared in pairs, and the debates that it counted, in the order of the
    questions.
    `debate_settings` are what the parts of the run change in a debate."""
    rollouts, graded = list[PlayedDebate](), list[PlayedDebate]()

    def played(kind: str, rollout: PlayedDebate) -> None:
        if kind == "debate":
            rollouts.append(rollout)
            finished(rollout)

    settings = EvalConfig.of(
        config,
        modes=("debate", *(mode for mode in config.eval_modes if mode != "wins")),
        tempered=tempered,
        **debate_settings or {},
    )
    questions = task.held_out[: config.eval_questions]
    policy = Player(sampler, rendering)
    report = await evaluate(
        policy, task, settings, questions, opponents=opponents, judge=judge, played=played, graded=graded.extend
    )
    # What was graded was read from its text, and knows nothing of tokens.
    spoken = {question_key(rollout.debate.question): rollout for rollout in rollouts}
    same = ((spoken[question_key(counted.debate.question)], counted) for counted in graded)
    keep(
        report,
        [replace(own, scoring=counted.scoring, grades=counted.grades, scores=counted.scores) for own, counted in same],
    )
    debates, *others = report.rows
    names = answer_metrics([], [], task.name, phase="test")
    return {
        **rollout_metrics(rollouts),
        **{name: _value(debates, name.rpartition("/")[2]) for name in names},
        **(report.trust or panel([])),
        "test/valid_turns": _value(debates, "valid_turns"),
        "test/turns_with_vote": _value(debates, "turns_with_vote"),
        **report.flat(f"test_{task.name}/", others),
    }


MOST_QUESTIONS = 32
"""Of an evaluation's, in mode wins: each costs two answers and two verdicts."""


async def wins_in_training(
    sampler: Sampler, rendering: Rendering, task: Task, config: TrainConfig, start: Player, judge: Guest
) -> Metrics:
    """The policy's answers beside the start's, to the first held-out questions."""
    settings = EvalConfig.of(config, modes=("wins",))
    questions = task.held_out[: min(config.eval_questions, MOST_QUESTIONS)]
    contest = Contest(start, judge_of(judge))
    report = await evaluate(Player(sampler, rendering), task, settings, questions, contest=contest)
    return {**report.flat(f"test_{task.name}/"), "test/wins_questions": float(report.rows[0].questions)}


def _value(row: ReportRow, metric: str) -> float | None:
    number = row.metrics.get(metric)
    return None if number is None else number["value"]
