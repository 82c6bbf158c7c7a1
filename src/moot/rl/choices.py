"""The reward and the estimator that a name stands for: one of ours, or a user's own as `path.py:function`."""

from __future__ import annotations

from moot.debate.rewards import REWARDS, Reward, users_reward
from moot.debate.types import ConfigError
from moot.rl.advantages import ESTIMATORS, Estimator
from moot.users import load


def find_reward(name: str) -> Reward:
    if name in REWARDS:
        return REWARDS[name]
    if ":" not in name:
        raise ConfigError(f"reward must be one of {', '.join(REWARDS)} or path.py:function, got {name!r}")
    return users_reward(load(name, "reward"), name)


def find_estimator(name: str, reward: str) -> Estimator:
    if name in ESTIMATORS:
        if name == "center_round" and reward in REWARDS and reward != "generator_judge":
            raise ConfigError(f"advantage center_round needs rewards by step, and {reward} is by agent; use center_group")
        return ESTIMATORS[name]
    if ":" not in name:
        raise ConfigError(f"advantage must be one of {', '.join(ESTIMATORS)} or path.py:function, got {name!r}")
    return load(name, "advantage")
