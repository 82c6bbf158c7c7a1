"""A user's own reward: a plain function, or a `Reward` of theirs."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from moot.debate.reward import REWARDS, Reward
from moot.debate.rewards.making import agent_scores
from moot.debate.scores import EVERY, TURN, Grades, Scores, Stream
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.errors import ConfigError


def as_reward(given: Callable[..., Any] | Reward, name: str = "") -> Reward:
    """What a user hands in, as a reward called `name`: a `Reward`; or a function of the debate, or of the debate and
    its grades, to one number per agent, or to one list of numbers (one per turn) per agent."""
    if isinstance(given, Reward):
        return given
    inner = getattr(given, "__wrapped__", None)
    if isinstance(inner, Reward):  # from a file, so that what fails in it is told with its line
        return replace(inner, name=name or inner.name, pay=given)
    called = name or _place(given)
    graded = _takes_grades(given)

    @functools.wraps(given)
    def pay(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
        return _scores(debate, given(debate, grades) if graded else given(debate), called)

    return Reward(called, pay, per=None, grades="same" if graded else "none")


def _takes_grades(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in: it says nothing about itself
        return False
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) > 1


def _place(function: Callable[..., Any]) -> str:
    """path.py:function, where another process can find it so; otherwise a name that is no other function's."""
    code, name = getattr(function, "__code__", None), str(getattr(function, "__qualname__", type(function).__name__))
    if code is not None and name.isidentifier() and Path(code.co_filename).is_file():
        return f"{code.co_filename}:{name}"
    names = (f"python:{name}{number}" for number in ("", *(f"#{n}" for n in range(2, 10**6))))
    return next(
        name for name in names if name not in REWARDS or getattr(REWARDS[name].pay, "__wrapped__", None) is function
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _scores(debate: Debate, returned: Any, name: str) -> Scores:
    given = list(returned) if isinstance(returned, Iterable) else []
    if len(given) != debate.num_agents:
        raise ConfigError(f"{name} must return one entry for each of {debate.num_agents} agents, got {returned!r:.80}")
    if all(_is_number(value) for value in given):
        return agent_scores(debate, given)
    rows = [list(row) if isinstance(row, Iterable) else [] for row in given]
    counts = [len(turns) for turns in debate.turns_by_agent()]
    if [len(row) for row in rows] != counts or not all(_is_number(value) for row in rows for value in row):
        raise ConfigError(
            f"{name} must return a finite number per agent, or one for each of an agent's turns, got {returned!r:.80}"
        )
    values = tuple(tuple(float(value) for value in row) for row in rows)
    return Scores({TURN: Stream(values, values, tuple((0.0,) * len(row) for row in values))}, {EVERY: TURN})
