"""Which checkpoint of a run is meant, and whether it can be used. Damaged ones are passed over, newest first, and named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moot.debate.types import ConfigError
from moot.engine.protocol import EngineError, Trainer
from moot.records import Run, engine_state

Note = Callable[[str], None]
"""Is told what people should know and nobody has to act on."""


@dataclass(frozen=True)
class Checkpoint:
    step: int
    path: Path
    state: Mapping[str, Any] | None
    """What the training loop remembered; None where that is damaged."""

    @property
    def engine_state(self) -> str:
        """What to give to an engine's `load_state`."""
        return engine_state(self.path, self.state or {})

    @property
    def seal(self) -> str:
        """Tells one training's checkpoint from another's of the same step."""
        return f"{self.path.name} {hashlib.sha256((self.path / 'state.json').read_bytes()).hexdigest()[:12]}"


def checkpoints(run: Run, step: int | None = None) -> Iterator[Checkpoint]:
    """Newest first, damaged ones too; of `step` alone where it is given."""
    return (Checkpoint(number, path, state) for number, path, state in run.load_checkpoints() if step in (None, number))


def newest_whole(run: Run, step: int | None = None) -> Checkpoint | None:
    """The newest whose state can be read, or the one of `step`. Whether an engine takes it is not tried."""
    return next((checkpoint for checkpoint in checkpoints(run, step) if checkpoint.state is not None), None)


UNUSABLE = (EngineError, OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError)
"""What loading a checkpoint fails with: damage, another version, another rank, another model."""


async def load_newest(
    engine: Trainer, run: Run, note: Note, accept: Callable[[Mapping[str, Any]], object] = lambda state: None
) -> Checkpoint | None:
    """Loads the newest checkpoint that the engine takes, and whose state `accept` does not fail on; None where there is none."""
    for checkpoint in checkpoints(run):
        try:
            if checkpoint.state is not None:
                accept(checkpoint.state)
            await _load(engine, checkpoint)
        except UNUSABLE as error:
            note(f"checkpoint {checkpoint.path} cannot be used ({error}); trying the one before it")
        else:
            return checkpoint
    return None


async def load_checkpoint(engine: Trainer, run: Run, step: int | None, note: Note) -> Checkpoint:
    """Loads the checkpoint of `step`, or the newest that the engine takes; ConfigError where there is none."""
    wanted = await load_newest(engine, run, note) if step is None else next(checkpoints(run, step), None)
    if wanted is None:
        present = ", ".join(str(number) for number, _ in run.checkpoints()) or "none"
        missing = "checkpoint that is whole" if step is None else f"checkpoint of step {step}"
        raise ConfigError(f"{run.path} has no {missing}; it has {present}; step 0 is the model before training")
    if step is not None:
        try:
            await _load(engine, wanted)
        except UNUSABLE as error:
            raise ConfigError(f"checkpoint {wanted.path} cannot be used: {error}") from None
    return wanted


async def _load(engine: Trainer, checkpoint: Checkpoint) -> None:
    if checkpoint.state is None:
        raise EngineError("its state.json is damaged")
    await engine.load_state(checkpoint.engine_state)


def find_trained(given: str) -> tuple[dict[str, Any], str]:
    """How a model was trained, and what an engine loads. `given` is a run, one of its checkpoints, or the name a server has for one."""
    path = Path(given)
    if Run.exists(path):
        run = Run.open(path)
        if (checkpoint := newest_whole(run)) is None:
            raise ConfigError(f"checkpoint: the run {path} has no whole checkpoint yet; train it a step further")
        return _model_of(run), checkpoint.engine_state
    if path.is_dir() and path.resolve().name.isdigit() and Run.exists(path.resolve().parent.parent):
        run = Run.open(path.resolve().parent.parent)
        if checkpoint := newest_whole(run, int(path.resolve().name)):
            return _model_of(run), checkpoint.engine_state
    if (path / "manifest.json").is_file():
        try:
            manifest = json.loads((path / "manifest.json").read_text())
            targets = manifest["lora_targets"]
            names = targets if isinstance(targets, str) else ",".join(targets)
            same = {name: manifest[name] for name in ("model", "lora_rank", "lora_alpha")}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(f"checkpoint: {path / 'manifest.json'} is damaged: {type(error).__name__}: {error}") from None
        return {**same, "lora_targets": names}, given
    if "://" in given:
        return {}, given  # an engine elsewhere knows it
    raise ConfigError(f"checkpoint {given!r} is neither a run, nor a checkpoint in one; look under RUN/checkpoints")


def _model_of(run: Run) -> dict[str, Any]:
    model = run.config.get("model")
    if not isinstance(model, dict):
        raise ConfigError(f"{run.path / 'run.json'} is damaged: it has no model; put back the run.json that moot wrote")
    return dict(model)
