"""Wins against the start: the policy's answer beside the one of the model it started from, put to a judge.

For open-ended work, where nothing is right or wrong. Both answer the same question plainly; the judge reads the two in
both orders, and its score is P(A) / (P(A) + P(B)), averaged over the orders.
"""

from __future__ import annotations

from dataclasses import dataclass

from moot.debate.checks import EQUAL, Pair
from moot.debate.plain import plain_answers
from moot.debate.prompt_texts import Prompts
from moot.debate.types import Question
from moot.engine.protocol import SamplingParams
from moot.evaluate.counting import QuestionCounts
from moot.evaluate.store import Record
from moot.judges.asking import Asked, Judge
from moot.rl.rollout import Player, TextPlayer

VERDICT = "verdict"
"""The kind of sample; its number is the order: 0 shows the policy's answer first, 1 the start's."""


@dataclass(frozen=True)
class Contest:
    """Whom the policy is compared with, and who judges."""

    start: Player | TextPlayer
    judge: Judge


async def verdict(
    judge: Judge,
    question: Question,
    ours: Record,
    theirs: Record,
    number: int,
    params: SamplingParams,
    prompts: Prompts,
) -> Record:
    """What the judge says of the two in the order of this number. It is not asked about what is the same, or empty.
    Raises EngineError."""
    pair = (solution_of(question, ours), solution_of(question, theirs))
    first, second = pair if number == 0 else pair[::-1]
    if first == second or not (first and second):
        value = 0.5 if first == second else float(bool(first))
        return {"text": "", "stop": "stop", "tokens": 0, "value": value}
    check = await judge.check(Asked(question, (first, second), "pairs", "solution", prompts), params)
    return {"text": check.thinking, "stop": "stop", "tokens": check.tokens or 0, "value": check.value}


def solution_of(question: Question, record: Record) -> str:
    (turn,) = plain_answers(question, [record["text"]]).turns
    return turn.solution.strip()


def count_wins(ours: Record, theirs: Record, verdicts: tuple[Record, Record]) -> QuestionCounts:
    """A win is a score above one half; a level score is half a win."""
    pair = Pair(0, 1, float(verdicts[0]["value"]), float(verdicts[1]["value"]))
    level = abs(pair.score - 0.5) < EQUAL
    won = 0.5 if level else float(pair.score > 0.5)
    stops = [record["stop"] for record in (ours, theirs)]
    shares = {
        "wins": (won, 1.0),
        "score": (pair.score, 1.0),
        "flips": (float(pair.flips), 1.0),
        "cut": (float(stops.count("length")), 2.0),
    }
    return QuestionCounts(shares, sum(record["tokens"] for record in (ours, theirs, *verdicts)))
