"""Who speaks: from `--engine`, `--model` and `--seat` to a speaker for every seat. What is heavy is imported only where it is needed."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from moot.ask import Casting, Speaker, Watcher
from moot.debate.rules import Rules
from moot.debate.types import ConfigError
from moot.engine.protocol import EngineError
from moot.speakers.chat import Chat, ChatSpeaker, Patience
from moot.speakers.endpoint import Endpoint, endpoint


@dataclass(frozen=True)
class Manner:
    """How every seat speaks."""

    rules: Rules
    max_tokens: int
    temperature: float | None = None
    """None: each persona's own."""
    seed: int | None = None


@dataclass(frozen=True)
class Common:
    """Who takes the seats that are given to nobody else."""

    engine: str
    model: str | None
    base_url: str | None
    tokenizer: str | None
    checkpoint: str | None


# Endpoints


def parse_seats(given: Sequence[str], agents: int, base_url: str | None) -> dict[int, Endpoint]:
    """`1=model@http://host/v1`, or `1=model` at the common base-url.

    A key is for one place: that of OPENAI_API_KEY goes to the common base-url alone. A seat elsewhere has its own, OPENAI_API_KEY_1.
    """
    found: dict[int, Endpoint] = {}
    for each in given:
        match = re.fullmatch(r"(\d{1,6})=(.+?)(?:@(https?://.+))?", each)
        if not match:
            raise ConfigError(f"seat must be NUMBER=MODEL@BASE-URL, got {each!r}; for example 1=qwen3@http://localhost:8000/v1")
        seat, model, place = int(match[1]), match[2], match[3] or base_url
        if seat >= agents:
            raise ConfigError(f"seat {seat} does not exist among {agents} agents, numbered from 0; raise --agents or change it")
        if seat in found:
            raise ConfigError(f"seat {seat} is given twice; keep one")
        if place is None:
            raise ConfigError(f"seat {each!r} names no server; write {seat}={model}@http://host/v1, or give --base-url")
        own = os.environ.get(f"OPENAI_API_KEY_{seat}")
        found[seat] = endpoint(place, model, own or (os.environ.get("OPENAI_API_KEY") if place == base_url else None))
    return found


def chat_seat(chat: Chat, manner: Manner, number: int, agent: int, watcher: Watcher) -> Speaker:
    seed = None if manner.seed is None else f"{manner.seed}/{number}"
    return ChatSpeaker(
        chat,
        manner.max_tokens,
        manner.temperature,
        seed,
        heard=lambda piece: watcher.heard(agent, piece),
        again=lambda why, wait_s: watcher.again(agent, why, wait_s),
    )


# Engines that speak in tokens


async def load_engine(common: Common, seed: int | None, stack: AsyncExitStack) -> tuple[Any, Any, Any, Any]:
    """An engine that trains, used for what it can say: the engine, a sampler, its chat format, and what it was made from."""
    from moot.checkpoints import find_trained
    from moot.players import make_engine
    from moot.rl.config import ModelConfig, TrainConfig

    model, checkpoint = common.model, common.checkpoint
    stored, state = ({}, None) if checkpoint is None else find_trained(checkpoint)
    if model and stored.get("model", model) != model:
        raise ConfigError(f"checkpoint {checkpoint} is of {stored['model']}, not of {model}; leave --model out")
    asked: dict[str, Any] = {"engine": common.engine, "model": model}
    if common.engine == "tinker":
        asked |= {"base_url": common.base_url, "tokenizer": common.tokenizer}
    given = {**{name: value for name, value in asked.items() if value}, **stored}
    known = get_args(get_type_hints(ModelConfig)["engine"])
    if given["engine"] not in known:
        raise ConfigError(f"engine {given['engine']} is not part of this moot, which has {', '.join(known)} and openai")
    config = TrainConfig(model=ModelConfig(**given), seed=_fresh() if seed is None else seed)
    # In a thread: it takes seconds, and an engine may want to run a loop of its own while it is made.
    made, rendering = await asyncio.to_thread(make_engine, config)
    stack.push_async_callback(made.close)
    try:
        if state is not None:
            await made.load_state(state)
        return made, await (made.base() if state is None else made.snapshot()), rendering, config.model
    except (EngineError, ValueError, FileNotFoundError) as error:
        what = f"model {config.model.model}" if state is None else f"checkpoint {checkpoint}"
        raise ConfigError(f"{what} cannot be used: {error}") from error


def _fresh() -> int:
    return int.from_bytes(os.urandom(4), "big")


# All seats together


@dataclass(frozen=True)
class Seats:
    names: tuple[str, ...]
    """The model in each seat."""
    billed: tuple[bool, ...]
    """Whether the prices given are for this seat: those of the common model."""
    cast: Casting
    notes: Callable[[], list[str]]
    """What the engines want known; more may come while they speak."""


async def take_seats(
    common: Common, others: dict[int, Endpoint], agents: int, manner: Manner, patience: Patience, stack: AsyncExitStack
) -> Seats:
    """Opens what is needed, and nothing for an engine whose every seat is taken by another."""
    chats: dict[tuple[str, str, str | None], Chat] = {}

    def open_chat(where: Endpoint) -> Chat:
        key = (where.base_url, where.model, where.key)
        if key not in chats:
            chats[key] = Chat(where, patience)
            stack.push_async_callback(chats[key].close)
        return chats[key]

    Make = Callable[[int, int, Watcher], Speaker]

    def at(where: Endpoint) -> Make:
        chat = open_chat(where)
        return lambda number, agent, watcher: chat_seat(chat, manner, number, agent, watcher)

    makers: dict[int, Make] = {agent: at(where) for agent, where in others.items()}
    names = {agent: where.model for agent, where in others.items()}
    notes: tuple[str, ...] = ()
    rest = [agent for agent in range(agents) if agent not in others]
    if rest and common.engine == "openai":
        assert common.base_url is not None and common.model is not None  # checked with the other settings
        makers |= dict.fromkeys(rest, at(endpoint(common.base_url, common.model, os.environ.get("OPENAI_API_KEY"))))
        names |= dict.fromkeys(rest, common.model)
    elif rest:
        from moot.speakers.streaming import PIECE, StreamingSampler, StreamingSpeaker

        made, sampler, rendering, what = await load_engine(common, manner.seed, stack)
        notes, context = made.capabilities.notes, made.capabilities.context_length
        # A server would have to read the whole prompt again for each piece, and would charge for it.
        piece = PIECE if what.engine == "local" else 0

        def token_seat(number: int, agent: int, watcher: Watcher) -> Speaker:
            heard = StreamingSampler(sampler, lambda ids: rendering.said(ids)[0], context, lambda text: watcher.heard(agent, text), piece)
            seed = None if manner.seed is None else f"{manner.seed}/{number}"
            return StreamingSpeaker(heard, rendering, manner.rules.contract, manner.max_tokens, manner.temperature, seed)

        makers |= dict.fromkeys(rest, token_seat)
        names |= dict.fromkeys(rest, what.model if what.engine != "scripted" else "scripted")

    return Seats(
        names=tuple(names[agent] for agent in range(agents)),
        billed=tuple(agent in rest for agent in range(agents)),
        cast=lambda number, watcher: [makers[agent](number, agent, watcher) for agent in range(agents)],
        notes=lambda: [*notes, *(note for chat in chats.values() for note in chat.notes)],
    )
