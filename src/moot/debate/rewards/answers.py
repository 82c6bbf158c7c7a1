"""Rewards by answers: right ones (truth), or those that most agents give (majority). Per turn, or per agent by its
last answer."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

from moot.debate.reward import Reward, register
from moot.debate.rewards.making import (
    FAILED,
    agent_scores,
    held_answers,
    last_parsed,
    need_right,
    need_same,
    plurality,
    turn_scores,
)
from moot.debate.scores import Grades, Scores
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.errors import ConfigError

SOLUTION = {"solution": "generator"}


def truth(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """1 for a turn with a right answer, 0 for another, -1 for a failed one."""
    correct = need_right(debate, grades, f"reward {scoring.reward}").correct
    return turn_scores(debate, scoring, [float(right) for right in correct], failed=scoring.rule.settings.failed)


def majority(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """1 for a turn that holds the plurality answer of its round, 0 for another, -1 for a failed one. Looks at no
    ground truth, as in TTRL (arXiv 2504.16084).

    Where the question has a label from elsewhere, that is the answer to hold.
    """
    graded = need_same(grades, scoring)
    held = graded.labelled if graded.labelled is not None else _with_most(debate, graded)
    return turn_scores(debate, scoring, [float(equal) for equal in held], failed=FAILED)


def _with_most(debate: Debate, grades: Grades) -> list[bool]:
    """Whether each turn holds the plurality answer of its round."""
    rounds: dict[int, list[int]] = defaultdict(list)
    for i, turn in sorted(enumerate(debate.turns), key=lambda numbered: numbered[1].agent):
        if turn.answers:
            rounds[turn.round].append(i)
    most = {round: plurality([grades.same[i] for i in members]) for round, members in rounds.items()}
    return [
        kind is not None and kind == most.get(turn.round) for turn, kind in zip(debate.turns, grades.same, strict=True)
    ]


def majority_after_reading(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """What most agents hold after they have read each other is right: 1 for a first answer that is that one, 0 for
    another, -1 for a failed one. Later turns teach nothing."""
    graded = need_same(grades, scoring)
    most = plurality(held_answers(debate, graded))
    held = graded.labelled or [most is not None and kind == most for kind in graded.same]
    first = [float(is_held) if turn.round == 1 else None for turn, is_held in zip(debate.turns, held, strict=True)]
    return turn_scores(debate, scoring, first, failed=FAILED)


def random_votes(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """1 or 0 for an answer, whatever it is, by a toss that its question, round and agent decide; 0 for a turn without
    one. A control: what a reward that knows nothing teaches."""
    graded = need_same(grades, scoring)

    def tossed(i: int) -> float:
        turn = debate.turns[i]
        toss = random.Random(f"{debate.question.text}/{turn.round}/{turn.agent}").random()
        return float(graded.answers[i] is not None and toss < scoring.rule.settings.share)

    return turn_scores(debate, scoring, [tossed(i) for i in range(len(debate.turns))], failed=0.0)


def truth_last(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """1 for a right last answer, otherwise 0. A baseline, not a peer reward."""
    correct = need_right(debate, grades, f"reward {scoring.reward}").correct
    return agent_scores(debate, [i is not None and correct[i] for i in last_parsed(debate)])


def majority_last(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """1 for holding the debate's plurality answer, otherwise 0. A baseline that needs a grader but no ground truth."""
    graded = need_same(grades, scoring)
    if graded.labelled is not None:
        return agent_scores(debate, [i is not None and graded.labelled[i] for i in last_parsed(debate)])
    held = held_answers(debate, graded)
    most = plurality(held)
    return agent_scores(debate, [most is not None and answer == most for answer in held])


@dataclass(frozen=True)
class TruthSettings:
    failed: float = FAILED
    """Paid to a failed turn. Where answers are searched for at length, 0 makes a cut one no worse than a guess."""


@dataclass(frozen=True)
class RandomSettings:
    share: float = 0.5
    """Of the answers, those that are paid 1."""

    def __post_init__(self) -> None:
        if isinstance(self.share, int | float) and not 0 <= self.share <= 1:
            raise ConfigError(f"share must be between 0 and 1, got {self.share}; 0.5 is a coin")


_of_answers = partial(Reward, per="turn", estimator="center_round", sections=SOLUTION)
register(_of_answers("truth", truth, grades="right", settings=TruthSettings()))
register(_of_answers("majority", majority, grades="same"))
register(_of_answers("majority_after_reading", majority_after_reading, grades="same"))
register(_of_answers("random", random_votes, grades="same", settings=RandomSettings()))
register(Reward("truth_last", truth_last, per="agent", grades="right"))
register(Reward("majority_last", majority_last, per="agent", grades="same"))
