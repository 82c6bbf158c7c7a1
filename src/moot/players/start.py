"""What a run starts from when it is not the model itself: another run's weights, or an adapter's.

Weights only: the optimizer, the questions and the record are the new run's own. What cannot fit is refused before an
engine is made; the engine looks again when it loads.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moot.engine.kinds import KINDS
from moot.engine.manifest import DamagedCheckpoint, read_adapter_config
from moot.engine.published import SMOLLM, same_model
from moot.errors import ConfigError
from moot.players.checkpoints import find_trained, split_name
from moot.runs import Run
from moot.settings.model import ModelConfig
from moot.settings.train import TrainConfig

ALL_LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@dataclass(frozen=True)
class Start:
    state: str
    """What the engine loads."""
    source: dict[str, Any] = field(default_factory=dict)
    """What run.json says of it."""


def find_start(config: TrainConfig) -> Start:
    """What `config.start` names: RUN, RUN@STEP, RUN@best, one of a run's checkpoints, an adapter's folder, or a name
    that a server has for a state. ConfigError where it is not there, or made for another model or adapter."""
    name, model = config.start, config.model
    theirs, state = _made(name)
    if state is None:
        raise ConfigError(f"from {name}: that is step 0, the model before training; leave --from out")
    _check_same(name, theirs, state, model)
    source: dict[str, Any] = {"name": name, "state": state}
    if named := split_name(name):
        source["run"] = str(named[0])
        if (step := _step(named[0], state)) is not None:
            source["step"] = step
    return Start(state, source)


def model_of(name: str) -> str | None:
    """The base model of what `--from` names; None where that is not known, or nothing is there, which `find_start`
    says."""
    with suppress(ConfigError, OSError):
        model = _made(name)[0].get("model")
        return _here(model) if isinstance(model, str) else None
    return None


def start_of(run: Run, config: TrainConfig) -> Start:
    """As the run's folder has it, or found now."""
    source = run.header.get("from")
    if isinstance(source, dict) and isinstance(source.get("state"), str):
        return Start(source["state"], source)
    return find_start(config)


def _made(name: str) -> tuple[dict[str, Any], str | None]:
    """How it was trained, and what an engine loads: None for the model before training."""
    path = Path(name)
    if split_name(name) is None and (path / "adapter_config.json").is_file() and not (path / "manifest.json").is_file():
        return _of_adapter(path), str(path)
    return find_trained(name, "from")


def _here(model: str) -> str:
    """The embedded model needs no download under its own name."""
    return SMOLLM if same_model(model, SMOLLM) else model


def _step(run: Path, state: str) -> int | None:
    """Of the checkpoint that holds this state."""
    from moot.players.checkpoints import checkpoints

    return next((one.step for one in checkpoints(Run.open(run)) if one.engine_state == state), None)


def _of_adapter(path: Path) -> dict[str, Any]:
    try:
        config = read_adapter_config(path)
    except DamagedCheckpoint as error:
        raise ConfigError(f"from {path}: {error}") from None
    return {"engine": "local", **config}


def _check_same(name: str, theirs: dict[str, Any], state: str, model: ModelConfig) -> None:
    """Refuses, by name, what was trained in another way than this run trains."""
    engine = theirs.get("engine", "tinker" if "://" in state else "local")
    if engine != model.engine:
        raise ConfigError(
            f"from {name}: its weights are of the {engine} engine, and this run's engine is {model.engine}; "
            f"add --engine {engine}, or start from an adapter that this engine can load"
        )
    if KINDS[engine].server and theirs and theirs.get("base_url", "") != model.base_url:
        raise ConfigError(
            f"from {name}: its weights are kept at {theirs['base_url'] or 'the hosted service'}, and this run's server "
            f"is {model.base_url or 'the hosted service'}; a server loads only its own"
        )
    if "model" in theirs and not same_model(theirs["model"], model.model):
        raise ConfigError(
            f"from {name}: its base model is {theirs['model']}, and this run's is {model.model}; use --model "
            f"{_here(theirs['model'])} (where both are the same under two names, correct base_model_name_or_path in "
            "its adapter_config.json)"
        )
    if theirs.get("lora_rank", model.lora_rank) != model.lora_rank:
        raise ConfigError(
            f"from {name}: lora_rank is {theirs['lora_rank']} there and {model.lora_rank} here; add --lora-rank "
            f"{theirs['lora_rank']}"
        )
    targets = theirs.get("lora_targets", "all-linear")
    # Of a model of few layers peft writes every matrix by its whole name; the engine finds out if one is missing.
    if targets != "all-linear" and {name.rsplit(".", 1)[-1] for name in targets.split(",")} != ALL_LINEAR:
        raise ConfigError(f"from {name}: its adapter is on {targets} alone, and a run here trains one on every matrix")
