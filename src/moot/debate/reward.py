"""A reward: what a debate pays, and what everybody else needs to know about it. Adding one is one object, in one file.

    register(Reward("short", short, per="agent"))

A reward may have settings of its own. They are written behind its name, as in `approval:checks=8,vote_margin=0.2`, so
that a run, a record and a command line name all of it by one word.

`moot.debate.rewards` has the ones that moot brings, and what they are made with: `agent_scores`, `turn_scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from moot.debate.checks import Ballot, Rules
from moot.debate.scores import AGENT, EVERY, TURN, Grades, Per, Scores
from moot.debate.typed_fields import as_json, read_fields
from moot.errors import ConfigError

if TYPE_CHECKING:
    from moot.debate.scoring import Scoring
    from moot.debate.state import Debate

ASKED = ("checks", "opponents", "show")
"""Settings of a reward that say what judges were asked; the others say how it is counted."""
Pay = Callable[["Debate", "Scoring", Grades | None], Scores]
"""From a debate, how votes count, and what a grader found (None where nobody graded). What judges said of its turns is
in the debate."""


@dataclass(frozen=True)
class Reward:
    name: str
    pay: Pay
    per: Per | None
    """Whether it pays each turn, or each agent once for the whole debate. None where nobody knows before it pays: a
    user's function."""
    from_votes: bool = False
    """Made of votes, of agents or of judges: nobody wins without one, and known answers can be mixed in."""
    grades: Literal["none", "same", "right"] = "none"
    """What it asks of a grader: nothing, which answers are the same, or which are right."""
    estimator: str = "center_group"
    """The one that belongs to it; another may be named."""
    sections: Mapping[str, str] | None = None
    """Which stream pays for the tokens of which section; None where one stream pays for every token."""
    lowest: float = 0.0
    """The least that a turn, or an agent, can get before penalties, where 1 is the most."""
    ballot: Ballot = "lines"
    """What judges without a seat are asked for: comparison lines, or checks of single answers or of pairs. With checks,
    judges alone decide, and agents need not vote."""
    settings: Any = None
    """Those of its own, in a frozen dataclass."""

    def __call__(self, debate: Debate, scoring: Scoring, grades: Grades | None = None) -> Scores:
        return self.pay(debate, scoring, grades)

    @property
    def stream_of(self) -> Mapping[str, str]:
        return self.sections or {EVERY: AGENT if self.per == "agent" else TURN}

    @property
    def our_own(self) -> bool:
        """Whether it has a plain name, settings apart: a user's is called by its place, as path.py:function."""
        return ":" not in self.name or self.settings is not None

    @property
    def asks(self) -> dict[str, Any]:
        """What judges were asked for: this cannot be chosen again when a debate is over."""
        settings = {} if self.settings is None else as_json(self.settings)
        asked = {"ballot": self.ballot, **{name: settings[name] for name in sorted(settings) if name in ASKED}}
        return {**asked, "rules": self.rules} if self.each_rule else asked

    @property
    def rules(self) -> Rules:
        """What approval asks about, and what the score is made of."""
        rules: Rules = getattr(self.settings, "rules", "together")
        return rules

    @property
    def each_rule(self) -> bool:
        """Whether judges are asked about each rule of a question alone."""
        return self.rules != "together"

    @property
    def checked(self) -> bool:
        """Whether judges score its answers by checks."""
        return self.ballot != "lines"


REWARDS: dict[str, Reward] = {}
"""By name, in the order of help and messages."""
_LOADED: dict[str, Reward] = {}
"""Users' own by path.py:function, as they were last read."""


def register(reward: Reward) -> Reward:
    """From here on `reward` can be named wherever a reward is named."""
    known = REWARDS.setdefault(reward.name, reward)
    if known is not reward and known.our_own:
        raise ConfigError(f"reward {reward.name!r} is there already; give yours another name")
    REWARDS[reward.name] = reward
    return reward


def remember(reward: Reward) -> Reward:
    """What was read from a user's file. The file is read anew whenever the reward is looked for, so this is for what
    asks about it."""
    _LOADED[reward.name] = reward
    return reward


def reward_names() -> str:
    """How a reward may be named, for help and messages."""
    return f"{', '.join(name for name, reward in REWARDS.items() if reward.our_own)} or path.py:function"


def reward_named(name: str) -> Reward:
    """The reward of that name, with the settings that stand behind it; for a user's that was not read, one that says
    nothing about itself and cannot pay."""
    plain, colon, written = name.partition(":")
    if colon and (ours := REWARDS.get(plain)) is not None:
        if ours.settings is None:
            raise ConfigError(f"reward {plain} has no settings, got {name!r}; use {plain}")
        return replace(ours, name=name, settings=read_fields(ours.settings, written, f"reward {name}"))
    return REWARDS.get(name) or _LOADED.get(name) or Reward(name, _not_here(name), per=None)


def _not_here(name: str) -> Pay:
    def pay(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
        raise ConfigError(f"reward must be one of {', '.join(REWARDS)}, got {name!r}; a file's function is handed in")

    return pay
