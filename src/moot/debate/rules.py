"""What is said in a debate, and by whom it is seen: the rules as data, and what follows from them.

Nothing here says how votes count; that is `Scoring`, and can be chosen again when the debate is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from moot.debate.parsing import SECTIONS, Contract
from moot.debate.typed_fields import as_json, check_types
from moot.debate.types import Question, Turn, Vote
from moot.errors import ConfigError

if TYPE_CHECKING:
    from moot.debate.prompt_texts import Prompts
    from moot.debate.scoring import Scoring
    from moot.debate.state import Debate

Lack = Literal["votes", "agreement", "accuracy", "truth", "solving"]
"""What a debate may be without: votes of its agents; answers that can come to agree; answers whose accuracy is
measured; a reward with truth in it; turns that solve, as the warm start teaches."""
FOR_ADVOCATES = dict.fromkeys(("consultancy", "judge"), "needs advocates: use --protocol advocates")


@dataclass(frozen=True)
class Rules:
    """Independent choices; any combination is allowed, but for a shared layout with shuffled labels."""

    schedule: Literal["sequential", "parallel"] = "parallel"
    """sequential: agents speak one at a time, and each sees what was already said in this round. parallel: all speak at
    once, and each sees finished rounds only."""
    contract: Contract = "three_tag"
    """The sections of a turn: solution, evaluation, comparison; five_tag adds consensus and consensus_reason."""
    visible: tuple[str, ...] = ("solution", "evaluation")
    """The sections that others see. Hiding comparison keeps reviews blind."""
    layout: Literal["growing", "rebuilt", "shared"] = "growing"
    """growing: each agent has one conversation, in which its own turns stand as sampled. rebuilt: each turn has one new
    user message with the transcript. shared: as rebuilt, with all that differs between seats at its end, so that the
    agents of a debate read one prefix."""
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
    its own. asked: no tags; each section is its own exchange, and round 1 is the plain question."""
    both_orders: bool = False
    """Ask each judge without a seat twice, the second time with the answers in the other order; only verdicts that stay
    the same count."""
    temperature: float = 1.0
    """The temperature of sampling. A persona's own temperature is multiplied by it."""
    positions = "none"
    """What files call this kind of rules; no setting, because it comes with a protocol."""
    seats = 0
    """How many agents there are; 0 is any number."""
    peers_vote = True
    """Agents judge each other. Otherwise a judge without a seat decides, and nobody else votes."""
    sides = 0
    """How many sides a question must have, of which each seat is given one to argue for; 0: agents look for the
    answer."""
    lacks: ClassVar[Mapping[Lack, str]] = {}
    """What such debates are without, each with the reason, as the end of a sentence. Whoever needs it refuses them."""
    refused_modes: ClassVar[Mapping[str, str]] = FOR_ADVOCATES
    """Modes of evaluation that make no sense here, and why."""

    def __post_init__(self) -> None:
        check_types(self)
        if unknown := set(self.visible) - set(SECTIONS):
            raise ConfigError(f"visible may name {', '.join(SECTIONS)}, got {', '.join(sorted(unknown))!r}; remove it")
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
                "prefix; leave it off, or use layout rebuilt"
            )
        if not 0 <= self.temperature <= 10:
            raise ConfigError(f"temperature must be from 0 to 10, got {self.temperature}; the usual value is 1")

    def as_dict(self) -> dict[str, Any]:
        return {**as_json(self), "positions": self.positions}

    @property
    def needs_judge(self) -> bool:
        """Whether a judge without a seat decides."""
        return not self.peers_vote

    @property
    def usual_judge(self) -> str:
        """Who judges without a seat where nobody is named; empty for nobody."""
        return "base" if self.needs_judge else ""

    @property
    def fixed(self) -> dict[str, Any]:
        """Settings of an evaluation that have one sensible value here."""
        agents = {"num_agents": self.seats} if self.seats else {}
        return agents | ({"stop_when_settled": False, "extra_rounds": 0} if "agreement" in self.lacks else {})

    def position(self, question: Question, agent: int) -> str | None:
        """The answer that a seat is given to argue for; None where agents look for the answer themselves."""
        return question.sides[agent] if self.sides else None

    def measured(self, votes: Iterable[Vote]) -> list[Vote]:
        """The votes by which its debates are measured: the agents' own. What outside judges say is set beside them,
        never among them; but where nobody else votes, it is theirs."""
        return [vote for vote in votes if vote.turn >= 0 or self.needs_judge]

    # What it refuses

    def check_agents(self, num_agents: int) -> None:
        if self.seats and num_agents != self.seats:
            raise ConfigError(
                f"num_agents must be {self.seats} with positions {self.positions}, got {num_agents}: a question has "
                f"{self.seats} sides; use --num-agents {self.seats}"
            )

    def check_question(self, question: Question, num_agents: int) -> None:
        """Refuses a question that cannot be debated like this."""

    def check_scoring(self, scoring: Scoring) -> None:
        """Refuses ways to count votes that make no sense here, in training and afterwards."""

    def check_training(self, scoring: Scoring, num_agents: int, judge: str) -> None:
        """Refuses what cannot be trained with; `judge` is the one without a seat, if any."""
        if num_agents < 3:
            alone = "nobody can vote" if scoring.rule.from_votes else f"the reward {scoring.reward} compares too few"
            raise ConfigError(f"num_agents must be at least 3 to train, got {num_agents}: with fewer {alone}")

    # What agents are told, where it is not what everybody is told; empty for that

    def own_request(
        self, debate: Debate, agent: int, labels: Sequence[int], first: bool, blocks: Sequence[str], heard: bool
    ) -> str:
        """What an agent reads before its turn. `blocks` is what others said; `heard` if one of them argued."""
        return ""

    def own_judge_text(self, debate: Debate, labels: Sequence[int], block: Callable[[Turn], str]) -> str:
        """What a judge without a seat reads."""
        return ""

    def own_verdict(self, debate: Debate, labels: Sequence[int]) -> str:
        """What asks a judge for its verdict."""
        return ""

    def own_silence(self, prompts: Prompts) -> str:
        """What stands for a turn in which nothing was said."""
        return ""


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

    The keys are the eligible agents. One pass: what is newest only changes when somebody speaks.
    """
    if not rules.peers_vote:
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

    Looks from the newest turn back and stops once all the others are there, which is usually one round.
    """
    if not rules.peers_vote:
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
