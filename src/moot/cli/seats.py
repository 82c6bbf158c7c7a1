"""Who speaks: from `--engine`, `--model` and `--seat` to a speaker for every seat. What is heavy is imported only where it is needed."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints
from urllib.parse import urlsplit

from moot.ask import Casting, Speaker, Watcher
from moot.debate.rules import Rules
from moot.debate.types import ConfigError, Observation, Said
from moot.engine.chat import Chat, ChatSpeaker, Endpoint, Patience
from moot.engine.protocol import ContextOverflow, EngineError, Ints, Sample, Sampler, SamplingParams

PIECE = 16
"""Tokens between two looks at what a local model is writing. Short enough to read along; each look costs one step more."""


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


def endpoint(base_url: str, model: str, key: str | None) -> Endpoint:
    try:
        parts = urlsplit(base_url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise ConfigError(f"base-url must begin with http:// or https://, got {base_url!r}; for example http://localhost:8000/v1")
    if parts.username or parts.password:
        raise ConfigError("base-url must not hold a name or a password, which would be shown; put the key into OPENAI_API_KEY")
    if key and not re.fullmatch(r"[!-~]+", key):
        raise ConfigError("the API key holds a space or a character that no key has; set it again")
    return Endpoint(base_url.rstrip("/"), model, key or None)


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


class HeardSampler:
    """A sampler that tells what it writes while it writes, `piece` tokens at a time; 0 leaves the answer whole.

    It asks for a little, and then for more after what it got: the engine keeps the keys of what it has read, so little is done twice.
    """

    def __init__(self, sampler: Sampler, decode: Callable[[Ints], str], context: int, heard: Callable[[str], None], piece: int) -> None:
        self._sampler, self._decode, self._context, self._heard, self._piece = sampler, decode, context, heard, piece
        self.spent: tuple[int | None, int | None] = (None, None)

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        if len(prompt) + params.max_tokens > self._context:
            raise ContextOverflow(
                f"the debate has grown to {len(prompt)} tokens, which with --max-tokens {params.max_tokens} exceed the model's context of "
                f"{self._context}; use fewer --rounds or a smaller --max-tokens"
            )
        # A stop string may lie across two pieces, where nobody would look for it.
        whole = not self._piece or num_samples != 1 or any(isinstance(stop, str) for stop in params.stop)
        found = await self._sampler.sample(prompt, params, num_samples) if whole else [await self._in_pieces(prompt, params)]
        self.spent = (len(prompt), sum(len(sample.tokens) for sample in found))
        if whole:
            self._heard(self._decode(found[0].tokens))
        return found

    async def _in_pieces(self, prompt: Sequence[int] | Ints, params: SamplingParams) -> Sample:
        import numpy as np

        from moot.rl.speaker import turn_seed

        known = np.asarray(prompt, dtype=np.int32)
        tokens, logprobs, told = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32), 0
        while True:
            few = min(self._piece, params.max_tokens - len(tokens))
            seed = None if params.seed is None else turn_seed(params.seed, len(tokens))
            (got,) = await self._sampler.sample(np.concatenate([known, tokens]), replace(params, max_tokens=few, seed=seed))
            tokens, logprobs = np.concatenate([tokens, got.tokens]), np.concatenate([logprobs, got.logprobs])
            text = self._decode(tokens)
            # The last character may still lack bytes that come with the next token.
            safe = len(text) if got.stop_reason == "stop" else len(text.rstrip("\ufffd"))
            if safe > told:
                self._heard(text[told:safe])
                told = safe
            if got.stop_reason == "stop" or len(tokens) >= params.max_tokens:
                return Sample(tokens, logprobs, got.stop_reason)

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0) -> Any:
        return await self._sampler.compute_logprobs(tokens, temperature)


class TokenSeat:
    """A seat at an engine that speaks in tokens."""

    def __init__(self, sampler: HeardSampler, rendering: Any, manner: Manner, number: int) -> None:
        from moot.rl.speaker import TokenSpeaker

        temperature = 1.0 if manner.temperature is None else manner.temperature
        params = SamplingParams(manner.max_tokens, temperature, stop=rendering.stops(manner.rules.contract))
        seed = None if manner.seed is None else f"{manner.seed}/{number}"
        self._sampler, self._speaker = sampler, TokenSpeaker(sampler, rendering, params, tempered=manner.temperature is None, seed=seed)
        self.spent: tuple[int | None, int | None] = (None, None)

    async def __call__(self, observation: Observation) -> Said:
        said = await self._speaker(observation)
        self.spent = self._sampler.spent
        return said


async def load_engine(common: Common, seed: int | None, stack: AsyncExitStack) -> tuple[Any, Any, Any, Any]:
    """An engine that trains, used for what it can say: the engine, a sampler, its chat format, and what it was made from."""
    from moot.cli.engines import make_engine
    from moot.rl.config import ModelConfig, TrainConfig

    model, checkpoint = common.model, common.checkpoint
    stored, state = ({}, None) if checkpoint is None else find_checkpoint(checkpoint)
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


def find_checkpoint(given: str) -> tuple[dict[str, Any], str]:
    """What it was trained as, and where it is: a run (its newest whole checkpoint), one checkpoint of a run, or a place an engine names."""
    import json

    from moot.records import Run, engine_state

    path = Path(given)
    if Run.exists(path):
        run = Run.open(path)
        for _, place, state in run.load_checkpoints():
            if state is not None:
                return dict(run.config["model"]), engine_state(place, state)
        raise ConfigError(f"checkpoint: the run {path} has no whole checkpoint yet; train it a step further")
    if path.is_dir() and Run.exists(path.resolve().parent.parent):
        run = Run.open(path.resolve().parent.parent)
        for _, place, state in run.load_checkpoints():
            if place.name == path.resolve().name and state is not None:
                return dict(run.config["model"]), engine_state(place, state)
    if (path / "manifest.json").is_file():
        manifest = json.loads((path / "manifest.json").read_text())
        targets = manifest["lora_targets"]
        names = targets if isinstance(targets, str) else ",".join(targets)
        return {
            "model": manifest["model"],
            "lora_rank": manifest["lora_rank"],
            "lora_alpha": manifest["lora_alpha"],
            "lora_targets": names,
        }, given
    if "://" in given:
        return {}, given  # an engine elsewhere knows it
    raise ConfigError(f"checkpoint {given!r} is neither a run, nor a checkpoint in one; look under RUN/checkpoints")


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
        made, sampler, rendering, what = await load_engine(common, manner.seed, stack)
        notes, context = made.capabilities.notes, made.capabilities.context_length
        # A server would have to read the whole prompt again for each piece, and would charge for it.
        piece = PIECE if what.engine == "local" else 0

        def token_seat(number: int, agent: int, watcher: Watcher) -> Speaker:
            heard = HeardSampler(sampler, lambda ids: rendering.said(ids)[0], context, lambda text: watcher.heard(agent, text), piece)
            return TokenSeat(heard, rendering, manner, number)

        makers |= dict.fromkeys(rest, token_seat)
        names |= dict.fromkeys(rest, what.model if what.engine != "scripted" else "scripted")

    return Seats(
        names=tuple(names[agent] for agent in range(agents)),
        billed=tuple(agent in rest for agent in range(agents)),
        cast=lambda number, watcher: [makers[agent](number, agent, watcher) for agent in range(agents)],
        notes=lambda: [*notes, *(note for chat in chats.values() for note in chat.notes)],
    )
