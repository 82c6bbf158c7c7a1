"""From a configuration to a trained run on disk: what `moot train` and `moot.train` share.

`prepare` makes a `Setup` of what can be checked before anything is paid for; `carry_out` completes it with who looks on
and who comes from outside, and trains. Nobody else changes one.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moot.engine.protocol import Sampler
from moot.errors import ConfigError
from moot.players.checkpoints import check_model, check_rank, split_name
from moot.players.create import check_trains
from moot.players.find import Busy, Engines, MakeEngine, check_outsiders, check_reachable, outsider
from moot.players.start import find_start
from moot.players.untrusted import is_code
from moot.rl.checks import check_reward, check_scoring, check_task, check_warm_start
from moot.rl.lookup import find_estimator, find_reward
from moot.rl.rollout import Guest, Player
from moot.runs import Run
from moot.runs.lock import RunLock, locked
from moot.runs.made_by import made_by
from moot.runs.run import set_aside
from moot.settings.changes import differences, told
from moot.settings.saved import config_of
from moot.settings.train import TrainConfig
from moot.tasks import check_name, load, load_trained
from moot.tasks.two_sided import as_debated
from moot.training.loop import train as train_loop
from moot.training.part import Part
from moot.training.parts import find_parts, trained_tasks
from moot.training.state import Setup, Watcher
from moot.training.weights import OURS


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
    """What a configuration names and nothing needs to be loaded for: its tasks, and the weights that a new run
    starts from.

    A task in Python is loaded to be checked, unless `run_code` forbids it.
    """
    check_trains(config.model)
    check_model(config.model)
    trained, seed, held_out = trained_tasks(config), config.seed, config.eval_questions
    for name in dict.fromkeys((config.debate.task, *trained)):
        task = check_name(name, seed, held_out) if run_code or not is_code(name) else None
        if task is not None and name == trained[0] and not run_code:
            check_warm_start(config, task)  # `prepare` does so with every task
    if config.start and not Run.exists(path):
        find_start(config)


def prepare(
    config: TrainConfig, path: Path, busy: Busy = nullcontext, restart: bool = False, make: MakeEngine | None = None
) -> Setup:
    """Whatever can be wrong with the settings is found before an engine is made, and that before there is a folder.
    `make`: where engines come from, if other runs train beside this one.

    The run is locked from here until `carry_out` ends. With `restart`, what the folder holds is moved aside.
    """
    if Run.exists(path):
        with locked(path):
            if not restart:  # refused now, and not after minutes of loading
                check_rank(Run.open(path), config.model.lora_rank)
    check_place(path)
    check_named(config, path)
    parts = find_parts(config)
    scoring = config.protocol.scoring
    reward, estimator = find_reward(scoring.reward), find_estimator(scoring)
    task = load(config.debate.task, config.seed, config.eval_questions)
    check_task(config.debate.task, task)
    tasks = load_trained(
        next(filter(None, (part.tasks() for part in parts)), ()), task, config.seed, config.eval_questions
    )
    for part in parts:
        part.check_tasks(tasks)
    sided = as_debated(task, config.protocol.rules)
    tasks = [sided if trained is task else as_debated(trained, config.protocol.rules) for trained in tasks]
    task = sided
    check_warm_start(config, tasks[0])
    check_reward(config, tasks[0], config.debate.max_rounds + max((_extra_rounds(part) for part in parts), default=0))
    check_scoring(config, task, reward, estimator)
    for asked in (task, *tasks) if reward.each_rule else ():
        asked.rules_of(asked.train(0))
    check_outsiders(config)
    check_reachable([config.outside_judge], "judge or opponent")
    make = make or Engines().make
    with busy(f"loading {config.model.called}"):
        engine, rendering = make(config)
    try:
        for part in parts:
            part.check_engine(config, engine.capabilities)
        run, lock = _open_run(config, path, restart)
        run.lock = lock
    except BaseException:
        engine.shut()
        raise
    return Setup(config, engine, rendering, task, tasks, reward, estimator, run, parts, lock=lock, make_engine=make)


def _extra_rounds(part: Part) -> int:
    return int(part.debate_settings().get("extra_rounds", 0))


def _open_run(config: TrainConfig, path: Path, restart: bool) -> tuple[Run, RunLock]:
    path.mkdir(parents=True, exist_ok=True)
    lock = locked(path)
    try:
        if Run.exists(path) and restart:
            if config.start and (named := split_name(config.start)) and named[0].resolve() == path.resolve():
                raise ConfigError(f"from {config.start}: a run cannot start over from itself; name another --run")
            set_aside(path)
        if Run.exists(path):
            check_folder(path, config, "another process began a run there just now; name another")
            return Run.open(path), lock
        source = find_start(config).source if config.start else None
        return Run.create(path, config.as_dict(), made_by(), source), lock
    except BaseException:
        lock.close()
        raise


async def carry_out(
    setup: Setup, start_from: int | None = None, watcher: Watcher = Watcher(), busy: Busy = nullcontext
) -> None:
    """Trains to the end. Cancelled, it ends the step in flight and lets go of the engines; what was committed stays."""
    config = setup.config
    async with AsyncExitStack() as stack:
        stack.enter_context(setup.lock)
        if setup.lock.note:
            watcher.note(setup.lock.note)
        stack.push_async_callback(setup.engine.close)
        for part in setup.parts:
            stack.push_async_callback(part.close)

        async def outside(name: str, setting: str) -> Guest:
            own = (setup.engine, setup.rendering)
            player, _ = await outsider(
                name,
                setting,
                config,
                own,
                lambda made: stack.push_async_callback(made.close),
                watcher.note,
                busy,
                make=setup.make_engine,
            )
            return player

        async def weights(part: Part) -> Sampler:
            player = await outside(part.weights(), part.name)
            if not isinstance(player, Player):
                raise ConfigError(
                    f"{part.name}: weights must be base, start, ema, a run's folder or RUN@STEP, got {part.weights()!r}"
                )
            return player.sampler

        judge = await outside(config.outside_judge, "judge") if config.outside_judge else None
        against = ("base",) if "opponents" in config.eval_modes else ()
        opponents = {name: await outside(name, "eval_modes") for name in against}
        others = {part.weights(): await weights(part) for part in setup.parts if part.weights() not in ("", *OURS)}
        whole = replace(setup, watcher=watcher, judge=judge, opponents=opponents, weights=others)
        await train_loop(whole, start_from)


async def train_async(
    config: TrainConfig,
    path: str | Path,
    watch: Callable[[dict[str, Any]], object] | None = None,
    restart: bool = False,
) -> Run:
    """As `train`, to be awaited."""
    place = Path(path)
    if not restart:
        check_folder(place, config, "name another folder, or train with the settings of that run")
    setup = prepare(config, place, restart=restart)
    await carry_out(setup, watcher=Watcher() if watch is None else RowsWatcher(watch))
    return setup.run
