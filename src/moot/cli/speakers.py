"""Who speaks, and how: the options that `moot ask` and `moot label` share."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from moot.cli.registry import PeerProtocol
from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.rules import Rules
from moot.engine.kinds import KINDS, Engine
from moot.errors import ConfigError
from moot.judges.asking import judge_of
from moot.players.chat.chat import Patience
from moot.players.chat.endpoint import own_endpoint
from moot.players.memory import Replies
from moot.players.seats import CommonModel, SpeakingSettings, TakenSeats, parse_seats, take_seats
from moot.settings.train import section_limits
from moot.tools.ask import Prices
from moot.tools.asked import asked_rules
from moot.tools.judged import Judging, ballot_named


@dataclass(frozen=True)
class Speakers:
    engine: Engine = "local"
    """What runs the model: this machine, an OpenAI-compatible server, a Tinker server, or a script for trying out the
    command."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The model's name; smollm2-135m with the local engine if not given."""
    base_url: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Where the server is, as http://localhost:8000/v1; OPENAI_BASE_URL if not given. The key is taken from
    OPENAI_API_KEY."""
    seat: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="N=MODEL@URL")] = ()
    """Another model in seat N, at its own server or (without @URL) at base-url. Its key is taken from OPENAI_API_KEY_N.
    May be repeated."""
    tokenizer: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Where a Tinker server's model has its tokenizer, if not under the model's name."""
    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Load what was trained: a run, or one folder under its checkpoints."""
    protocol: PeerProtocol = "v2"
    """The rules: v1 speaks in turn until all agree, v2 all at once with blind reviews."""
    closing_ballot: bool = False
    """After the last round everybody judges once more. Otherwise nobody judges the last answers, only those before."""
    sections: Literal["sampled", "given", "asked"] | None = None
    """sampled: the model writes the tags of a turn itself. given: the tags are inserted. asked: no tags, each section
    is asked for by itself, which small models need, and which takes several requests per turn. If not given: asked;
    with v1, as it is defined, sampled."""
    personas: bool = True
    """A character and a temperature for each seat, where the protocol has them."""
    prompts: Prompts = DEFAULT
    """A file with the texts that agents read, over the defaults; `moot prompts` prints it."""
    judge: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Who scores every answer when all is said: base (the model before training), a run, another model, MODEL@URL.
    The highest score wins."""
    ballot: str = "approval"
    """How the judge is asked: approval (one answer at a time, four times) or pairs (two, in both orders), with settings
    as in training: approval:checks=8,show=answer."""
    max_tokens: int = 512
    """Longest turn; where sections are given or asked, longest solution."""
    evaluation_tokens: int = 256
    """Longest evaluation, where sections are given or asked; a comparison has a quarter of it."""
    temperature: float = 1.0
    """What is sampled at. A persona's own temperature is multiplied by it."""
    seed: int | None = None
    """The same seed gives the same answers, where the engine can."""
    price_in: Annotated[float | None, tyro.conf.arg(metavar="PRICE")] = None
    """Price of a million tokens read."""
    price_out: Annotated[float | None, tyro.conf.arg(metavar="PRICE")] = None
    """Price of a million tokens written."""
    retries: int = 5
    """How often to ask a server again that fails, is busy or breaks off."""
    timeout: float = 300.0
    """Seconds a server may stay silent; one that answers in turn lets the last wait for all the others."""

    def check(self, agents: int, rounds: int) -> None:
        """Everything that can be wrong is found before anything is asked."""
        tokens = {name: (getattr(self, name), 1) for name in ("max_tokens", "evaluation_tokens")}
        given = {"agents": (agents, 1), "rounds": (rounds, 1), **tokens, "retries": (self.retries, 0)}
        for name, (value, low) in given.items():
            if value < low:
                raise ConfigError(f"{name.replace('_', '-')} must be at least {low}, got {value}")
        if not self.temperature >= 0:
            raise ConfigError(
                f"temperature must be 0 or more, got {self.temperature}; 0 always takes the likeliest word"
            )
        self.rules()
        ballot_named(self.ballot)
        if self.judge is None and self.ballot != Speakers.ballot:
            raise ConfigError(f"ballot {self.ballot} is how a judge is asked; name one, as in --judge base")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"timeout must be above 0 seconds, got {self.timeout}")
        for name, price in (("price-in", self.price_in), ("price-out", self.price_out)):
            if price is not None and not 0 <= price < float("inf"):
                raise ConfigError(f"{name} must be 0 or more, got {price}")
        if (self.price_in is None) != (self.price_out is None):
            raise ConfigError("price-in and price-out go together; give both")
        others = parse_seats(self.seat, agents, self.place if self.engine != "tinker" else None)
        if self.engine == "openai" and len(others) < agents:
            own_endpoint(self.place, self.model)
        if self.base_url and not KINDS[self.engine].server and not self.seat:
            raise ConfigError(
                f"base-url is for --engine openai or tinker, got --engine {self.engine}; change one of the two"
            )
        if self.engine == "tinker" and not self.model and not self.checkpoint:
            raise ConfigError("engine tinker needs --model, or --checkpoint with a run that was trained there")
        if self.tokenizer and self.engine != "tinker":
            raise ConfigError(f"tokenizer is for --engine tinker, got --engine {self.engine}; leave it out")
        if self.checkpoint is not None and self.engine not in ("local", "tinker"):
            raise ConfigError(f"checkpoint needs --engine local or tinker, got {self.engine}")

    async def judging(self, seats: TakenSeats) -> Judging | None:
        """None where nobody is to judge."""
        if self.judge is None:
            return None
        guest, identity = await seats.judge(self.judge)
        ballot, tokens = ballot_named(self.ballot), self.evaluation_tokens
        return Judging(self.judge, judge_of(guest), identity, ballot, self.prompts, tokens, self.seed or 0)

    def settings(self) -> dict[str, Any]:
        """What a record says of how it came about, and what its turns are read with."""
        common = "engine model checkpoint protocol closing_ballot personas max_tokens evaluation_tokens seed"
        named = {name: getattr(self, name) for name in common.split()}
        settings = {**named, "sections": self.rules().sections, "seats": list(self.seat)}
        settings["temperature"] = None if self.temperature == 1 else self.temperature
        settings["base_url"] = self.place if KINDS[self.engine].server else None
        judged = {} if self.judge is None else {"judge": self.judge, "ballot": self.ballot}
        return settings | judged | ({} if self.prompts == DEFAULT else {"prompts": self.prompts.digest})

    def rules(self) -> Rules:
        return asked_rules(
            {**vars(self), "sections": self.sections or ("sampled" if self.protocol == "v1" else "asked")}
        )

    @property
    def place(self) -> str | None:
        """A server of one kind is no place for the other's requests."""
        return self.base_url or (os.environ.get("OPENAI_BASE_URL") if self.engine != "tinker" else None) or None

    async def take(self, agents: int, stack: AsyncExitStack, replies: Replies | None = None) -> TakenSeats:
        """Opens what is needed; `stack` closes it. What is in `replies` is not asked again."""
        common = CommonModel(self.engine, self.model, self.place, self.tokenizer, self.checkpoint)
        others = parse_seats(self.seat, agents, self.place if self.engine != "tinker" else None)
        limits = section_limits(self.evaluation_tokens, agents)
        speaking = SpeakingSettings(self.rules(), self.max_tokens, self.seed, limits)
        return await take_seats(common, others, agents, speaking, Patience(self.retries, self.timeout), stack, replies)

    def prices(self, seats: TakenSeats) -> list[Prices | None]:
        if self.price_in is None or self.price_out is None:
            return [None] * len(seats.billed)
        given = Prices(self.price_in, self.price_out)
        return [given if billed else None for billed in seats.billed]

    def advice(self) -> str:
        if self.engine == "openai" or self.seat:
            return "See that the server runs and answers, then ask again; --retries and --timeout give it more time"
        return "Ask again; a smaller --max-tokens or fewer --rounds need less"
