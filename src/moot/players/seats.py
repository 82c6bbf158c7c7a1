"""Who takes which seat when a question is asked: from names to a speaker for every seat, heard while it speaks.

What is heavy is imported only where it is needed.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from moot.debate.rules import Rules
from moot.debate.typed_fields import check_types
from moot.engine.kinds import KINDS
from moot.engine.protocol import Sampler, Trainer
from moot.errors import ConfigError, EngineError
from moot.players.chat.chat import Chat, Patience
from moot.players.chat.chat_player import ChatPlayer, ChatSpeaker
from moot.players.chat.endpoint import Endpoint, endpoint, is_endpoint, named_endpoint, own_endpoint
from moot.players.chat.listening import Casting, CountedSpeaker, Listener
from moot.players.memory import RememberedChat, RememberedSampler, Replies

if TYPE_CHECKING:
    from moot.rl.rollout import Guest
    from moot.settings.train import TrainConfig
    from moot.tokens.rendering import Rendering


@dataclass(frozen=True)
class SpeakingSettings:
    """How every seat speaks."""

    rules: Rules
    max_tokens: int
    seed: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    """The most tokens of a section that is spoken on its own."""

    def seed_for(self, question: str) -> str | None:
        return None if self.seed is None else f"{self.seed}/{question}"


@dataclass(frozen=True)
class CommonModel:
    """Who takes the seats that are given to nobody else."""

    engine: str
    model: str | None
    base_url: str | None
    tokenizer: str | None
    checkpoint: str | None


# Chat servers


def parse_seats(given: Sequence[str], agents: int, base_url: str | None) -> dict[int, Endpoint]:
    """`1=model@http://host/v1`, or `1=model` at the common base-url.

    A key is for one place: that of OPENAI_API_KEY goes to the common base-url alone. A seat elsewhere has its own,
    OPENAI_API_KEY_1.
    """
    endpoints: dict[int, Endpoint] = {}
    for seat_text in given:
        match = re.fullmatch(r"(\d{1,6})=(.+?)(?:@(https?://.+))?", seat_text)
        if not match:
            example = "1=qwen3@http://localhost:8000/v1"
            raise ConfigError(f"seat must be NUMBER=MODEL@BASE-URL, got {seat_text!r}; for example {example}")
        seat, model, url = int(match[1]), match[2], match[3] or base_url
        if seat >= agents:
            raise ConfigError(f"seat {seat} does not exist among {agents} agents, numbered from 0; raise --agents")
        if seat in endpoints:
            raise ConfigError(f"seat {seat} is given twice; keep one")
        if url is None:
            way_out = f"write {seat}={model}@http://host/v1, or give --base-url"
            raise ConfigError(f"seat {seat_text!r} names no server; {way_out}")
        common_key = os.environ.get("OPENAI_API_KEY") if url == base_url else None
        endpoints[seat] = endpoint(url, model, os.environ.get(f"OPENAI_API_KEY_{seat}") or common_key)
    return endpoints


class _Chats:
    """The servers that are spoken to, each opened once and closed with the rest."""

    def __init__(self, patience: Patience, stack: AsyncExitStack, replies: Replies | None) -> None:
        self._patience, self._stack, self._replies = patience, stack, replies
        self._open: dict[tuple[str, str, str | None], Chat] = {}

    def open(self, where: Endpoint) -> Chat:
        key = (where.base_url, where.model, where.key)
        if key not in self._open:
            chat = Chat(where, self._patience)
            if self._replies is not None:
                chat = RememberedChat(where, self._replies, patience=self._patience)
            self._open[key] = chat
            self._stack.push_async_callback(chat.close)
        return self._open[key]

    def casting(self, where: Endpoint, settings: SpeakingSettings) -> Casting:
        chat = self.open(where)
        return lambda question, agent, listener: ChatSpeaker(
            chat,
            settings.max_tokens,
            seed=settings.seed_for(question),
            limits=settings.limits,
            heard=lambda piece: listener.heard(agent, piece),
            retried=lambda why, wait_s: listener.retried(agent, why, wait_s),
        )

    def notes(self) -> list[str]:
        return [note for chat in self._open.values() for note in chat.notes]


# Engines that speak in tokens


@dataclass(frozen=True, eq=False)
class _LoadedModel:
    """An engine that speaks in tokens, used for what it can say."""

    engine: Trainer
    sampler: Sampler
    rendering: Rendering
    config: TrainConfig
    identity: str
    """What tells it apart from the same model with other weights."""

    def casting(self, settings: SpeakingSettings, replies: Replies | None) -> Casting:
        from moot.players.chat.streaming import PIECE, StreamingSampler, StreamingSpeaker

        context = self.engine.capabilities.context_length
        # A server would have to read the whole prompt again for each piece, and would charge for it.
        # A script would begin anew with each piece. Of many questions nobody watches one being answered.
        kind = self.config.model.kind
        piece = PIECE if not (kind.server or kind.scripted) and replies is None else 0
        asked = self.sampler if replies is None else RememberedSampler(self.sampler, self.identity, replies)

        def speaker(question: str, agent: int, listener: Listener) -> CountedSpeaker:
            decode = lambda ids: self.rendering.said(ids)[0]  # noqa: E731
            heard = lambda text: listener.heard(agent, text)  # noqa: E731
            sampler = StreamingSampler(asked, decode, context, heard, piece)
            seed = settings.seed_for(question)
            return StreamingSpeaker(sampler, self.rendering, settings.max_tokens, seed, settings.limits)

        return speaker


async def _load(common: CommonModel, seed: int | None, stack: AsyncExitStack) -> _LoadedModel:
    from moot.players.checkpoints import find_trained
    from moot.players.find import make_engine
    from moot.settings.model import ModelConfig
    from moot.settings.train import TrainConfig

    model, checkpoint = common.model, common.checkpoint
    stored, state = ({}, None) if checkpoint is None else find_trained(checkpoint)
    if model and stored.get("model", model) != model:
        raise ConfigError(f"checkpoint {checkpoint} is of {stored['model']}, not of {model}; leave --model out")
    if stored.get("base_url") and stored["base_url"] != common.base_url:
        # A checkpoint may be somebody else's, and the key would go there.
        kept = f"checkpoint {checkpoint} is kept at {stored['base_url']}"
        raise ConfigError(f"{kept}; if you trust it, name it with --base-url")
    asked: dict[str, Any] = {"engine": common.engine, "model": model}
    if KINDS[common.engine].server:
        asked |= {"base_url": common.base_url, "tokenizer": common.tokenizer}
    given = {**{name: value for name, value in asked.items() if value}, **stored}
    try:
        chosen = ModelConfig(**given)
        check_types(chosen)
        config = TrainConfig(model=chosen, seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"checkpoint {checkpoint} cannot be used: {error}" if stored else str(error)) from None
    # In a thread: it takes seconds, and an engine may want to run a loop of its own while it is made.
    engine, rendering = await asyncio.to_thread(make_engine, config)
    stack.push_async_callback(engine.close)
    try:
        if state is not None:
            await engine.load_state(state)
        sampler = await (engine.base() if state is None else engine.snapshot())
    except (EngineError, ValueError, FileNotFoundError) as error:
        what = f"model {config.model.model}" if state is None else f"checkpoint {checkpoint}"
        raise ConfigError(f"{what} cannot be used: {error}") from error
    return _LoadedModel(engine, sampler, rendering, config, f"{config.model.engine} {config.model.model} {state or ''}")


# All seats together


@dataclass(frozen=True)
class TakenSeats:
    names: tuple[str, ...]
    """The model in each seat."""
    billed: tuple[bool, ...]
    """Whether the prices given are for this seat: those of the common model."""
    cast: Casting
    notes: Callable[[], list[str]]
    """What the engines want known; more may come while they speak."""
    judge: Callable[[str], Awaitable[tuple[Guest, str]]]
    """Who judges without a seat, by its name: base (the common model before training), a run, another model,
    MODEL@URL. And what tells it apart from others of that name."""


async def take_seats(
    common: CommonModel,
    others: Mapping[int, Endpoint],
    agents: int,
    settings: SpeakingSettings,
    patience: Patience,
    stack: AsyncExitStack,
    replies: Replies | None = None,
) -> TakenSeats:
    """Opens what is needed, and nothing for an engine whose every seat is taken by another; `stack` closes it. What is
    in `replies` is not asked again."""
    chats = _Chats(patience, stack, replies)
    castings = {agent: chats.casting(where, settings) for agent, where in others.items()}
    names = {agent: where.model for agent, where in others.items()}
    notes: tuple[str, ...] = ()
    loaded: _LoadedModel | None = None
    rest = [agent for agent in range(agents) if agent not in others]
    if rest and KINDS[common.engine].chat:
        where = own_endpoint(common.base_url, common.model)
        castings |= dict.fromkeys(rest, chats.casting(where, settings))
        names |= dict.fromkeys(rest, where.model)
    elif rest:
        loaded = await _load(common, settings.seed, stack)
        notes = loaded.engine.capabilities.notes
        castings |= dict.fromkeys(rest, loaded.casting(settings, replies))
        names |= dict.fromkeys(rest, loaded.config.model.called)

    async def judge(name: str) -> tuple[Guest, str]:
        if is_endpoint(name) or KINDS[common.engine].chat:
            where = judging_endpoint(name, common)
            # What a judge says is kept as verdicts.
            chat = Chat(where, patience)
            stack.push_async_callback(chat.close)
            return ChatPlayer(chat), f"{where.model}@{where.base_url}"
        from moot.players.find import outsider

        model = loaded or await _load(common, settings.seed, stack)
        own = model.engine, model.rendering
        return await outsider(name, "judge", model.config, own, lambda made: stack.push_async_callback(made.close))

    return TakenSeats(
        names=tuple(names[agent] for agent in range(agents)),
        billed=tuple(agent in rest for agent in range(agents)),
        cast=lambda question, agent, listener: castings[agent](question, agent, listener),
        notes=lambda: [*notes, *chats.notes()],
        judge=judge,
    )


def judging_endpoint(name: str, common: CommonModel) -> Endpoint:
    """Of a judge at a chat server: MODEL@URL, or with engine openai base or another model at the same place. The key of
    OPENAI_API_KEY goes to one place alone; a judge elsewhere has its own, OPENAI_API_KEY_JUDGE."""
    own = own_endpoint(common.base_url, common.model) if KINDS[common.engine].chat else None
    if own is not None and not is_endpoint(name):
        return own if name == "base" else replace(own, model=name)
    named = named_endpoint(name, None, "judge")
    same = own is None or own.base_url == named.base_url
    key = os.environ.get("OPENAI_API_KEY_JUDGE") or (os.environ.get("OPENAI_API_KEY") if same else None)
    return named_endpoint(name, key, "judge")
