"""The adapter of a checkpoint, copied as peft reads it. Needs neither torch nor the base model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moot.engine.kinds import kind_named
from moot.engine.manifest import DamagedCheckpoint, check_files, read_manifest
from moot.errors import ConfigError
from moot.players.checkpoints import checkpoints, is_untrained, step_named
from moot.runs import Run

FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(frozen=True)
class Adapter:
    step: int
    place: Path
    """The checkpoint it stands in."""
    model: str
    """The base model, by the name the run was given."""
    digests: dict[str, str]


def find_adapter(run: Run, name: int | str | None = None, note: Callable[[str], None] = lambda _: None) -> Adapter:
    """Of the newest checkpoint that is whole, or of the one asked for, by its step or as best."""
    step = step_named(run, name)
    if is_untrained(run, step) and name != 0:
        untrained = f"the best of {run.path} is the model before training, which has no adapter"
        raise ConfigError(f"{untrained}; name a step with --checkpoint")
    present = list(checkpoints(run, step))
    if not present and step is not None:
        steps = ", ".join(str(number) for number, _ in sorted(run.checkpoints())) or "none"
        there = f"there are {steps} (only the newest two and the kept ones stay)"
        raise ConfigError(f"checkpoint {step} is not in {run.path}; {there}")
    if not present:
        raise ConfigError(f"{run.path} has no checkpoint yet: there are no weights to export")
    if kind_named(run.config.get("model", {}).get("engine")).scripted:
        raise ConfigError(f"{run.path} was made by the scripted engine, which has no weights to export")
    problems: list[str] = []
    for checkpoint in present:
        try:
            adapter = _whole(checkpoint.step, checkpoint.path)
        except DamagedCheckpoint as error:
            why = str(error).removeprefix(f"{checkpoint.path}: ")
            problems.append(f"checkpoint {checkpoint.path} cannot be used ({why})")
            continue
        for problem in problems:
            note(f"{problem}; taking step {adapter.step} instead")
        return adapter
    raise ConfigError("; ".join(problems) + "; choose another with --checkpoint")


def _whole(step: int, place: Path) -> Adapter:
    """DamagedCheckpoint where it is not whole."""
    manifest = read_manifest(place)
    digests = {name: str(manifest["files"].get(name)) for name in FILES}
    check_files(place, digests)
    return Adapter(step, place, str(manifest.get("model")), digests)


def copy_adapter(adapter: Adapter, target: Path, base: str) -> None:
    """Checked once more after copying: a run that continues removes its older checkpoints. Then its config names
    `base`, which others can load, where it had a folder of this machine."""
    for name in FILES:
        shutil.copyfile(adapter.place / name, target / name)
    try:
        check_files(target, adapter.digests)
    except DamagedCheckpoint:
        raise ConfigError(f"{adapter.place} changed while it was copied; try again") from None
    file = target / FILES[0]
    config = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**config, "base_model_name_or_path": base}, indent=2), encoding="utf-8")
