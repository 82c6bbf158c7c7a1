"""How good the judges are whose checks make a reward, step by step, and whether they decay while the policy learns.

Counted debate by debate, because the answers to one question hang together; the definitions are those of `moot judge`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from moot.debate.checks import EQUAL
from moot.debate.rewards import scores_by_turn
from moot.rl.metrics import Metrics, mean
from moot.tokens.played import PlayedDebate
from moot.util.intervals import Interval, cautious_difference, cautious_interval

PAIR_ACCURACY, J = "trust/judge_pair_accuracy", "trust/judge_j"
KEYS = (PAIR_ACCURACY, J)
STEPS, ENOUGH, DRAWS = 5, 20, 2000
ONE_SIDED = 0.9
"""A judge that approves more than this share of all answers, or less than the rest, tells nothing apart."""


@dataclass(frozen=True)
class Judged:
    """What judges made of one debate's answers: where it has right and wrong ones, or, in the last two, where nobody
    knows."""

    wins: float = 0.0
    """Pairs of a right and a wrong answer in which the right one has the higher score; level ones count half."""
    pairs: float = 0.0
    right_approved: float = 0.0
    right: float = 0.0
    wrong_approved: float = 0.0
    wrong: float = 0.0
    approved: float = 0.0
    """Of answers that were scored one by one and are not known to be right or wrong: where all are right, to approve
    all is no decay."""
    scored: float = 0.0


def judged(played: PlayedDebate) -> Judged:
    rule, checks = played.scoring.rule, played.debate.checks
    if not rule.checked or not checks:
        return Judged()
    means = {turn: mean(own) for turn, own in scores_by_turn(played.debate, played.scoring).items()}
    scores = {turn: score for turn, score in means.items() if score is not None}
    one_by_one = rule.ballot == "approval"
    approved = {turn: float(one_by_one and score > 0.5 + EQUAL) for turn, score in scores.items()}
    if not played.answer_known:
        return Judged(approved=sum(approved.values()), scored=float(len(scores) * one_by_one))
    right = [turn for turn in scores if played.correct(turn)]
    wrong = [turn for turn in scores if not played.correct(turn)]
    if not right or not wrong:
        return Judged()
    gaps = [scores[a] - scores[b] for a in right for b in wrong]
    return Judged(
        sum(0.5 if abs(gap) < EQUAL else float(gap > 0) for gap in gaps),
        float(len(gaps)),
        sum(approved[turn] for turn in right),
        float(len(right) * one_by_one),
        sum(approved[turn] for turn in wrong),
        float(len(wrong) * one_by_one),
    )


def judge_metrics(debates: Sequence[PlayedDebate]) -> Metrics:
    """Nothing where no judge was asked for checks."""
    if all(played.debate.checks is None for played in debates):
        return {}
    total = _sum([judged(played) for played in debates])
    right, wrong = _share(total.right_approved, total.right), _share(total.wrong_approved, total.wrong)
    return {
        PAIR_ACCURACY: _share(total.wins, total.pairs),
        J: None if right is None or wrong is None else right - wrong,
    }


def _share(top: float, bottom: float) -> float | None:
    return top / bottom if bottom else None


def _sum(counts: Sequence[Judged]) -> Judged:
    return Judged(*map(sum, zip(*map(astuple, counts), strict=True))) if counts else Judged()


@dataclass
class JudgeWatch:
    """The first five steps and the last five, debate by debate."""

    first: list[list[Judged]] = field(default_factory=list)
    last: deque[list[Judged]] = field(default_factory=lambda: deque(maxlen=STEPS))

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        steps = {"first": self.first, "last": self.last}
        return {name: [[astuple(counts) for counts in step] for step in kept] for name, kept in steps.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> JudgeWatch:
        first, last = (
            [[Judged(*map(float, counts)) for counts in step] for step in state[name]] for name in ("first", "last")
        )
        return cls(first, deque(last, maxlen=STEPS))

    def update(self, debates: Sequence[PlayedDebate]) -> float | None:
        """1 where judges have become worse, 0 where not, None where nobody was asked for checks or too little was
        seen."""
        counted = [judged(played) for played in debates if played.debate.checks is not None]
        self.last.append(counted)
        if len(self.first) < STEPS:
            self.first.append(counted)
        first, last = ([counts for step in steps for counts in step] for steps in (self.first, self.last))
        if len(last) < ENOUGH:
            return None
        if not _sum(last).pairs:
            approved = _share(_sum(last).approved, _sum(last).scored)
            return None if approved is None else float(not 1 - ONE_SIDED <= approved <= ONE_SIDED)
        return float(_fell(first, last))


def _fell(first: Sequence[Judged], last: Sequence[Judged]) -> bool:
    """Whether the interval of either measure lies below that of the first steps."""
    before, now = ([_accuracy(counts), _j(counts)] for counts in (first, last))
    return any(old and new and new.high < old.low for old, new in zip(before, now, strict=True))


def _accuracy(counts: Sequence[Judged]) -> Interval | None:
    return cautious_interval([one.wins for one in counts], [one.pairs for one in counts], resamples=DRAWS)


def _j(counts: Sequence[Judged]) -> Interval | None:
    right = [one.right_approved for one in counts], [one.right for one in counts]
    wrong = [one.wrong_approved for one in counts], [one.wrong for one in counts]
    return cautious_difference(right, wrong, resamples=DRAWS)
