"""State on disk: an adapter directory that peft and others can read, plus the optimizer and a manifest of checksums.

    adapter_config.json, adapter_model.safetensors   peft's own format
    optimizer.safetensors                            Adam's moments and steps; absent in a sampler's checkpoint
    average.safetensors                              the moving average of the parameters, where one is kept
    manifest.json                                    what was saved, and each file's SHA-256

A directory is written beside its place and renamed into it, so a kill leaves the old one or the new one.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from moot.engine.local.adapter import NAME
from moot.engine.local.trainer import LoraTrainer
from moot.engine.manifest import (
    MANIFEST,
    DamagedCheckpoint,
    check_files,
    read_adapter_config,
    read_manifest,
    sha256,
)
from moot.engine.published import same_model
from moot.errors import EngineError
from moot.util.disk import new_folder

ADAPTER, OPTIMIZER = "adapter_model.safetensors", "optimizer.safetensors"
AVERAGE = "average.safetensors"
VERSION = 1


def not_written(error: OSError | SafetensorError, path: Path, what: str) -> Exception:
    """What to raise instead. safetensors has its own words for a full disk; whoever waits for the error should not have
    to know them."""
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error) or "os error 28" in str(error):
        return OSError(errno.ENOSPC, "no space left on the device", str(path))
    return EngineError(f"could not save {what} to {path}: {error}")


def save(path: Path, trainer: LoraTrainer, about: dict[str, Any], with_optimizer: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(path) as made:
            trainer.wrapped.peft_config[NAME].save_pretrained(str(made))
            save_file(_plain(get_peft_model_state_dict(trainer.wrapped)), made / ADAPTER, metadata={"format": "pt"})
            if with_optimizer:
                save_file(_plain(_optimizer_state(trainer)), made / OPTIMIZER)
                if trainer.average:
                    save_file(_plain(trainer.average), made / AVERAGE)
            files = {item.name: sha256(item) for item in sorted(made.iterdir())}
            (made / MANIFEST).write_text(json.dumps({"version": VERSION, **about, "files": files}, indent=1))
    except (OSError, SafetensorError) as error:
        raise not_written(error, path, "a checkpoint") from error


def read(path: Path, about: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor] | None, dict[str, Tensor]]:
    """The adapter's, the optimizer's and the average's tensors, checked against the manifest and against what is
    running."""
    if not path.exists():
        old = next(path.parent.glob(f".{path.name}.*.old"), None)
        hint = f"; its predecessor is still at {old}" if old else ""
        raise FileNotFoundError(f"no checkpoint at {path}{hint}")
    foreign = not (path / MANIFEST).exists() and not (path / OPTIMIZER).exists()
    if foreign and (path / "adapter_config.json").is_file():
        return _read_adapter(path, about), None, {}
    manifest = read_manifest(path)
    files = manifest["files"]
    if manifest.get("version") != VERSION:
        raise ValueError(f"{path}: checkpoint version {manifest.get('version')}, this engine reads {VERSION}")
    check_files(path, files)
    if ADAPTER not in files:
        raise DamagedCheckpoint(f"{path}: the manifest lists no {ADAPTER}")
    _check_about(path, manifest, about)
    try:
        optimizer = load_file(path / OPTIMIZER) if OPTIMIZER in files else None
        return load_file(path / ADAPTER), optimizer, load_file(path / AVERAGE) if AVERAGE in files else {}
    except (SafetensorError, OSError) as error:
        raise DamagedCheckpoint(f"{path}: {error}") from error


def _check_about(path: Path, saved: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    for key, value in about.items():
        there = saved.get(key)
        if there != value and not (key == "model" and same_model(str(there), str(value))):
            raise ValueError(f"{path}: saved with {key}={there!r}, this engine runs {key}={value!r}")


def _read_adapter(path: Path, about: Mapping[str, Any]) -> dict[str, Tensor]:
    """An adapter's folder as peft writes it, without our manifest. One of another alpha is scaled, and so means the
    same."""
    saved = read_adapter_config(path)
    targets = saved["lora_targets"]
    listed = about["lora_targets"] if targets == "all-linear" else targets.split(",")
    _check_about(path, {**saved, "lora_targets": listed, "lora_alpha": about["lora_alpha"]}, about)
    scale = saved["lora_alpha"] / about["lora_alpha"]
    try:
        tensors = load_file(path / ADAPTER)
        return {name: tensor * scale if "lora_B" in name else tensor for name, tensor in tensors.items()}
    except (SafetensorError, OSError) as error:
        raise DamagedCheckpoint(f"{path}: {ADAPTER} cannot be read ({error})") from error


def load(path: Path, trainer: LoraTrainer, about: dict[str, Any], with_optimizer: bool = True) -> None:
    """Without optimizer state in it (a sampler's checkpoint), or if it is not wanted, Adam starts anew. The gradient is
    dropped."""
    adapter, optimizer, average = read(path, about)
    if not with_optimizer:
        optimizer, average = None, {}
    wanted = get_peft_model_state_dict(trainer.wrapped)
    if strange := sorted(wanted.keys() ^ adapter.keys()):
        raise ValueError(f"{path}: {ADAPTER} and this engine differ in {len(strange)} tensors, first {strange[0]}")
    for name, tensor in wanted.items():
        if adapter[name].shape != tensor.shape:
            raise ValueError(
                f"{path}: {name} has shape {list(adapter[name].shape)}, this engine's has {list(tensor.shape)}"
            )
    set_peft_model_state_dict(trainer.wrapped, adapter)
    trainer.gradient, trainer.poisoned = {}, False
    trainer.average = {
        name: average[name].to(parameter.device) for name, parameter in trainer.parameters.items() if name in average
    }
    trainer.optimizer.state.clear()
    for name, parameter in trainer.parameters.items():
        if optimizer is None or f"{name}/exp_avg" not in optimizer:
            continue
        trainer.optimizer.state[parameter] = {
            key: optimizer[f"{name}/{key}"].to("cpu" if key == "step" else parameter.device)
            for key in ("step", "exp_avg", "exp_avg_sq")
        }


def _optimizer_state(trainer: LoraTrainer) -> dict[str, Tensor]:
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, parameter in trainer.parameters.items()
        for key, value in trainer.optimizer.state.get(parameter, {}).items()
    }


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
