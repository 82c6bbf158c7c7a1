"""Who answers: a run's checkpoint, a model, a chat server. From their names to something that can sit in a debate."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.engine.protocol import Sharing, Trainer
from moot.errors import ConfigError, EngineError
from moot.players.chat.endpoint import Endpoint, is_endpoint, named_endpoint, own_endpoint
from moot.players.checkpoints import (
    JUDGE,
    Note,
    check_model,
    check_rank,
    find_trained,
    is_untrained,
    judge_state,
    load_checkpoint,
    split_name,
    step_named,
)
from moot.players.create import create_engine
from moot.players.untrusted import check_trusted, played_names
from moot.rl.rollout import Guest, Player, TextPlayer
from moot.runs import Run
from moot.settings.saved import config_of
from moot.settings.train import ModelConfig, TrainConfig
from moot.tokens.rendering import Rendering
from moot.util.safe_text import one_line

if TYPE_CHECKING:
    from moot.players.chat.chat_player import ChatPlayer

Busy = Callable[[str], AbstractContextManager[object]]
"""Shows what is being waited for, as long as the context is open."""
MakeEngine = Callable[[TrainConfig], tuple[Trainer, Rendering]]


class Engines:
    """Where engines come from: those of one model share its base weights, as far as that engine can."""

    def __init__(self) -> None:
        self._made: list[tuple[ModelConfig, Trainer, Rendering]] = []

    def make(self, config: TrainConfig) -> tuple[Trainer, Rendering]:
        """The engine a run needs, looked over for what it cannot do, and its chat format."""
        engine, rendering = self._sibling(config) or make_engine(config)
        if engine.capabilities.siblings:
            self._made.append((config.model, engine, rendering))
        return engine, rendering

    def _sibling(self, config: TrainConfig) -> tuple[Trainer, Rendering] | None:
        for model, engine, rendering in self._made:
            if model == config.model and isinstance(engine, Sharing):
                config.check(engine.capabilities)
                with suppress(EngineError):  # it is closed
                    return engine.sibling(config.seed), rendering
        return None


def make_engine(config: TrainConfig) -> tuple[Trainer, Rendering]:
    """The engine a run needs, looked over for what it cannot do, and its chat format."""
    model = config.model
    engine = create_engine(model, config.seed)
    try:
        config.check(engine.capabilities)
        if model.kind.scripted:  # it has a format of its own, whatever the model is called
            return engine, Rendering(engine.tokenizer)
        return engine, Rendering(engine.tokenizer, model.model, model.renderer, model.thinking)
    except BaseException:
        engine.shut()
        raise


def policy_config(
    run_dir: Path | None,
    model: str | None,
    changes: dict[str, Any],
    task: str | None = None,
    trust: bool = False,
    note: Note = lambda text: None,
) -> tuple[TrainConfig, Run | None]:
    """The run's own settings, or the defaults for a model, with `changes` to how the model is run.

    Code and addresses of a run are used only where `task` and `changes` name them again, or with `trust`.
    """
    if run_dir is not None and model is not None:
        raise ConfigError(f"name a run or a model, not both; got {run_dir} and {model}")
    if run_dir is None:
        chosen = replace(ModelConfig(model) if model else ModelConfig(), **changes)
        check_model(chosen)
        return TrainConfig(model=chosen), None
    run = Run.open(run_dir)
    config = config_of(run)
    check_rank(run, config.model.lora_rank)
    named = {"task"} if task else set()
    check_trusted(run.path, played_names(config), named | set(changes), trust, note)
    if task and not trust and "task" in played_names(config):
        # The one it was trained on is not asked what it has seen.
        config = replace(config, debate=replace(config.debate, task=task))
    return replace(config, model=replace(config.model, **changes)), run


class Players:
    """The policy and those it plays against; engines are made as they are needed and closed together."""

    def __init__(
        self, config: TrainConfig, run: Run | None, note: Note = lambda text: None, busy: Busy = nullcontext
    ) -> None:
        self.config, self.run, self._note, self._busy = config, run, note, busy
        self._opened: list[Any] = []
        own = config.model
        self._own = self._chat(own_endpoint(own.base_url, own.model)) if own.kind.chat else self._make(config)
        self.policy: Player | TextPlayer
        self.identity = ""
        self.step = 0

    async def load(self, step: int | str | None) -> int:
        """The policy: the run's checkpoint of `step`, of `best`, or its newest; the model where there is no run.
        Answers with the step."""
        if not isinstance(self._own, tuple):
            where = self._own.chat.endpoint
            self.policy, self.identity, self.step = self._own, f"{where.model}@{where.base_url}", 0
            return 0
        step = None if self.run is None else step_named(self.run, step)
        model = self.config.model.model
        self.policy, self.identity, self.step = await _loaded(self._own, model, self.run, step, self._note)
        return self.step

    async def opponents(self, names: Sequence[str], setting: str = "opponents") -> dict[str, tuple[Guest, str]]:
        """By name: who it is, and what tells it apart from others of that name. `setting` names them."""
        endpoints = {name: named_endpoint(name, _key(), setting) for name in names if is_endpoint(name)}
        servers = {where.base_url for where in endpoints.values()}
        if not isinstance(self._own, tuple):
            servers.add(self._own.chat.endpoint.base_url)
        if len(servers) > 1 and _key():
            told = f"{setting} name {len(servers)} servers, and the key in OPENAI_API_KEY is for one"
            raise ConfigError(f"{told}; name one server at a time")
        return {name: await self._opponent(name, endpoints.get(name), setting) for name in names}

    async def judge(self, name: str) -> tuple[Guest, str]:
        """Who decides between advocates, named as opponents are."""
        return (await self.opponents([name], "judge"))[name]

    async def _opponent(self, name: str, where: Endpoint | None, setting: str) -> tuple[Guest, str]:
        if where is not None:
            return self._chat(where), name
        if not isinstance(self._own, tuple):  # another model at the same server
            own = self._own.chat.endpoint
            model = own.model if name == "base" else name
            return self._own if name == "base" else self._chat(replace(own, model=name)), f"{model}@{own.base_url}"
        if self.config.model.kind.scripted and name != "base" and split_name(name) is None:
            raise ConfigError(
                f"{setting}: the script plays with base, a run (RUN@STEP, RUN@best, RUN@judge) or MODEL@URL, as in "
                f"NAME@http://localhost:8000/v1, got {name!r}, which is no run"
            )
        shared = (self._own, self._opened.append, self._note, self._busy)
        return await outsider(name, setting, self.config, *shared, sharing=True)

    def _make(self, config: TrainConfig) -> tuple[Trainer, Rendering]:
        with self._busy(f"loading {config.model.called}"):
            engine, rendering = make_engine(config)
        self._opened.append(engine)
        return engine, rendering

    def _chat(self, where: Endpoint) -> ChatPlayer:
        player = chat_player(where)
        self._opened.append(player)
        return player

    async def close(self) -> None:
        await asyncio.gather(*(opened.close() for opened in self._opened))


def check_same_server(run: Path | str, theirs: str, ours: str, setting: str) -> None:
    """A run that is played beside another's is not asked where: a key would go to whoever wrote it."""
    if theirs and theirs != ours:
        told = f"{run} was trained at {theirs}, which is not the server of this run"
        raise ConfigError(f"{setting}: {told}; name it as MODEL@URL")


def _key() -> str | None:
    return os.environ.get("OPENAI_API_KEY")


def chat_player(where: Endpoint) -> ChatPlayer:
    from moot.players.chat.chat import Chat
    from moot.players.chat.chat_player import ChatPlayer

    return ChatPlayer(Chat(where))


# Those beside the policy in training: the outside judge, the opponents of its evaluations


def check_outsiders(config: TrainConfig) -> None:
    """Refuses an address that must not be written down, and a checkpoint that is not there, before anything is
    written."""
    named = [("judge", config.recipe.judge)]
    for setting, name in named:
        check_player(name, setting)
        if is_endpoint(name):
            named_endpoint(name, _key(), setting)
        elif run := split_name(name):
            _ = judge_state(Run.open(run[0])) if run[1] == JUDGE else find_trained(name, setting)


def check_player(name: str, setting: str) -> None:
    """Refuses what is written as a run's or a server's and names neither: it would pass for a model's own name."""
    if "@" in name and not (is_endpoint(name) or split_name(name) or Path(name).exists()):
        raise ConfigError(
            f"{setting} {name!r}: before the @ stands no run, and behind it no address; name RUN@STEP, RUN@best, "
            "RUN@judge or MODEL@URL, or base without an @"
        )


def check_reachable(names: Iterable[str], what: str) -> None:
    """Finds servers that nobody answers at before minutes of loading. Whatever they say to this, they are there."""
    for name in filter(is_endpoint, names):
        import httpx

        where = named_endpoint(name, None, what).base_url
        try:
            with httpx.stream("GET", f"{where}/models", timeout=10):
                pass
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            why = one_line(str(error) or type(error).__name__)
            raise ConfigError(f"{what} {name} cannot be reached ({why}); start the server, or name another") from None
        except (httpx.HTTPError, httpx.InvalidURL):
            pass  # it is slow, or speaks in another way: asked for an answer, it is given more time


async def outsider(
    name: str, setting: str, config: TrainConfig, own: tuple[Trainer, Rendering], opened: Callable[[Any], object],
    note: Note = lambda text: None, busy: Busy = nullcontext, sharing: bool = False,
    make: MakeEngine | None = None,
) -> tuple[Guest, str]:  # fmt: skip
    """Who is never trained, by the name that `setting` gives: base, a run, RUN@STEP, RUN@best, RUN@judge, a model,
    MODEL@URL. And what tells it apart from others of that name. What needs closing beside the run's `own` engine is
    given to `opened`.

    With `sharing`, a run of the same model is loaded into the own engine: samplers are frozen copies of the adapter.
    Not in training, which would continue from what was loaded.
    """
    check_player(name, setting)
    if name == "base":
        player, identity, _ = await _loaded(own, config.model.model, None, None, note)
        return replace(player, learns=False), identity
    if is_endpoint(name):
        chat = chat_player(named_endpoint(name, _key(), setting))
        opened(chat)
        return chat, name
    named = split_name(name)
    run = None if named is None else Run.open(named[0])
    trained = judge_state(run) if run and named and named[1] == JUDGE else None
    step = step_named(run, named[1]) if run and named and not trained else None
    model = config_of(run).model if run else replace(config.model, model=name, renderer="auto")
    model = replace(model, device=config.model.device, dtype=config.model.dtype)
    if run:
        check_rank(run, model.lora_rank)
    check_same_server(name, model.base_url, config.model.base_url, setting)
    if not (sharing and model == config.model):
        with busy(f"loading {name}"):
            own = (make or make_engine)(replace(config, model=model))
        opened(own[0])
    if trained:
        await own[0].load_state(trained[0])
        return Player(await own[0].snapshot(), own[1], learns=False), f"{model.model} {trained[1]}"
    player, identity, _ = await _loaded(own, model.model, run, step, note)
    return replace(player, learns=False), identity


async def _loaded(
    own: tuple[Trainer, Rendering], model: str, run: Run | None, step: int | None, note: Note
) -> tuple[Player, str, int]:
    """Who speaks with the weights of that step (None: the run's newest), what tells it apart, and the step; without a
    run, and at step 0, the model before training."""
    engine, rendering = own
    if run is None or is_untrained(run, step):
        return Player(await engine.base(), rendering), model, 0
    checkpoint = await load_checkpoint(engine, run, step, note)
    return Player(await engine.snapshot(), rendering), f"{model} {checkpoint.seal}", checkpoint.step
