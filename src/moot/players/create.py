"""From a model's settings to a running engine. What is heavy is imported only for the engine that needs it."""

from __future__ import annotations

import os
import pkgutil

from moot.engine.memory_estimate import Place
from moot.engine.protocol import Trainer
from moot.errors import ConfigError, EngineError
from moot.players.checkpoints import check_model
from moot.settings.model import ModelConfig
from moot.util.addresses import check_address
from moot.util.secrets import keep_secret


def create_engine(model: ModelConfig, seed: int = 0) -> Trainer:
    """Loads the model, or connects to its server. ConfigError says which setting is wrong and how to mend it."""
    if model.kind.chat:
        raise ConfigError(f"engine {model.engine} is a chat server, which has no tokens to give; use --engine local")
    own = {"local": _local, "tinker": _remote}
    engine: Trainer = (own.get(model.engine) or pkgutil.resolve_name(model.kind.made_by))(model, seed)
    return engine


def check_trains(model: ModelConfig) -> None:
    """Refuses to train what can only be asked."""
    if not model.kind.trains:
        can = "it can be asked, checked and evaluated"
        raise ConfigError(f"engine {model.engine} cannot be trained: it has no weights to change; {can}")


def local_place(model: ModelConfig) -> Place | None:
    """Where the local engine would run on this machine; None where torch, or the device, is not here."""
    try:
        from moot.engine.local.shared import place

        return place(model.dtype, model.device, model.deterministic)
    except (ModuleNotFoundError, EngineError):
        return None
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _local(model: ModelConfig, seed: int) -> Trainer:
    for name in ("base_url", "tokenizer", "context_length"):
        if value := getattr(model, name):
            told = f"{name} {value!r} is for a server, and the engine is {model.engine}"
            raise ConfigError(f"{told}; add --engine tinker")
    check_model(model)
    try:
        from moot.engine.local import LocalEngine
    except ModuleNotFoundError as error:
        raise _not_installed("local", error) from None
    try:
        return LocalEngine.create(
            model.model,
            dtype=model.dtype,
            device=model.device,
            lora_rank=model.lora_rank,
            lora_alpha=2 * model.lora_rank,
            deterministic=model.deterministic,
            gradient_checkpointing=model.gradient_checkpointing,
            max_cache_gib=model.cache_gib or None,
            token_budget=model.token_budget or None,
            seed=seed,
        )
    except (EngineError, OSError, ValueError) as error:
        raise ConfigError(f"model {model.model!r} cannot be loaded: {error}") from error


def _remote(model: ModelConfig, seed: int) -> Trainer:
    """A server that speaks the Tinker API. What no server can do is refused before anything is made or paid for."""
    url = model.base_url or os.environ.get("TINKER_BASE_URL", "")
    if url:
        check_address(url, "base_url" if model.base_url else "TINKER_BASE_URL")
    if model.deterministic:
        raise ConfigError("deterministic needs the local engine: a server shares its batches with others")
    key = os.environ.get("TINKER_API_KEY", "")
    keep_secret(key)
    if not key and not url:
        way_out = "set TINKER_API_KEY, or name a server of your own with --base-url"
        raise ConfigError(f"the hosted service needs a key; {way_out}")
    try:
        from moot.engine.remote import RemoteEngine
    except ModuleNotFoundError as error:
        raise _not_installed("tinker", error) from None
    try:
        return RemoteEngine.create(
            model.model,
            base_url=url or None,
            api_key=key or "tml-none",  # the SDK wants one, a server of one's own does not look at it
            lora_rank=model.lora_rank,
            seed=seed,
            tokenizer=model.tokenizer or None,
            context_length=model.context_length,
        )
    except (EngineError, OSError, ValueError) as error:
        raise ConfigError(f"model {model.model!r} cannot be used: {error}") from error


def _not_installed(extra: str, error: ModuleNotFoundError) -> ConfigError:
    missing = f"the {extra} engine needs {error.name}, which is not installed"
    return ConfigError(f"{missing}; run: pip install 'moot[{extra}]'")
