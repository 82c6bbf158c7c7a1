"""The ways to get an answer out of a model, and what has to be sampled for each.

    direct        one answer to the plain question
    vote          k such answers, and the one most of them give
    debate        self-play; the average over the agents' last answers: what one agent is worth after debating
    debate+vote   the same debates; one answer of the group: the plurality of the last answers, a tie decided by the
                  peers' votes
    opponents     N debates per question, the policy in seat i of debate i, everybody else in the other seats

    wins          one plain answer beside the start's, judged in both orders (wins.py)

Where agents are advocates (positions assigned) the answer of a debate is the side that the judge finds right, and there
are two more:

    consultancy   two debates per question, in each of which one seat argues and the other is silent: one advocate
                  alone, right or wrong
    judge         nobody argues: the judge is shown the two sides alone

Modes share what they sample: direct is the first of vote's answers, and debate+vote looks at debate's debates. So their
differences are paired down to the sample, and nothing is paid for twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, get_args

from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.prompts import temperature as seat_temperature
from moot.debate.protocols import V2, Protocol
from moot.errors import ConfigError
from moot.evaluate.wins import VERDICT
from moot.judges.asking import texts_digest
from moot.settings.limits import Ge, check_limits
from moot.settings.train import TrainConfig, section_limits
from moot.training.parts import debate_settings
from moot.util.files import digest

Mode = Literal["direct", "vote", "debate", "debate+vote", "opponents", "wins", "consultancy", "judge"]
MODES: tuple[str, ...] = get_args(Mode)

HEADLINE = dict.fromkeys(MODES, "correct") | {"vote": "cons@k", "debate+vote": "group", "wins": "wins"}
"""Which metric is a mode's accuracy. `correct` is the mean over answers, or whether the judge of advocates is right."""


@dataclass(frozen=True)
class EvalConfig:
    """What is asked, and how; together with the weights it fixes every sample."""

    modes: tuple[str, ...] = ("direct", "vote", "debate")
    k: Annotated[int, Ge(1)] = 5
    match_tokens: bool = False
    seed: int = 0
    num_agents: Annotated[int, Ge(1)] = 3
    max_rounds: Annotated[int, Ge(1)] = 2
    max_tokens: Annotated[int, Ge(1)] = 512
    evaluation_tokens: Annotated[int, Ge(1)] = 256
    """These two where sections are given or asked."""
    temperature: float | None = None
    """Of plain answers; None for the average of the debate's seats."""
    concurrency: Annotated[int, Ge(1)] = 256
    tempered: bool = True
    """Whether debates are sampled at the personas' temperatures."""
    protocol: Protocol = V2
    prompts: Prompts = DEFAULT
    stop_when_settled: bool = False
    extra_rounds: int = 0
    policy: str = ""
    """Whose answers these are, for finding them again in a file: a model, a checkpoint."""
    opponents: Mapping[str, str] = field(default_factory=dict)
    """By name, who they are, for the same purpose."""
    judge: str = ""
    """Who decides between advocates, checks answers, or judges in mode wins, for the same purpose; empty for the policy
    itself."""
    rival: str = ""
    """The start, with which mode wins compares, for the same purpose."""

    def __post_init__(self) -> None:
        if not self.modes:
            raise ConfigError(f"modes must name at least one of {', '.join(MODES)}")
        for mode in self.modes:
            if mode not in MODES:
                raise ConfigError(f"modes may name {', '.join(MODES)}, got {mode!r}")
        if repeated := next((mode for mode in self.modes if self.modes.count(mode) > 1), None):
            raise ConfigError(f"modes names {repeated!r} twice; once is enough")
        rules = self.protocol.rules
        rules.check_agents(self.num_agents)
        if unfit := next((mode for mode in self.modes if mode in rules.refused_modes), None):
            raise ConfigError(f"modes may not name {unfit!r} here: {rules.refused_modes[unfit]}")
        check_limits(self)
        if self.temperature is not None and self.temperature < 0:
            raise ConfigError(f"temperature must be 0 (greedy) or more, got {self.temperature}")
        if self.match_tokens and not ("vote" in self.modes and {"debate", "debate+vote"} & set(self.modes)):
            raise ConfigError("match_tokens sets vote's k by what debate costs, so modes must name vote and debate")

    @classmethod
    def of(cls, config: TrainConfig, **changes: Any) -> EvalConfig:
        """As the run trains: what is set by the same name there is the same here, and what its parts change in a debate
        is changed."""
        sections = (config, config.debate, config.recipe)
        same = {
            f.name: getattr(section, f.name) for section in sections for f in fields(cls) if hasattr(section, f.name)
        }
        return cls(**{**same, **debate_settings(config), **changes})

    @property
    def needs_judge(self) -> bool:
        """Whether a judge without a seat decides: between advocates, or by checking answers."""
        return self.protocol.needs_judge

    @property
    def answer_temperature(self) -> float:
        if self.temperature is not None:
            return self.temperature
        if not self.tempered:
            return 1.0
        return sum(seat_temperature(self.protocol.rules, seat) for seat in range(self.num_agents)) / self.num_agents

    @property
    def limits(self) -> dict[str, int]:
        return section_limits(self.evaluation_tokens, self.num_agents)

    def settings(self, kind: str) -> dict[str, Any]:
        """All that a sample of this kind (`answer`, `debate`, `consultancy`, `judge` or `against NAME`) depends on, the
        question apart."""
        common = {"policy": self.policy, "seed": self.seed, "max_tokens": self.max_tokens}
        if kind == "answer":
            return {**common, "kind": kind, "temperature": self.answer_temperature}
        if kind == "start":
            return {**self.settings("answer"), "policy": self.rival or "the start"}
        if kind == VERDICT:
            pair = [digest(self.settings(of)) for of in ("answer", "start")]
            texts = texts_digest(self.prompts, "pairs", "solution")
            asked = {"kind": kind, "answers": pair, "judge": self.judge, "texts": texts, "seed": self.seed}
            return {**asked, "max_tokens": self.evaluation_tokens}
        # Rewards are found in what was said; they do not change it.
        debate: dict[str, Any] = {
            "num_agents": self.num_agents,
            "max_rounds": self.max_rounds,
            "tempered": self.tempered,
            "protocol": self.protocol.rules.as_dict(),
            "prompts": self.prompts.digest,
        }
        if self.protocol.rules.sections != "sampled":
            debate |= {"evaluation_tokens": self.evaluation_tokens}
        if self.stop_when_settled or self.extra_rounds:
            debate |= {"stop_when_settled": self.stop_when_settled, "extra_rounds": self.extra_rounds}
        if self.needs_judge:
            debate["judge"] = self.judge
        if (reward := self.protocol.scoring.rule).checked:
            debate |= {"asked": reward.asks, "evaluation_tokens": self.evaluation_tokens}
        if kind in KINDS:
            return {**common, "kind": kind, **debate}
        return {**common, "kind": "debate", **debate, "against": self.opponents[opponent_in(kind)]}


KINDS = ("debate", "consultancy", "judge")
"""Debates in which nobody but the policy speaks, and the judge."""


def opponent_in(kind: str) -> str:
    return kind.removeprefix("against ")


@dataclass(frozen=True)
class Need:
    """Samples that a mode looks at: `kind` as in `EvalConfig.settings`, and how many per question."""

    kind: str
    count: int


def needs(config: EvalConfig, mode: str, k: int) -> list[Need]:
    match mode:
        case "direct":
            return [Need("answer", 1)]
        case "vote":
            return [Need("answer", k)]
        case "wins":
            return [Need("answer", 1), Need("start", 1)]
        case "consultancy":
            return [Need("consultancy", 2)]
        case "judge":
            return [Need("judge", 1)]
        case "opponents":
            return [Need(f"against {name}", config.num_agents) for name in config.opponents]
        case _:
            return [Need("debate", 1)]


def all_needs(config: EvalConfig, modes: Sequence[str], k: int) -> dict[str, int]:
    """The most that any mode wants of each kind."""
    most: dict[str, int] = {}
    for mode in modes:
        for need in needs(config, mode, k):
            most[need.kind] = max(need.count, most.get(need.kind, 0))
    return most
