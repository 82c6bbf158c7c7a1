"""`moot judge` in short, for `moot check`: the judge that a run would begin with is asked as it would be asked there,
about the answers of the debates that were just played."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from moot.debate.types import Question
from moot.evaluate import AnswerStore, EvalWatcher
from moot.evaluate.preflight import Finding, Requirement, told_finding
from moot.judges.asking import judge_of
from moot.players.checkpoints import own_judge
from moot.players.find import Players
from moot.settings.train import TrainConfig
from moot.tasks.task import Task
from moot.tokens.played import PlayedDebate
from moot.tools.judge import Trial, TrialConfig, TrialRow, Way, check_verdict, graded
from moot.training.parts import find_parts

ACCURATE, COVERAGE = 0.65, 0.3
REMEDY = (
    "This judge tells right answers from wrong ones too seldom to teach. Compare others, and other ways to ask, with "
    "moot judge: more checks (--reward approval:checks=8), another model (--judge), or --reward majority."
)


def judge_named(config: TrainConfig) -> str:
    """The judge that a run of these settings begins with; empty where it has none. One that a part brings is the model
    before training."""
    return config.outside_judge or ("base" if any(part.brings_judge for part in find_parts(config)) else "")


def way_of(config: TrainConfig) -> tuple[Way, TrialConfig]:
    """How such a run asks it."""
    own = (asked for part in find_parts(config) if (asked := part.asks()))
    asks = next(own, config.protocol.scoring.rule.asks)
    shown, rules = asks.get("show", "solution"), asks.get("rules", "together")
    way = Way(judge_named(config), asks["ballot"], shown, config.prompts, rules=rules)
    return way, TrialConfig(
        (asks.get("checks", 1),),
        asks.get("opponents", 2),
        config.debate.evaluation_tokens,
        config.protocol.rules.temperature,
        config.seed,
        256,
    )


async def ask_judge(
    players: Players,
    config: TrainConfig,
    task: Task,
    debates: Sequence[PlayedDebate],
    folder: Path,
    watcher: EvalWatcher,
) -> TrialRow:
    """Every answer that could be read is an answer to its question. What was asked before is found in the folder."""
    way, settings = way_of(config)
    if not config.recipe.judge and (own := own_judge(players.run)):
        way = replace(way, judge=own)  # it has learned since
    answers: dict[Question, list[str]] = {}
    for played in debates:
        said = [turn.solution for turn in played.debate.turns if turn.answers]
        answers.setdefault(played.debate.question, []).extend(said)
    guest, identity = await players.judge(way.judge)
    with contextlib.closing(AnswerStore(folder / "verdicts.jsonl", check_verdict)) as verdicts:
        answered = graded({question: texts for question, texts in answers.items() if texts}, task)
        trial = Trial(answered, {way.judge: judge_of(guest)}, {way.judge: identity}, settings, verdicts, watcher)
        await trial.ask([way])
        (row,) = trial.rows([way])
    return row


def judge_finding(row: TrialRow) -> Finding:
    """Go where it is right in 65% of the pairs whose scores differ most, three in ten of all."""
    requirement = Requirement(f"judge {row}", "judge", "judge", ACCURATE, REMEDY)
    measures = row.measures
    note = f"the surest {COVERAGE:.0%} of {measures.pairs} pairs of a right and a wrong answer"
    if measures.pair_accuracy is None:
        note = "no question has both right and wrong answers that this judge scored"
    return told_finding(requirement, measures.precision_30, measures.pairs, measures.questions, note)
