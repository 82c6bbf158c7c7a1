"""A warm start taken over from another run, so that runs to be compared start from the same weights, and it is paid for once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from moot.checkpoints import newest_whole
from moot.debate.types import ConfigError
from moot.records import Run
from moot.rl.config import TrainConfig
from moot.rl.stored import config_of


@dataclass(frozen=True)
class WarmStart:
    state: str
    """What the engine loads."""
    rows: list[dict[str, Any]]
    """Its metrics, step by step."""


def warm_start_of(config: TrainConfig) -> WarmStart:
    """What `config.warm.warm_from` names. ConfigError where that run has none, or one of other settings."""
    path = Path(config.warm.warm_from)
    run = Run.open(path)
    theirs = config_of(run)
    if not config.warm_steps:
        raise ConfigError(f"warm_from names {path}, but warm_questions is 0: give the settings of its warm start too ({_asked(theirs)})")
    for name in ("engine", "base_url", "model", "lora_rank", "lora_alpha", "lora_targets"):
        _same(path, name, getattr(config.model, name), getattr(theirs.model, name))
    for field in fields(config.warm):
        if field.name != "warm_from":
            _same(path, field.name, getattr(config.warm, field.name), getattr(theirs.warm, field.name))
    for name in ("num_agents", "max_rounds"):
        _same(path, name, getattr(config.debate, name), getattr(theirs.debate, name))
    for name in ("contract", "sections"):
        _same(path, name, getattr(config.protocol.rules, name), getattr(theirs.protocol.rules, name))
    _same(path, "prompts", str(config.prompts), str(theirs.prompts))
    _same(path, "task", _first_task(config), _first_task(theirs))
    _same(path, "seed", config.seed, theirs.seed)
    rows = [row for row in run.metrics() if row["phase"] == "warm"]
    if (last := max((row["step"] for row in rows), default=0)) < config.warm_steps:
        raise ConfigError(f"warm_from names {path}, which has not finished its warm start ({last} of {config.warm_steps} steps)")
    if checkpoint := newest_whole(run, config.warm_steps):
        return WarmStart(checkpoint.engine_state, rows)
    raise ConfigError(f"warm_from names {path}, whose checkpoint of step {config.warm_steps} is missing or damaged; train that run again")


def _first_task(config: TrainConfig) -> str:
    return next(iter(config.recipe.curriculum), config.debate.task)


def _asked(theirs: TrainConfig) -> str:
    w = theirs.warm
    return f"--warm-questions {w.warm_questions} --warm-epochs {w.warm_epochs} --warm-batch-size {w.warm_batch_size}"


def _same(path: Path, name: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise ConfigError(f"{name} is {ours!r} here and {theirs!r} in {path}, whose warm start is to be taken over; make them equal")
