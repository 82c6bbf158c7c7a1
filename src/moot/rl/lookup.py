"""The reward and the estimator that a name stands for: one of ours, or a user's own as `path.py:function`."""

from __future__ import annotations

from moot.debate.reward import reward_named, reward_names
from moot.debate.rewards import REWARDS, Reward, as_reward, remember
from moot.debate.scores import Per
from moot.debate.scoring import Scoring
from moot.debate.typed_fields import near
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS, PER_TURN, Estimator
from moot.util.user_code import load


def find_reward(name: str) -> Reward:
    if name in REWARDS or name.partition(":")[0] in REWARDS:
        return reward_named(name)
    if ":" not in name:
        raise ConfigError(f"reward must be one of {reward_names()}, got {name!r}{near(name, REWARDS)}")
    return remember(as_reward(load(name, "reward"), name))


def estimator_names() -> str:
    """How an estimator may be named, for help and messages."""
    return f"{', '.join(ESTIMATORS)}, auto or path.py:function"


def find_estimator(scoring: Scoring) -> Estimator:
    """The one that `scoring` names, or that belongs to its reward."""
    name = scoring.estimator
    if name in ESTIMATORS:
        check_fits(scoring, scoring.rule.per)
        return ESTIMATORS[name]
    if ":" not in name:
        raise ConfigError(f"advantage must be one of {estimator_names()}, got {name!r}{near(name, ESTIMATORS)}")
    return load(name, "advantage")


def check_fits(scoring: Scoring, per: Per | None) -> None:
    """Refuses one of our estimators that needs rewards per turn, where the reward is `per` agent."""
    if per == "agent" and ESTIMATORS.get(scoring.estimator) in PER_TURN:
        why = f"advantage {scoring.estimator} needs rewards per turn, and {scoring.reward} is per agent"
        raise ConfigError(f"{why}; use center_group")
