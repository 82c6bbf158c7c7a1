"""The majority, weighted by a judge whose worth is known.

An answer is one vote for itself, and the judge's score of it is another, with the weight that belongs to a voter who is
right with probability p: log(p / (1 - p)) (Nitzan and Paroush 1982). A judge that approves right answers more often
than wrong ones by J, and is as good at either, has p = (1 + J) / 2. With J = 0 this is the plain majority; near 1 the
judge decides alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from moot.debate.checks import EQUAL, Show
from moot.debate.reward import Reward, register
from moot.debate.rewards.answers import SOLUTION
from moot.debate.rewards.checked import ApprovalSettings, scores_by_turn
from moot.debate.rewards.making import FAILED, need_same, turn_scores
from moot.debate.scores import Grades, Scores
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.errors import ConfigError


@dataclass(frozen=True)
class WeightedSettings:
    checks: int = ApprovalSettings.checks
    """How often a judge checks each answer; the score is the mean."""
    j: float = 0.3
    """What `moot judge` measured of it: right answers that it approves minus wrong ones."""
    show: Show = "solution"
    """What a judge is shown of an answer: the whole solution, or the final answer alone."""

    def __post_init__(self) -> None:
        ApprovalSettings(self.checks)
        if isinstance(self.j, int | float) and not -1 < self.j < 1:
            raise ConfigError(f"j must be above -1 and below 1, got {self.j}; moot judge measures it")


def weighted_majority(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """1 for a turn that holds the answer with the most votes of its round, 0 for another, -1 for a failed one."""
    graded, scores = need_same(grades, scoring), scores_by_turn(debate, scoring)
    judge = 2 * math.atanh(scoring.rule.settings.j)  # log((1 + J) / (1 - J))
    votes: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for i, turn in sorted(enumerate(debate.turns), key=lambda numbered: numbered[1].agent):
        if (kind := graded.same[i]) is not None:
            (score,) = scores.get(i, [0.0])  # one in which there was nothing to show is not approved
            votes[turn.round][kind] += 1 + judge * (2 * score - 1)
    most = {round: _first_of_most(own) for round, own in votes.items()}
    turns = zip(debate.turns, graded.same, strict=True)
    held = graded.labelled or [kind is not None and kind == most[turn.round] for turn, kind in turns]
    return turn_scores(debate, scoring, [float(is_held) for is_held in held], failed=FAILED)


def _first_of_most(votes: dict[int, float]) -> int:
    """Of level ones the one that the lowest-numbered agent holds."""
    most = max(votes.values())
    return next(kind for kind, count in votes.items() if count >= most - EQUAL)


register(
    Reward(
        "weighted_majority",
        weighted_majority,
        per="turn",
        from_votes=True,
        grades="same",
        estimator="center_round",
        sections=SOLUTION,
        ballot="approval",
        settings=WeightedSettings(),
    )
)
