"""From a configuration to a running engine and its chat format. What is heavy is imported only for the engine that needs it."""

from __future__ import annotations

import os
from typing import Any

from moot.debate.types import ConfigError
from moot.engine.protocol import EngineError
from moot.rl.config import TrainConfig
from moot.rl.rendering import Rendering


def make_engine(config: TrainConfig) -> tuple[Any, Rendering]:
    m = config.model
    if m.engine == "scripted":
        from moot.engine.scripted import ScriptedEngine

        engine: Any = ScriptedEngine(style="mixed", seed=config.seed)
        return engine, Rendering(engine.tokenizer)
    if m.engine == "tinker":
        return make_remote(config)
    for name, value in (("base_url", m.base_url), ("tokenizer", m.tokenizer), ("context_length", m.context_length)):
        if value:
            raise ConfigError(f"{name} {value!r} is for a server, and the engine is {m.engine}; add --engine tinker")
    try:
        from moot.engine.local import LocalEngine
    except ModuleNotFoundError as error:
        raise ConfigError(f"the local engine needs {error.name}, which is not installed; run: pip install 'moot[local]'") from None
    targets: str | list[str] = m.lora_targets if "," not in m.lora_targets else m.lora_targets.split(",")
    try:
        engine = LocalEngine.create(
            m.model,
            dtype=m.dtype,
            device=m.device,
            lora_rank=m.lora_rank,
            lora_alpha=m.lora_alpha,
            lora_targets=targets,
            deterministic=m.deterministic,
            gradient_checkpointing=m.gradient_checkpointing,
            max_cache_gib=m.cache_gib or None,
            token_budget=m.token_budget or None,
            seed=config.seed,
        )
    except (EngineError, OSError, ValueError) as error:
        raise ConfigError(f"model {m.model!r} cannot be loaded: {error}") from error
    return engine, Rendering(engine.tokenizer, m.model, m.renderer, m.thinking)


def make_remote(config: TrainConfig) -> tuple[Any, Rendering]:
    """A server that speaks the Tinker API. What it cannot do is said before anything is made or paid for."""
    m, url = config.model, config.model.base_url or os.environ.get("TINKER_BASE_URL", "")
    if m.deterministic:
        raise ConfigError("deterministic needs the local engine: a server shares its batches with others")
    if m.lora_targets != "all-linear":
        raise ConfigError(f"lora_targets {m.lora_targets!r} cannot be asked of a server; leave it at all-linear")
    key = os.environ.get("TINKER_API_KEY", "")
    if not key and not url:
        raise ConfigError("the hosted service needs a key; set TINKER_API_KEY, or name a server of your own with --base-url")
    try:
        from moot.engine.remote import RemoteEngine
    except ModuleNotFoundError as error:
        raise ConfigError(f"the tinker engine needs {error.name}, which is not installed; run: pip install 'moot[tinker]'") from None
    try:
        engine = RemoteEngine.create(
            m.model,
            base_url=url or None,
            api_key=key or "tml-none",  # the SDK wants one, a server of one's own does not look at it
            lora_rank=m.lora_rank,
            seed=config.seed,
            tokenizer=m.tokenizer or None,
            context_length=m.context_length,
        )
    except (EngineError, OSError, ValueError) as error:
        raise ConfigError(f"model {m.model!r} cannot be used: {error}") from error
    try:
        if config.optim.max_staleness and not engine.capabilities.frozen_samplers:
            raise ConfigError(
                f"max_staleness must be 0 on this server, got {config.optim.max_staleness}: its samplers do not keep their weights"
            )
        if config.recipe.past_selves and not engine.capabilities.frozen_samplers:
            raise ConfigError(
                f"past_selves must be 0 on this server, got {config.recipe.past_selves}: its samplers do not keep their weights"
            )
        if config.optim.loss not in engine.capabilities.losses:
            raise ConfigError(f"loss {config.optim.loss} is not known to the server; it has {', '.join(engine.capabilities.losses)}")
        if config.warm_steps and "cross_entropy" not in engine.capabilities.losses:
            raise ConfigError(
                f"warm_questions must be 0 on this server, got {config.warm.warm_questions}: it has no cross_entropy to scale"
            )
        return engine, Rendering(engine.tokenizer, m.model, m.renderer, m.thinking)
    except BaseException:
        engine.shut()
        raise
