"""Rewards by judges without a seat who check answers: one by one (approval, approved), or two at a time (pairs).

The checks are kept with the debate, so that how many of them count, and how sure they must be, can be chosen again when
it is over. No agent votes, and no stream pays for judging.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from moot.debate.checks import (
    EQUAL,
    Check,
    Rules,
    Show,
    approval,
    generator_reward,
    is_vote,
    over_rules,
    pairs_of,
    scores_in_pairs,
    values_by_turn,
)
from moot.debate.reward import Reward, register
from moot.debate.rewards.making import FAILED, by_agent, paid_stream
from moot.debate.scores import Grades, Scores
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.errors import ConfigError

MOST = 1000
"""Checks or opponents of an answer: a run may come from somebody else, and all are asked for at once."""
ANSWER = {"solution": "generator", "evaluation": "generator"}


@dataclass(frozen=True)
class ApprovalSettings:
    checks: int = 4
    """How often a judge checks each answer; the score is the mean."""
    vote_margin: float = 0.0
    """A score s with |2s - 1| below this is no vote."""
    show: Show = "solution"
    """What a judge is shown of an answer: the whole solution, or the final answer alone."""
    rules: Rules = "together"
    """mean, least: it is asked about each rule of the question alone, `checks` times; the score is their mean, or the
    least of them."""

    def __post_init__(self) -> None:
        _check_count("checks", self.checks)
        _check_margin(self.vote_margin)


@dataclass(frozen=True)
class PairsSettings:
    opponents: int = 2
    """How many answers of its round with another result each answer meets at most."""
    vote_margin: float = 0.0
    """A score s with |2s - 1| below this is no vote."""
    show: Show = "solution"
    """What a judge is shown of an answer: the whole solution, or the final answer alone."""

    def __post_init__(self) -> None:
        _check_count("opponents", self.opponents)
        _check_margin(self.vote_margin)


def _check_count(name: str, value: int) -> None:
    if isinstance(value, int) and not 1 <= value <= MOST:
        limit = "at least 1" if value < 1 else f"at most {MOST}"
        raise ConfigError(f"{name} must be {limit}, got {value}")


def _check_margin(value: float) -> None:
    if isinstance(value, int | float) and not 0 <= value <= 1:
        raise ConfigError(f"vote_margin must be between 0 and 1, got {value}; 0 counts every score")


def checks_of(debate: Debate, scoring: Scoring) -> tuple[Check, ...]:
    """What judges made of its answers."""
    if debate.checks is None and any(turn.answers for turn in debate.turns):
        raise ConfigError(
            f"reward {scoring.reward} needs the checks of judges without a seat, and nobody checked this debate; train "
            f"or evaluate with --reward {scoring.reward}"
        )
    return debate.checks or ()


def scores_by_turn(debate: Debate, scoring: Scoring) -> dict[int, list[float]]:
    """The scores of each answer that judges were shown: one of approval, or one for each of its pairs."""
    checks, rule = checks_of(debate, scoring), scoring.rule
    if rule.ballot == "pairs":
        pairs = pairs_of(checks)
        return {turn: scores_in_pairs(pairs, turn) for pair in pairs for turn in (pair.one, pair.other)}
    count, scores = rule.settings.checks, dict[int, list[float]]()
    for turn, by_rule in values_by_turn(checks).items():
        if rule.each_rule == ("" in by_rule):
            raise ConfigError(
                f"reward {scoring.reward} needs checks of {'each rule alone' if rule.each_rule else 'whole questions'}"
                ", and the judges of this debate were asked for the other; train or evaluate again with it"
            )
        if (fewest := min(len(values) for by_judge in by_rule.values() for values in by_judge)) < count:
            raise ConfigError(
                f"reward {scoring.reward} needs {count} checks of each answer, and this debate has {fewest}; use "
                f"--reward {rule.name.partition(':')[0]}:checks={fewest}, or fewer"
            )
        means = [approval([v for values in by_judge for v in values[:count]]) for by_judge in by_rule.values()]
        scores[turn] = [over_rules([mean for mean in means if mean is not None], rule.rules)]
    return scores


def by_scores(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """2s - 1 of each answer, or the mean over its pairs. A score that is no vote has no signal, and neither has an
    answer with nothing to show; -1 for a failed turn comes after centring."""
    scores, margin = scores_by_turn(debate, scoring), scoring.rule.settings.vote_margin
    return _paid(
        debate,
        scoring,
        lambda i: None if debate.turns[i].failed else generator_reward(scores.get(i, ()), margin),
        lambda i: FAILED if debate.turns[i].failed else 0.0,
    )


def by_approval(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """1 for an answer that is surely approved, 0 for every other, also where there was nothing to show, and for a
    failed turn."""
    scores, margin = scores_by_turn(debate, scoring), scoring.rule.settings.vote_margin

    def reward(i: int) -> float | None:
        sure = any(score > 0.5 + EQUAL and is_vote(score, margin) for score in scores.get(i, ()))
        return None if debate.turns[i].ballot else float(sure)

    return _paid(debate, scoring, reward, lambda i: 0.0)


def _paid(
    debate: Debate, scoring: Scoring, value: Callable[[int], float | None], added: Callable[[int], float]
) -> Scores:
    stream = paid_stream(by_agent(debate, value), by_agent(debate, added), scoring.lambda_gen, scoring.rule.lowest)
    return Scores({"generator": stream}, scoring.stream_of)


for _reward in (
    Reward("approval", by_scores, per="turn", ballot="approval", settings=ApprovalSettings(), lowest=-1.0),
    Reward(
        "approved",
        by_approval,
        per="turn",
        ballot="approval",
        settings=ApprovalSettings(vote_margin=0.5),
        estimator="center_round",
    ),
    Reward("pairs", by_scores, per="turn", ballot="pairs", settings=PairsSettings(), lowest=-1.0),
):
    register(replace(_reward, from_votes=True, sections=ANSWER))
