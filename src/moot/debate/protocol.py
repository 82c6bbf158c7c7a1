"""The rules of a debate as data, and what follows from them: who sees what, and whom one may judge."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from moot.debate.parsing import CONTRACTS
from moot.debate.types import ConfigError, Turn

FIELDS = CONTRACTS["five_tag"]
LATER_CHOICES = ("shuffle_labels", "closing_ballot")
"""Added to format 1 after runs had been written in it; off means as before."""


@dataclass(frozen=True)
class Protocol:
    """Independent choices; a preset names one set of them, and any combination is allowed."""

    schedule: Literal["sequential", "parallel"] = "parallel"
    """sequential: one at a time, each sees what was already said this round. parallel: all at once, each sees finished rounds only."""
    contract: Literal["three_tag", "five_tag"] = "three_tag"
    """The sections of a turn: solution, evaluation, comparison; five_tag adds consensus and consensus_reason."""
    visible: tuple[str, ...] = ("solution", "evaluation")
    """The sections that others see. Hiding comparison keeps reviews blind."""
    layout: Literal["growing", "rebuilt"] = "growing"
    """growing: one conversation an agent, own turns stand as sampled. rebuilt: one fresh user message a turn with the transcript."""
    history_rounds: int = -1
    """How many finished rounds an agent sees: -1 all, 0 nothing at all, K the last K."""
    max_chars_per_field: int = 2000
    """Every shown section is clipped to this many characters."""
    on_parse_failure: Literal["continue", "abort"] = "continue"
    """continue: the turn counts as failed and the debate goes on. abort: the debate ends there."""
    reward: str = "generator_judge"
    """win_rate, win_minus_loss, generator_judge, truth, majority, or path.py:function."""
    one_ballot_per_pair: bool = True
    """For generator_judge: an author's last word on a pair in a turn counts, once."""
    judge_consensus: Literal["all", "leave_one_out"] = "all"
    """Whose votes make the consensus a judge is measured by: all, or the other agents' only."""
    enable_format_penalty: bool = True
    """-0.5 for a judge who could vote and did not."""
    lambda_gen: float = 1.0
    """Weight of the generator advantages."""
    lambda_judge: float = 1.0
    """Weight of the judge advantages."""
    advantage: str = "center_group"
    """center_group, center_round, center_seat, normalize_batch, or path.py:function."""
    personas: bool = True
    """Give each seat a character and a temperature of its own."""
    literal: bool = False
    """generator_judge to the letter of its source: unvoted means -1, everything is centred, penalties too."""
    shuffle_labels: bool = False
    """Each viewer knows the agents by numbers of its own, so that no seat gains by a liking for low numbers."""
    closing_ballot: bool = False
    """After the last round everybody judges once more without answering. Otherwise nobody judges the last answers."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in fields(self):
            _check(f.name, getattr(self, f.name), hints[f.name])
        if not self.reward:
            raise ConfigError("reward must name a reward, got ''; use win_rate, win_minus_loss or generator_judge")
        if unknown := set(self.visible) - set(FIELDS):
            raise ConfigError(f"visible may name {', '.join(FIELDS)}, got {', '.join(sorted(unknown))!r}; remove it")
        if self.history_rounds < -1:
            raise ConfigError(f"history_rounds must be -1 or more, got {self.history_rounds}; -1 shows every round, 0 shows none")
        if self.max_chars_per_field < 0:
            raise ConfigError(f"max_chars_per_field must be 0 or more, got {self.max_chars_per_field}; the usual value is 2000")
        for name in ("lambda_gen", "lambda_judge"):
            if not 0 <= getattr(self, name) <= sys.float_info.max:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}; the usual weight is 1")

    def with_choices(self, choices: Mapping[str, Any]) -> Protocol:
        """The same protocol with some choices changed, as read from JSON."""
        known = {f.name for f in fields(self)}
        for name in choices:
            if name not in known:
                raise ConfigError(f"protocol has no choice {name!r}; it has {', '.join(sorted(known))}")
        changed = dict(choices)
        if isinstance(changed.get("visible"), list):
            changed["visible"] = tuple(changed["visible"])
        return replace(self, **changed)

    def as_dict(self) -> dict[str, Any]:
        """The later choices only where they are on: without them a record is what it was before there were any."""
        off = [name for name in LATER_CHOICES if not getattr(self, name)]
        return {name: value for name, value in {**asdict(self), "visible": list(self.visible)}.items() if name not in off}


def _check(name: str, value: Any, hint: Any) -> None:
    """Data from a file may hold anything; JSON's true must not pass for 1."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint) or not isinstance(value, str):
            raise ConfigError(f"{name} must be {' or '.join(get_args(hint))}, got {value!r}")
    elif get_origin(hint) is tuple:
        if not isinstance(value, tuple) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{name} must be a list of section names, got {value!r}")
    elif hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name} must be a number, got {value!r}")
    elif not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{name} must be {'true or false' if hint is bool else hint.__name__}, got {value!r}")


V2 = Protocol()
V1 = Protocol(
    schedule="sequential",
    contract="five_tag",
    visible=("solution", "evaluation", "comparison", "consensus_reason"),
    layout="rebuilt",
    on_parse_failure="abort",
    reward="win_rate",
    one_ballot_per_pair=False,
    personas=False,
)
PRESETS: dict[str, Protocol] = {"v1": V1, "v2": V2, "v2_literal": replace(V2, literal=True, one_ballot_per_pair=False)}


def preset(name: str) -> Protocol:
    if name not in PRESETS:
        raise ConfigError(f"protocol must be one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]


def first_round_shown(protocol: Protocol, round: int) -> int:
    """The oldest round an agent speaking in `round` is shown; `round + 1` if it is shown nothing at all."""
    match protocol.history_rounds:
        case -1:
            return 1
        case 0:
            return round + 1
        case k:
            return max(1, round - k)


def shown(protocol: Protocol, turns: Sequence[Turn], round: int) -> list[int]:
    """Indices of the turns, of whatever agent, that somebody speaking next in `round` is shown."""
    first = first_round_shown(protocol, round)
    last = round if protocol.schedule == "sequential" else round - 1
    return [i for i, turn in enumerate(turns) if first <= turn.round <= last]


def candidates(protocol: Protocol, turns: Sequence[Turn]) -> Iterator[dict[int, int]]:
    """For each turn, the responses its author may judge: agent -> index of that agent's newest parsed turn it was shown.

    The keys are the eligible agents. One pass: what is newest only changes when somebody speaks.
    """
    finished: dict[int, int] = {}
    current: dict[int, int] = {}
    round = 0
    for i, turn in enumerate(turns):
        if turn.round != round:
            finished |= current
            current, round = {}, turn.round
        first = first_round_shown(protocol, round)
        newest = finished | current if protocol.schedule == "sequential" else finished
        yield {agent: j for agent, j in newest.items() if agent != turn.agent and turns[j].round >= first}
        if turn.answers:
            current[turn.agent] = i


def eligible(
    protocol: Protocol, turns: Sequence[Turn], agent: int, round: int, num_agents: int | None = None, oldest: int = 1
) -> tuple[int, ...]:
    """The agents that `agent`, about to speak in `round`, may judge; only by what they said since round `oldest`, if that is given.

    Looks from the newest turn back and stops once all the others are found, which is usually one round.
    """
    oldest = max(oldest, first_round_shown(protocol, round))
    newest = round if protocol.schedule == "sequential" else round - 1
    found: set[int] = set()
    for turn in reversed(turns):
        if turn.round < oldest or (num_agents is not None and len(found) == num_agents - 1):
            break
        if turn.round <= newest and turn.agent != agent and turn.answers:
            found.add(turn.agent)
    return tuple(sorted(found))


def judge_warning(protocol: Protocol, num_agents: int) -> str | None:
    """Said once when a run starts: with few agents, a consensus of all judges is mostly the judge's own voice."""
    if protocol.reward != "generator_judge" or protocol.judge_consensus != "all" or not 3 <= num_agents <= 4:
        return None
    judges = "one possible judge, who always agrees with itself" if num_agents == 3 else "two possible judges, who agree or tie"
    return (
        f"With {num_agents} agents each pair has {judges}: the judge reward teaches little but to vote. "
        "Use num_agents 5 or more, or set judge_consensus to leave_one_out"
        + (" (which needs at least 4 agents to say anything)." if num_agents == 3 else ".")
    )
