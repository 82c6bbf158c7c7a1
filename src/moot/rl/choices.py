"""The reward and the estimator that a name stands for: one of ours, or a user's own as `path.py:function`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from moot.debate.choices import near
from moot.debate.rewards import REWARDS, Grades, Reward, Scores, StepScores, Stream, agent_scores
from moot.debate.scoring import BY_TURN, Scoring
from moot.debate.state import Debate
from moot.debate.types import ConfigError
from moot.rl.advantages import ESTIMATORS, Estimator
from moot.users import load


def find_reward(name: str) -> Reward:
    if name in REWARDS:
        return REWARDS[name]
    if ":" not in name:
        raise ConfigError(f"reward must be one of {', '.join(REWARDS)} or path.py:function, got {name!r}{near(name, REWARDS)}")
    return users_reward(load(name, "reward"), name)


def find_estimator(scoring: Scoring) -> Estimator:
    """The one that `scoring` names, or that belongs to its reward."""
    name, reward = scoring.estimator, scoring.reward
    if name in ESTIMATORS:
        if name == "center_round" and reward in REWARDS and reward not in ("generator_judge", *BY_TURN):
            raise ConfigError(f"advantage center_round needs rewards per turn, and {reward} is per agent; use center_group")
        return ESTIMATORS[name]
    if ":" not in name:
        names = ", ".join(ESTIMATORS)
        raise ConfigError(f"advantage must be one of {names}, auto or path.py:function, got {name!r}{near(name, ESTIMATORS)}")
    return load(name, "advantage")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def users_reward(function: Callable[[Debate], Any], name: str) -> Reward:
    """A user's own: from a debate alone to one number per agent, or to one list of numbers (one per step) per agent."""

    def reward(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
        returned = function(debate)
        given = list(returned) if isinstance(returned, Iterable) else []
        if len(given) != debate.num_agents:
            raise ConfigError(f"{name} must return one entry for each of {debate.num_agents} agents, got {returned!r:.80}")
        if all(_is_number(value) for value in given):
            return agent_scores(debate, [float(value) for value in given])
        rows = [list(row) if isinstance(row, Iterable) else [] for row in given]
        if [len(row) for row in rows] != [len(row) for row in debate.steps()] or not all(_is_number(v) for row in rows for v in row):
            raise ConfigError(f"{name} must return a finite number per agent, or one for each of an agent's turns, got {returned!r:.80}")
        values = tuple(tuple(float(value) for value in row) for row in rows)
        nothing = tuple(tuple(0.0 for _ in row) for row in values)
        return StepScores({"step": Stream(values, values, nothing)})

    return reward
