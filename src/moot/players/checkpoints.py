"""Which checkpoint of a run is meant, and whether it can be used. Damaged ones are passed over and named."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moot.engine.manifest import MANIFEST, DamagedCheckpoint, read_manifest
from moot.engine.protocol import Trainer
from moot.errors import ConfigError, EngineError
from moot.rl.best import UNRANKED
from moot.runs import Run
from moot.runs.run import loop_state
from moot.settings.model import ModelConfig
from moot.settings.saved import config_of
from moot.util.disk import read_file
from moot.util.files import digest
from moot.util.json_text import read_json

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
        """What to give to an engine's `load_state`: the folder, or the name under which a server keeps it."""
        return str((self.state or {}).get("engine_state") or self.path)

    @property
    def seal(self) -> str:
        """Tells one training's checkpoint from another's of the same step."""
        return f"{self.path.name} {hashlib.sha256(read_file(self.path / 'state.json')).hexdigest()[:12]}"


def checkpoints(run: Run, step: int | None = None) -> Iterator[Checkpoint]:
    """Newest first, damaged ones too; of `step` alone where it is given."""
    return (Checkpoint(number, path, loop_state(path)) for number, path in run.checkpoints() if step in (None, number))


def newest_whole(run: Run, step: int | None = None) -> Checkpoint | None:
    """The newest whose state can be read, or the one of `step`. Whether an engine takes it is not tried."""
    return next((checkpoint for checkpoint in checkpoints(run, step) if checkpoint.state is not None), None)


def best_step(run: Run) -> int | None:
    """The step that the evaluations during training found best; 0 is the model before training."""
    found = next((row.get("test/best_step") for row in reversed(run.metrics()) if row["phase"] == "eval"), None)
    return found if type(found) is int else None


ALARMED = "alarmed"
"""What a part keeps, with the value `best`, if it ends the run when an alarm rings: the best checkpoint is then the
result."""


def result_step(run: Run) -> int | None:
    """The step of a run that names none: the best where an alarm stopped it, otherwise None, the newest."""
    last: dict[str, Any] = next((row for row in reversed(run.metrics()) if row["phase"] == "self_play"), {})
    alarmed = any(name.startswith("alarm/") and value for name, value in last.items())
    return best_step(run) if alarmed and _ends_at_best(run) else None


def _ends_at_best(run: Run) -> bool:
    """Whether one of its parts ends it when an alarm rings, as the newest checkpoint keeps it of that part."""
    newest = newest_whole(run)
    parts = newest.state.get("parts") if newest is not None and newest.state is not None else None
    kept = parts.values() if isinstance(parts, dict) else ()
    return any(isinstance(state, dict) and state.get(ALARMED) == "best" for state in kept)


def step_named(run: Run, name: int | str | None) -> int | None:
    """The step by its number, as `best`, or, not named, as the run ended; None is the newest."""
    if name is None:
        return result_step(run)
    if name == "best":
        if (best := best_step(run)) is None:
            if any(row["phase"] == "eval" for row in run.metrics()):
                logging.getLogger("moot").warning(f"{run.path}@best: of its checkpoints {UNRANKED}")
                return None
            why = "nothing was evaluated in training (eval_every)"
            raise ConfigError(f"{run.path} has no best checkpoint: {why}; name a step")
        return best
    if isinstance(name, str) and not (name.isascii() and name.isdigit()):
        raise ConfigError(f"{run.path}@{name}: a checkpoint is a step's number, or best")
    return int(name)


def split_name(name: str | Path) -> tuple[Path, str | None] | None:
    """A run and the step that is named with it: RUN, RUN@STEP, RUN@best. None where it is no run."""
    if Run.exists(Path(name)):
        return Path(name), None
    path, _, at = str(name).rpartition("@")
    return (Path(path), at) if path and Run.exists(Path(path)) else None


JUDGE, SERVING = "judge", "serving.json"
"""The folder of a judge that a run trained, and the file in it that names the state of the one that is listened to."""


def judge_state(run: Run) -> tuple[str, str]:
    """What an engine loads for the judge that a run trained (`RUN@judge`), and what tells it apart."""
    place = run.path / JUDGE / SERVING
    try:
        named = read_json(read_file(place))
        state, step = str(named["state"]), int(named["step"])
    except FileNotFoundError:
        raise ConfigError(f"{run.path} has no judge of its own: it was not trained with judge_training") from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ConfigError(f"{place} is damaged: {error}") from None
    return judge_place(run.path / JUDGE, state), f"judge {step} {digest([run.config, state])}"


def own_judge(run: Run | None) -> str:
    """The name of the judge that a run trained; empty for one that has none."""
    return f"{run.path}@{JUDGE}" if run is not None and (run.path / JUDGE / SERVING).is_file() else ""


def judge_place(folder: Path, state: str) -> str:
    """A folder beside the others, or the name under which a server keeps it."""
    return str(folder / state) if state.isdigit() else state


UNUSABLE = (EngineError, OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RuntimeError)
"""What loading a checkpoint fails with: damage, another version, another rank, another model."""


async def load_newest(
    engine: Trainer, run: Run, note: Note, accept: Callable[[Mapping[str, Any]], object] = lambda state: None
) -> Checkpoint | None:
    """The newest checkpoint that the engine takes and `accept` does not fail on, loaded; None where there is none."""
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


def is_untrained(run: Run, step: int | None) -> bool:
    """Whether that step is the model itself. Step 0 of a run that started from other weights is a checkpoint."""
    return step == 0 and all(number for number, _ in run.checkpoints())


def find_trained(given: str, setting: str = "checkpoint") -> tuple[dict[str, Any], str | None]:
    """How a model was trained, and what an engine loads: None for the model before training. `given` is a run,
    RUN@STEP, RUN@best, one of its checkpoints, or the name a server has for one."""
    path = Path(given)
    if named := split_name(given):
        run = Run.open(named[0])
        if is_untrained(run, step := step_named(run, named[1])):
            return _model_of(run), None
        if (checkpoint := newest_whole(run, step)) is None:
            present = ", ".join(str(number) for number, _ in run.checkpoints()) or "none"
            which = "yet; train it a step further" if step is None else f"of step {step}; it has {present}"
            raise ConfigError(f"{setting}: the run {run.path} has no whole checkpoint {which}")
        return _model_of(run), checkpoint.engine_state
    if path.is_dir() and path.resolve().name.isdigit() and Run.exists(path.resolve().parent.parent):
        run = Run.open(path.resolve().parent.parent)
        if checkpoint := newest_whole(run, int(path.resolve().name)):
            return _model_of(run), checkpoint.engine_state
    if (path / MANIFEST).is_file():
        try:
            manifest = read_manifest(path)
            return {name: manifest[name] for name in ("model", "lora_rank")}, given
        except (DamagedCheckpoint, KeyError, TypeError) as error:
            raise ConfigError(f"{setting}: {path / MANIFEST} is damaged: {type(error).__name__}: {error}") from None
    if "://" in given:
        return {}, given  # an engine elsewhere knows it
    adapter = ", nor an adapter's folder" if setting == "from" else ""
    raise ConfigError(
        f"{setting} {given!r} is neither a run, nor a checkpoint in one{adapter}; look under RUN/checkpoints"
    )


def check_model(model: ModelConfig) -> None:
    """Refuses a folder that holds a run, an adapter or nothing of a model, and a path that leads nowhere: transformers
    asks the hub first, and says so late, in other words."""
    name, path = model.model, Path(model.model)
    if name == ModelConfig().model or (path / "config.json").is_file():
        return
    what = "a run" if Run.exists(path) else "an adapter" if (path / "adapter_config.json").is_file() else ""
    if what:
        run = path if Run.exists(path) else "RUN"
        merged = f"moot export {run} --merged, then --model {run}/export/merged"
        told = f"model {name} is the folder of {what}, not of a model"
        on = f"train on from it with moot train --from {name}, or join its weights with the model's first"
        raise ConfigError(f"{told}; {on}: {merged}")
    if model.kind.server:
        return  # a path there is none here
    if path.is_dir():
        raise ConfigError(f"model {name} is a folder without a model: it has no config.json; name the folder that has")
    if path.is_absolute() or name.startswith((".", "~")):
        raise ConfigError(f"model {name}: no such folder; check the path")


def check_rank(run: Run, rank: int) -> None:
    """Refuses a rank that the run's own checkpoints do not have, before memory is taken for it."""
    for _, path in run.checkpoints():
        with suppress(DamagedCheckpoint, OSError):
            there = read_manifest(path).get("lora_rank", rank)
            if there != rank:
                both = f"{rank} in {run.path / 'run.json'} and {there!r:.40} in {path}"
                raise ConfigError(f"lora_rank is {both}; put back the run.json that moot wrote")
            return


def _model_of(run: Run) -> dict[str, Any]:
    if not isinstance(run.config.get("model"), dict):
        raise ConfigError(f"{run.path / 'run.json'} is damaged: it has no model; put back the run.json that moot wrote")
    model = config_of(run).model
    check_rank(run, model.lora_rank)
    return dict(vars(model))
