"""What is said in a debate, and by whom it is seen: the rules as data, and what follows from them.

Nothing here says how votes count; that is `Scoring`, and can be chosen again when the debate is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from moot.debate.parsing import CONTRACTS
from moot.debate.typed_fields import as_json, check_types
from moot.debate.types import Turn
from moot.errors import ConfigError

FIELDS = CONTRACTS["five_tag"]


@dataclass(frozen=True)
class Rules:
    """Independent choices; any combination is allowed, but for a shared layout with shuffled labels."""

    schedule: Literal["sequential", "parallel"] = "parallel"
    """sequential: agents speak one at a time, and each sees what was already said in this round. parallel: all speak at
    once, and each sees
    finished rounds only."""
    contract: Literal["three_tag", "five_tag"] = "three_tag"
    """The sections of a turn: solution, evaluation, comparison; five_tag adds consensus and consensus_reason."""
    visible: tuple[str, ...] = ("solution", "evaluation")
    """The sections that others see. Hiding comparison keeps reviews blind."""
    layout: Literal["growing", "rebuilt", "shared"] = "growing"
    """growing: each agent has one conversation, in which its own turns stand as sampled. rebuilt: each turn has one new
    user message
    with the transcript. shared: as rebuilt, with all that differs between seats at its end, so that the agents of a
    debate read one
    prefix."""
    history_rounds: int = -1
    """How many finished rounds an agent sees: -1 is all of them, 0 is none, K is the last K."""
    max_chars_per_field: int = 2000
    """Every shown section is clipped to this many characters."""
    on_parse_failure: Literal["continue", "abort"] = "continue"
    """continue: the turn counts as failed and the debate continues. abort: the debate ends there."""
    personas: bool = True
    """Give each seat a character and a temperature of its own."""
    shuffle_labels: bool = False
    """Each viewer knows the agents by numbers of its own, so that a judge who prefers low numbers favours no seat."""
    closing_ballot: bool = False
    """After the last round everybody judges once more without answering. Otherwise nobody judges the last answers."""
    sections: Literal["sampled", "given", "asked"] = "sampled"
    """sampled: the model writes the tags of a turn itself. given: the tags are inserted and each section is sampled on
    its own. asked: no
    tags; each section is its own exchange, and round 1 is the plain question."""
    both_orders: bool = False
    """Ask each judge without a seat twice, the second time with the answers in the other order; only verdicts that stay
    the same count."""
    temperature: float = 1.0
    """The temperature of sampling. A persona's own temperature is multiplied by it."""
    positions: Literal["none", "assigned"] = "none"
    """assigned: two agents are advocates. Each argues for the side of the question that its seat is given, neither
    votes, and a judge
    without a seat decides."""

    def __post_init__(self) -> None:
        check_types(self)
        if unknown := set(self.visible) - set(FIELDS):
            raise ConfigError(f"visible may name {', '.join(FIELDS)}, got {', '.join(sorted(unknown))!r}; remove it")
        if self.history_rounds < -1:
            raise ConfigError(
                f"history_rounds must be -1 or more, got {self.history_rounds}; -1 shows every round, 0 shows none"
            )
        if self.max_chars_per_field < 0:
            raise ConfigError(
                f"max_chars_per_field must be 0 or more, got {self.max_chars_per_field}; the usual value is 2000"
            )
        if self.layout == "shared" and self.shuffle_labels:
            raise ConfigError(
                "shuffle_labels gives each agent numbers of its own, so with layout 'shared' they would read no common "
                "prefix; "
                "leave it off, or use layout rebuilt"
            )
        if self.positions == "assigned" and (
            self.sections != "asked" or self.contract != "three_tag" or self.closing_ballot
        ):
            raise ConfigError(
                "positions assigned needs sections asked, contract three_tag and no closing_ballot, because advocates "
                "argue and do not "
                f"vote; got sections {self.sections}, contract {self.contract}, closing_ballot "
                f"{str(self.closing_ballot).lower()}; "
                "the protocol advocates has all of it"
            )
        if not 0 <= self.temperature <= 10:
            raise ConfigError(f"temperature must be from 0 to 10, got {self.temperature}; the usual value is 1")

    def as_dict(self) -> dict[str, Any]:
        return as_json(self)


def check_advocates_rules(rules: Rules) -> None:
    """What advocates may be told to do in training, and what they must be able to read: they only ever write
    arguments."""
    if "solution" not in rules.visible or set(rules.visible) - {"solution", "evaluation"}:
        raise ConfigError(
            f"visible must be solution with positions assigned, got {' '.join(rules.visible) or 'nothing'}: an "
            "advocate writes its "
            "argument there and nothing else, and the judge decides by it; use --visible solution, or leave it out"
        )


# Who is shown what, and whom one may judge


def first_round_shown(rules: Rules, round: int) -> int:
    """The oldest round an agent speaking in `round` is shown; `round + 1` if it is shown nothing at all."""
    match rules.history_rounds:
        case -1:
            return 1
        case 0:
            return round + 1
        case k:
            return max(1, round - k)


def shown(rules: Rules, turns: Sequence[Turn], round: int) -> list[int]:
    """Indices of the turns, of whatever agent, that somebody speaking next in `round` is shown."""
    first = first_round_shown(rules, round)
    last = round if rules.schedule == "sequential" else round - 1
    return [i for i, turn in enumerate(turns) if first <= turn.round <= last]


def candidates(rules: Rules, turns: Sequence[Turn]) -> Iterator[dict[int, int]]:
    """For each turn, the responses its author may judge: agent -> index of that agent's newest parsed turn it was
    shown.

    The keys are the eligible agents. One pass: what is newest only changes when somebody speaks. Advocates judge
    nobody.
    """
    if rules.positions == "assigned":
        yield from ({} for _ in turns)
        return
    finished: dict[int, int] = {}
    current: dict[int, int] = {}
    round = 0
    for i, turn in enumerate(turns):
        if turn.round != round:
            finished |= current
            current, round = {}, turn.round
        first = first_round_shown(rules, round)
        newest = finished | current if rules.schedule == "sequential" else finished
        yield {agent: j for agent, j in newest.items() if agent != turn.agent and turns[j].round >= first}
        if turn.answers:
            current[turn.agent] = i


def eligible(
    rules: Rules, turns: Sequence[Turn], agent: int, round: int, num_agents: int | None = None, oldest: int = 1
) -> tuple[int, ...]:
    """The agents that `agent`, about to speak in `round`, may judge; only by what they said since round `oldest`, if
    that is given.

    Looks from the newest turn back and stops once all the others are there, which is usually one round. Advocates judge
    nobody.
    """
    if rules.positions == "assigned":
        return ()
    oldest = max(oldest, first_round_shown(rules, round))
    newest = round if rules.schedule == "sequential" else round - 1
    others: set[int] = set()
    for turn in reversed(turns):
        if turn.round < oldest or (num_agents is not None and len(others) == num_agents - 1):
            break
        if turn.round <= newest and turn.agent != agent and turn.answers:
            others.add(turn.agent)
    return tuple(sorted(others))
