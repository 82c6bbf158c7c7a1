"""How votes count: what can be chosen again when a debate is over, because nothing that was said depends on it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from moot.debate.reward import Reward, reward_named
from moot.debate.typed_fields import as_json, check_types
from moot.errors import ConfigError

OF_AGENTS_VOTES = (
    "judge_consensus",
    "enable_format_penalty",
    "lambda_judge",
    "evaluation_credit",
)
"""The choices about agents' own votes: which of them count, how much, and how voting is paid. Nothing depends on them
where agents do not vote."""


@dataclass(frozen=True)
class Scoring:
    """Independent choices; any combination is allowed."""

    reward: str = "generator_judge"
    """A reward by its name, or path.py:function."""
    one_ballot_per_pair: bool = True
    """For generator_judge: each author has one vote per pair and turn, the last one it gave."""
    judge_consensus: Literal["all", "leave_one_out"] = "all"
    """Whose votes make the consensus by which a judge is measured: those of all agents, or only those of the others."""
    enable_format_penalty: bool = True
    """A judge who could vote and did not gets -0.5."""
    lambda_gen: float = 1.0
    """Weight of the generator advantages."""
    lambda_judge: float = 1.0
    """Weight of the judge advantages."""
    advantage: str = "auto"
    """An estimator by its name, or path.py:function; auto is the one that belongs to the reward."""
    evaluation_credit: Literal["generator", "judge", "nobody"] = "generator"
    """Whose advantage the evaluation's tokens get under generator_judge: the answer's, as in the source; the votes'
    that the evaluation leads to; or none."""
    literal: bool = False
    """Follow the source of generator_judge to the letter: an answer without votes gets -1, and penalties are centred as
    well."""
    reward_mix: float = 0.0
    """Share of the known answer in the reward; with 0 only the votes of the peers count."""
    correct_bonus: float = 0.0
    """Added to the reward of a right answer."""
    voters: Literal["both", "agents", "judges"] = "both"
    """Whose votes count, where there are judges without a seat. With agents alone the judges only measure how far the
    peers have drifted from them (trust/outside_agreement). With judges alone the agents' votes are neither counted nor
    paid."""

    def __post_init__(self) -> None:
        check_types(self)
        if not self.reward:
            raise ConfigError("reward must name a reward, got ''; use win_rate, win_minus_loss or generator_judge")
        for name in ("lambda_gen", "lambda_judge"):
            if not 0 <= getattr(self, name) <= sys.float_info.max:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}; the usual weight is 1")
        if not 0 <= self.reward_mix <= 1:
            raise ConfigError(f"reward_mix must be between 0 and 1, got {self.reward_mix}; 0.3 mixes in a little truth")
        if not abs(self.correct_bonus) <= sys.float_info.max:
            raise ConfigError(f"correct_bonus must be a number, got {self.correct_bonus}")
        if self.rule.checked and not self.judges_count:
            raise ConfigError(
                f"voters must be both or judges with reward {self.reward}, got {self.voters}: judges alone decide what "
                "it pays"
            )

    @property
    def rule(self) -> Reward:
        """The reward that is named, with what it says about itself."""
        return reward_named(self.reward)

    @property
    def judges_count(self) -> bool:
        return self.voters != "agents"

    @property
    def agents_count(self) -> bool:
        return self.voters != "judges"

    @property
    def estimator(self) -> str:
        """The estimator that is named, or the one that belongs to the reward."""
        if self.advantage != "auto":
            return self.advantage
        return self.rule.estimator

    @property
    def stream_of(self) -> dict[str, str]:
        """Which stream pays for the tokens of a section; a section that is not here gets nothing."""
        streams = dict(self.rule.stream_of)
        if "evaluation" in streams:
            streams["evaluation"] = self.evaluation_credit
        return {section: stream for section, stream in streams.items() if stream != "nobody"}

    def peers_alone(self) -> Scoring:
        """The same votes without any truth, for measuring: a reward that knows the truth would make every winner
        right."""
        return replace(
            self, reward=self.reward if self.rule.from_votes else "generator_judge", reward_mix=0.0, correct_bonus=0.0
        )

    def as_dict(self) -> dict[str, Any]:
        return as_json(self)


def listed(names: Iterable[str]) -> str:
    """`win_rate, win_minus_loss or generator_judge`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def judge_warning(scoring: Scoring, num_agents: int, trained: bool = True) -> str | None:
    """Said once when a run starts: with few agents, a consensus of all judges is mostly the judge's own voice. A demo,
    where nothing is `trained`, has no option for the consensus."""
    if "judge" not in scoring.stream_of.values() or scoring.judge_consensus != "all" or not 3 <= num_agents <= 4:
        return None
    judges = (
        "one possible judge, who always agrees with itself"
        if num_agents == 3
        else "two possible judges, who agree or tie"
    )
    needs = " (which needs at least 4 agents to say anything)" if num_agents == 3 else ""
    other = f", or --judge-consensus leave_one_out{needs}" if trained else ""
    few = f"With {num_agents} agents each pair has {judges}: the judge reward teaches little but to vote."
    return f"{few} Use --num-agents 5 or more{other}."
