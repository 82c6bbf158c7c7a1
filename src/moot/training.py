"""From a configuration to a trained run on disk: what `moot train` and `moot.train` share."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moot import __version__
from moot.checkpoints import Note, check_model, check_rank
from moot.debate.types import ConfigError
from moot.foreign import is_code
from moot.loop.state import Loop, Watcher
from moot.loop.still import named_runs
from moot.loop.train import train as train_loop
from moot.players import Busy, check_outsiders, check_reachable, make_engine, outsider
from moot.records import Run
from moot.records.aside import set_aside
from moot.records.lock import locked
from moot.rl.choices import find_estimator, find_reward
from moot.rl.config import RENEWED, TrainConfig
from moot.rl.ready import check_reward, check_scoring, check_task, check_warm_start
from moot.rl.resume import differences, told
from moot.rl.rollout import Guest, Player
from moot.rl.stored import config_of
from moot.rl.warm_from import warm_start_of
from moot.tasks import check_name, load, load_curriculum
from moot.tasks.two_sided import two_sided


@dataclass(frozen=True)
class RowsWatcher(Watcher):
    """Passes on the rows of the metrics."""

    watch: Callable[[dict[str, Any]], object]

    def row(self, row: dict[str, Any]) -> None:
        self.watch(row)


def check_folder(path: Path, config: TrainConfig, continuing: str) -> None:
    """A folder is free, or holds a run of the same settings. `continuing` says how a run keeps its own."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"a run is a folder, and {path} is a file; name another")
    if Run.exists(path) and (changed := list(differences(config_of(Run.open(path)), config))):
        raise ConfigError(f"{path} was started with other settings ({told(changed)}); {continuing}")


def check_place(path: Path) -> None:
    """A folder can be made there; tried before a model is loaded, and leaving nothing."""
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())
    try:
        tempfile.TemporaryDirectory(prefix=".moot-", dir=there).cleanup()
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        why = (error.strerror or str(error)).lower()
        raise ConfigError(f"run {path}: no folder can be made in {there} ({why}); name another folder") from None


def check_named(config: TrainConfig, path: Path, run_code: bool = True) -> None:
    """What a configuration names and nothing needs to be loaded for: its tasks, and the run whose warm start a new one takes over.

    A task in Python is loaded to be checked, unless `run_code` forbids it.
    """
    check_model(config.model.model)
    for name in (config.debate.task, *config.recipe.curriculum):
        if run_code or not is_code(name):
            check_name(name)
    if config.warm.warm_from and not Run.exists(path):
        warm_start_of(config)


def prepare(config: TrainConfig, path: Path, busy: Busy = nullcontext, restart: bool = False) -> Loop:
    """Whatever can be wrong with the settings is found before an engine is made, and that before there is a folder.

    The run is locked from here until `carry_out` ends. With `restart`, what the folder holds is moved aside.
    """
    if Run.exists(path):
        with locked(path):
            if not restart:  # refused now, and not after minutes of loading
                check_rank(Run.open(path), config.model.lora_rank)
    check_place(path)
    check_named(config, path)
    scoring = config.protocol.scoring
    reward, estimator = find_reward(scoring.reward), find_estimator(scoring)
    task = load(config.debate.task, config.seed, config.eval_questions)
    check_task(config.debate.task, task)
    stages = load_curriculum(config.recipe.curriculum, task, config.seed, config.eval_questions, config.recipe.promote_at <= 1)
    if config.protocol.rules.positions == "assigned":
        task, *stages = map(two_sided, (task, *stages))
    check_warm_start(config, (stages or [task])[0])
    check_reward(config, (stages or [task])[0])
    check_scoring(config, task, reward, estimator)
    check_outsiders(config)
    check_reachable([config.recipe.judge, *(config.eval_opponents if "opponents" in config.eval_modes else ())], "judge or opponent")
    with busy(f"loading {config.model.model}"):
        engine, rendering = make_engine(config)
    try:
        run, lock = _open_run(config, path, restart)
    except BaseException:
        engine.shut()
        raise
    return Loop(config, engine, rendering, task, run, Watcher(), reward, estimator, stages=stages, lock=lock)


def _open_run(config: TrainConfig, path: Path, restart: bool) -> tuple[Run, ExitStack]:
    path.mkdir(parents=True, exist_ok=True)
    lock = locked(path)
    try:
        if Run.exists(path) and restart:
            set_aside(path)
        if Run.exists(path):
            check_folder(path, config, "another process began a run there just now; name another")
            return Run.open(path), lock
        return Run.create(path, config.as_dict(), {"moot": __version__}), lock
    except BaseException:
        lock.close()
        raise


async def carry_out(loop: Loop, note: Note = lambda text: None, busy: Busy = nullcontext) -> None:
    """Trains to the end. Cancelled, it ends the step in flight and lets go of the engines; what was committed stays."""
    config = loop.config
    async with AsyncExitStack() as stack:
        stack.enter_context(loop.lock)
        stack.push_async_callback(loop.engine.close)

        async def outside(name: str, setting: str) -> Guest:
            own = (loop.engine, loop.rendering)
            player, _ = await outsider(name, setting, config, own, lambda made: stack.push_async_callback(made.close), note, busy)
            return player

        if config.recipe.judge not in ("", RENEWED):
            loop.judge = await outside(config.recipe.judge, "judge")
        if "opponents" in config.eval_modes:
            loop.opponents = {name: await outside(name, "eval_opponents") for name in config.eval_opponents}
        for setting, name in named_runs(config).items():
            player = await outside(name, setting)
            if not isinstance(player, Player):
                raise ConfigError(f"{setting} must name weights: base, start, ema, a run's folder or RUN@STEP, got {name!r}")
            loop.references[name] = player.sampler
        await train_loop(loop)


async def train_async(
    config: TrainConfig, path: str | Path, watch: Callable[[dict[str, Any]], object] | None = None, restart: bool = False
) -> Run:
    """As `train`, to be awaited."""
    place = Path(path)
    if not restart:
        check_folder(place, config, "name another folder, or train with the settings of that run")
    loop = prepare(config, place, restart=restart)
    if watch is not None:
        loop.watcher = RowsWatcher(watch)
    await carry_out(loop)
    return loop.run
