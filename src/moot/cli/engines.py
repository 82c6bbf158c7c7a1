"""From a configuration to a running engine and its chat format. What is heavy is imported only for the engine that needs it."""

from __future__ import annotations

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
