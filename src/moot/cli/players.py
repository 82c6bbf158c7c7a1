"""Who answers: a run's checkpoint, a model, an endpoint. From their names to something that can sit in a debate."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from moot.cli.engines import make_engine
from moot.debate.play import Speak
from moot.debate.types import ConfigError
from moot.engine.protocol import EngineError, Sampler
from moot.evaluate import EvalConfig, Opponent
from moot.records import Run, engine_state
from moot.rl.config import ModelConfig, TrainConfig
from moot.rl.rendering import Rendering
from moot.rl.rollout import Player


def policy_config(run_dir: Path | None, model: str | None, changes: dict[str, Any]) -> tuple[TrainConfig, Run | None]:
    """The run's own settings, or the defaults for a model, with `changes` to how the model is run."""
    if run_dir is not None and model is not None:
        raise ConfigError(f"name a run or a model, not both; got {run_dir} and {model}")
    if run_dir is None:
        config = TrainConfig(model=ModelConfig(model) if model else ModelConfig())
        return replace(config, model=replace(config.model, **changes)), None
    run = Run.open(run_dir)
    config = TrainConfig.from_dict(run.config)
    return replace(config, model=replace(config.model, **changes)), run


class Players:
    """The policy and those it plays against; engines are made as they are needed and closed together."""

    def __init__(self, config: TrainConfig, run: Run | None, console: Console) -> None:
        self.config, self.run, self._console = config, run, console
        self._engines: list[Any] = []
        self._engine, self.rendering = self._make(config)
        self.sampler: Sampler
        self.identity = ""
        self.step = 0

    async def load(self, step: int | None) -> int:
        """The policy: the run's checkpoint of `step`, or its newest; the model itself where there is no run. Answers with the step."""
        model = self.config.model.model
        if self.run is None or step == 0:
            self.sampler, self.identity, self.step = await self._engine.base(), model, 0
        else:
            self.step, place = await load_state(self._engine, self.run, step, self._console)
            self.sampler, self.identity = await self._engine.snapshot(), f"{model} {_seal(place)}"
        return self.step

    async def opponents(self, names: Sequence[str], settings: EvalConfig) -> dict[str, tuple[Opponent, str]]:
        """By name: who sits in a seat, and what tells it apart from others of that name."""
        places = {name.partition("@")[2] for name in names if _is_endpoint(name)}
        if len(places) > 1 and os.environ.get("OPENAI_API_KEY"):
            raise ConfigError(f"opponents name {len(places)} servers, and the key in OPENAI_API_KEY is for one; name one server at a time")
        return {name: await self._opponent(name, settings) for name in names}

    async def _opponent(self, name: str, settings: EvalConfig) -> tuple[Opponent, str]:
        if name == "base":
            return _token_player(await self._engine.base(), self.rendering), self.config.model.model
        if _is_endpoint(name):
            speaker, chat = endpoint(name, settings)
            self._engines.append(chat)
            return speaker, name
        path, _, at = name.rpartition("@") if not Run.exists(Path(name)) else (name, "", "")
        if path and Run.exists(Path(path)):
            return await self._past(Path(path), int(at) if at.isdigit() else None)
        if self.config.model.engine == "scripted":
            raise ConfigError(f"opponents may name base, a run or an endpoint here, got {name!r}, which is no run")
        config = replace(self.config, model=replace(self.config.model, model=name, renderer="auto"))
        engine, rendering = self._make(config)
        return _token_player(await engine.base(), rendering), name

    async def _past(self, path: Path, step: int | None) -> tuple[Opponent, str]:
        """A run's checkpoint. Where it is of the same model, it shares the engine: samplers are frozen copies of the adapter."""
        run = Run.open(path)
        config = TrainConfig.from_dict(run.config)
        ours, theirs = self.config.model, replace(config.model, device=self.config.model.device, dtype=self.config.model.dtype)
        engine, rendering = (self._engine, self.rendering) if ours == theirs else self._make(replace(config, model=theirs))
        _, place = await load_state(engine, run, step, self._console)
        return _token_player(await engine.snapshot(), rendering), f"{theirs.model} {_seal(place)}"

    def _make(self, config: TrainConfig) -> tuple[Any, Rendering]:
        with self._console.status(f"loading {config.model.model}"):
            engine, rendering = make_engine(config)
        self._engines.append(engine)
        return engine, rendering

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self._engines))


async def load_state(engine: Any, run: Run, step: int | None, console: Console) -> tuple[int, Path]:
    for number, place, state in run.load_checkpoints():
        if step is not None and number != step:
            continue
        try:
            if state is None:
                raise EngineError("its state.json is damaged")
            await engine.load_state(engine_state(place, state))
        except EngineError as error:
            if step is not None:
                raise ConfigError(f"checkpoint {place} cannot be used: {error}") from None
            console.print(Text(f"Note: checkpoint {place} cannot be used ({error}); trying the one before it", style="yellow"))
            continue
        return number, place
    there = ", ".join(str(number) for number, _ in run.checkpoints()) or "none"
    wanted = "checkpoint that is whole" if step is None else f"checkpoint of step {step}"
    raise ConfigError(f"{run.path} has no {wanted}; it has {there}; step 0 is the model before training")


def _token_player(sampler: Sampler, rendering: Rendering) -> Opponent:
    player = Player(sampler, rendering, learns=False)
    return lambda seat: player


def _is_endpoint(name: str) -> bool:
    return "@http://" in name or "@https://" in name


def endpoint(name: str, settings: EvalConfig) -> tuple[Opponent, Any]:
    """`MODEL@URL`, an OpenAI-compatible server, as a speaker in text alone; and what must be closed when done."""
    from moot.engine.chat import Chat, ChatSpeaker, Endpoint

    model, _, address = name.partition("@")
    chat = Chat(Endpoint(address.rstrip("/"), model, os.environ.get("OPENAI_API_KEY") or None))
    speaker = ChatSpeaker(chat, settings.max_tokens, seed=settings.seed)
    return lambda seat: speaker, chat


def _seal(place: Path) -> str:
    """Tells one training's checkpoint from another's of the same step."""
    return f"{place.name} {hashlib.sha256((place / 'state.json').read_bytes()).hexdigest()[:12]}"


async def judge_for(config: TrainConfig, engine: Any, rendering: Rendering, console: Console) -> tuple[Player | Speak | None, Any]:
    """The outside judge that a run names, and the engine it needs beside the run's own, if any."""
    name = config.recipe.judge
    if not name:
        return None, None
    if name == "base":
        return Player(await engine.base(), rendering, learns=False), None
    if "@http" in name:
        seat, chat = endpoint(name, EvalConfig.of(config))
        return seat(0), chat
    # An engine of its own: loading another run's weights into ours would be what training starts from.
    run = Run.open(Path(name)) if Run.exists(Path(name)) else None
    model = TrainConfig.from_dict(run.config).model if run else replace(config.model, model=name, renderer="auto")
    with console.status(f"loading the judge {name}"):
        other, its_rendering = make_engine(replace(config, model=replace(model, device=config.model.device)))
    if run is not None:
        await load_state(other, run, None, console)
        return Player(await other.snapshot(), its_rendering, learns=False), other
    return Player(await other.base(), its_rendering, learns=False), other
