"""What a training run is made of. The docstrings are the help; presets.py has the usual settings."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import UseAppendAction, arg

from moot.debate.parsing import FURTHER
from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.protocols import V2, Protocol
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.settings.limits import ON_RESUME, Ge, Le, check_limits
from moot.settings.model import ModelConfig as ModelConfig
from moot.settings.part_names import last_of_each
from moot.settings.warm import WarmStart, warm_settings

if TYPE_CHECKING:
    from moot.engine.protocol import Capabilities


@dataclass(frozen=True)
class DebateConfig:
    task: str = "arithmetic"
    """Where questions come from: a task's name, with its settings behind a colon, or a file."""
    num_agents: Annotated[int, Le(1000)] = 3
    """Copies of the model in a debate. With fewer than 3 nobody can vote; advocates are 2, and a judge decides."""
    max_rounds: Annotated[int, Ge(1), Le(1000)] = 2
    """Rounds of a debate."""
    max_tokens: Annotated[int, Ge(1)] = 512
    """Most tokens of a turn; where sections are given or asked, most tokens of a solution."""
    evaluation_tokens: Annotated[int, Ge(1)] = 256
    """Most tokens of an evaluation, where sections are given or asked; a comparison has a quarter of them, and at least
    12 per pair."""

    def __post_init__(self) -> None:
        check_limits(self)

    @property
    def limits(self) -> dict[str, int]:
        return section_limits(self.evaluation_tokens, self.num_agents)


TOKENS_PER_PAIR = 12
"""Enough for a line such as `Agent 10 > Agent 11`, whatever the tokenizer makes of numbers."""


def section_limits(evaluation_tokens: int, num_agents: int) -> dict[str, int]:
    """The most tokens of each section but the solution, for `rollout`."""
    short = max(1, evaluation_tokens // 4)
    return {
        "evaluation": evaluation_tokens,
        "comparison": max(short, TOKENS_PER_PAIR * math.comb(num_agents, 2)),
        **dict.fromkeys(FURTHER, short),
    }


@dataclass(frozen=True)
class OptimConfig:
    batch_size: Annotated[int, Ge(1), Le(1_000_000)] = 16
    """Questions per step."""
    num_train_datapoints: Annotated[int, Ge(0), Le(100_000_000), ON_RESUME] = 1024
    """Questions in the whole run. Divided by batch_size this is the number of steps."""
    learning_rate: Annotated[float, Ge(0)] = 3e-5
    """Learning rate of Adam in self-play."""
    loss: Literal["importance_sampling", "ppo", "cispo"] = "importance_sampling"
    """The policy gradient: with importance weights alone, or with clipped ones. docs/rewards.md has the formulas."""

    def __post_init__(self) -> None:
        check_limits(self)


EVAL_MODES = ("direct", "vote", "debate+vote", "opponents", "wins", "consultancy", "judge")
"""What may be measured besides the debates of the policy with itself; a protocol may refuse some."""

Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class RecipeConfig:
    """An outside judge, and when a run ends."""

    judge: str = ""
    """An outside judge who votes on every debate and is never trained: base, a run's folder, another model, or
    MODEL@URL of an OpenAI-compatible server. Use it when judge accuracy is near one half. The rewards approval,
    approved and pairs need one, and take base where none is named."""
    max_sampled_tokens: Annotated[int, Ge(0), ON_RESUME] = 0
    """End self-play once this many tokens were sampled, those of labels and of judges without a seat included, so that
    runs can be compared at equal cost; 0 is no limit."""

    def __post_init__(self) -> None:
        check_limits(self)
        if self.judge == "renewed":
            raise ConfigError(
                "judge may not be renewed: the judge that is a frozen copy of the policy is a part; use --with "
                "renewed_judge"
            )
        if self.judge == "start":
            raise ConfigError(
                "judge may not be start: without a warm start that is base, and with --from it is that run, by its "
                "name; for the policy after a warm start use --with renewed_judge, which begins with it"
            )


@dataclass(frozen=True)
class TrainConfig:
    protocol: Protocol = V2
    """The rules of the debates, and how votes count."""
    prompts: Prompts = DEFAULT
    """A file with the texts that agents read, over the defaults; `moot prompts` prints it."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The model, and what runs it."""
    start: Annotated[str, arg(name="from", metavar="RUN[@STEP]")] = ""
    """Begin with these weights and a fresh optimizer: a run, RUN@STEP, RUN@best, or an adapter's folder, of the same
    model and adapter settings. A preset's warm start is then left out."""
    debate: DebateConfig = field(default_factory=DebateConfig)
    """Questions, and the size of a debate."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """How much is learned from, and how."""
    warm_questions: Annotated[int, Ge(0), Le(1_000_000)] = 0
    """Labelled questions to learn the contract from before self-play; 0 leaves this phase out. The part warm_start says
    how."""
    recipe: RecipeConfig = field(default_factory=RecipeConfig)
    """An outside judge, and when a run ends."""
    parts: Annotated[tuple[str, ...], UseAppendAction, arg(name="with", metavar="PART")] = ()
    """An optional part of training, as in past_selves:share=0.3, or your own as file.py:Class:setting=value; NAME:off
    leaves out a preset's. docs/recipe.md lists them."""
    seed: int = 0
    """Chooses questions, their order, and every sample."""
    eval_every: Annotated[int, Ge(0), ON_RESUME] = 50
    """Steps between evaluations on held-out questions. There is also one before the first step and one after the last;
    0 means none."""
    eval_questions: Annotated[int, Ge(0), Le(10_000)] = 64
    """Held-out questions per evaluation."""
    eval_modes: tuple[str, ...] = ()
    """What an evaluation measures besides debates: direct (one plain answer), vote (the plurality of five), debate+vote
    (one answer of the group), opponents (the policy in each seat once, against the model before training); of advocates
    also consultancy (one advocate alone) and judge (nobody argues)."""
    save_every: Annotated[int, Ge(0), ON_RESUME] = 100
    """Steps between checkpoints that are kept; the newest two are always there."""

    def under(self, protocol: Protocol) -> TrainConfig:
        """The same with another protocol, with as many agents and the judge that its rules need, and without what
        advocates cannot use."""
        rules = protocol.rules
        debate = replace(self.debate, num_agents=rules.seats or max(3, self.debate.num_agents))
        warm = 0 if "solving" in rules.lacks else self.warm_questions
        recipe = replace(self.recipe, judge=self.recipe.judge or rules.usual_judge)
        modes = tuple(mode for mode in self.eval_modes if mode not in rules.refused_modes)
        return replace(self, protocol=protocol, debate=debate, warm_questions=warm, recipe=recipe, eval_modes=modes)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", last_of_each(self.parts))
        rules = self.protocol.rules
        rules.check_training(self.protocol.scoring, self.debate.num_agents, self.recipe.judge)
        if self.warm_questions and (why := rules.lacks.get("solving")):
            raise ConfigError(
                f"warm_questions must be left out with positions {rules.positions}, got {self.warm_questions}: {why}"
            )
        check_limits(self)
        modes = [mode for mode in EVAL_MODES if mode not in rules.refused_modes]
        if unknown := [mode for mode in self.eval_modes if mode not in modes]:
            raise ConfigError(
                f"eval_modes may name {', '.join(modes)}, got {', '.join(unknown)!r}; debates are always played"
            )

    @property
    def outside_judge(self) -> str:
        """Who judges without a seat. Where a reward is made of checks and nobody is named, the model before training:
        one that moves with the policy would come to like whatever the policy writes."""
        return self.recipe.judge or ("base" if self.protocol.scoring.rule.checked else "")

    @property
    def iterations(self) -> int:
        return -(-self.optim.num_train_datapoints // self.optim.batch_size)

    @property
    def warm(self) -> WarmStart:
        return warm_settings(self.parts)

    @property
    def warm_steps(self) -> int:
        return -(-self.warm_questions // self.warm.batch_size)

    @property
    def total_steps(self) -> int:
        return self.warm_steps + self.iterations

    def iteration(self, step: int) -> int:
        """Which iteration of self-play a step is, from 1 on; up to 0 it belongs to the warm start."""
        return step - self.warm_steps

    def share_before(self, step: int) -> float:
        """The share of self-play that is over before `step`."""
        return (self.iteration(step) - 1) / max(1, self.iterations)

    def is_kept(self, step: int) -> bool:
        """Whether the checkpoint of `step` stays however many follow."""
        return step in (self.warm_steps, self.total_steps) or (
            self.save_every > 0 and self.iteration(step) % self.save_every == 0
        )

    def empty_debate(self, question: Question) -> Debate:
        return Debate(
            question, self.debate.num_agents, self.debate.max_rounds, self.protocol.rules, prompts=self.prompts
        )

    def check(self, capabilities: Capabilities) -> None:
        """Refuses, by name, what an engine cannot do; before a run's folder is made, and before anything is paid
        for."""
        if self.optim.loss not in capabilities.losses:
            raise ConfigError(
                f"loss {self.optim.loss} is not known to the server; it has {', '.join(capabilities.losses)}"
            )
        if self.protocol.rules.sections == "given" and "strings" not in capabilities.stop_types:
            raise ConfigError(
                "sections given needs an engine that stops at strings, and this one takes token ids alone; use "
                "sections asked"
            )
        if self.warm_steps and "cross_entropy" not in capabilities.losses:
            raise ConfigError(
                f"warm_questions must be 0 on this server, got {self.warm_questions}: it has no cross_entropy to scale"
            )

    def as_dict(self) -> dict[str, Any]:
        """As run.json has it."""
        return {**asdict(self), "protocol": self.protocol.as_dict(), "prompts": self.prompts.as_dict()}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> TrainConfig:
        parts = {"model": ModelConfig, "debate": DebateConfig, "optim": OptimConfig, "recipe": RecipeConfig}
        built: dict[str, Any] = {name: kind(**given.get(name, {})) for name, kind in parts.items()}
        lists = ("eval_modes", "parts")
        named: dict[str, Any] = {name: tuple(given[name]) for name in lists if name in given}
        if "prompts" in given:
            named["prompts"] = Prompts.from_dict(given["prompts"])
        return cls(**{**given, **built, **named, "protocol": V2.with_choices(given.get("protocol", {}))})
