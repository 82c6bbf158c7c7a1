"""Committing a step, and coming back to it.

What the run remembers goes into each checkpoint, and a run continues from the newest one that is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moot.errors import ConfigError, EngineError
from moot.players.checkpoints import UNUSABLE, best_step, load_checkpoint, load_newest, newest_whole
from moot.players.start import start_of
from moot.rl.plurality_history import Visits
from moot.training.state import History, Progress, Setup


async def commit(setup: Setup, progress: Progress, best: int | None, step: int, row: dict[str, Any]) -> None:
    await _seal(setup, progress, best, step, row)
    setup.run.append_metrics(row)
    setup.watcher.row(row)


async def _seal(setup: Setup, progress: Progress, best: int | None, step: int, row: dict[str, Any]) -> None:
    run = setup.run
    place = run.checkpoint_place(step)
    saved = await setup.engine.save_state(str(place))
    state = {"metrics": row, **progress.state(), "parts": {part.name: part.state() for part in setup.parts}}
    if saved not in (str(place), str(place.absolute())):
        state["engine_state"] = saved  # a server keeps its states itself, under names of its own
    run.commit_checkpoint(
        step, state, setup.config.is_kept(step), {best}.union(*(part.kept_steps() for part in setup.parts))
    )


async def restore(setup: Setup, start_from: int | None = None) -> tuple[int, Progress, History]:
    """Loads the newest checkpoint that is whole, or that of `start_from`; answers with its step, 0 for a fresh
    start."""
    run, watcher = setup.run, setup.watcher
    if start_from is None:
        checkpoint = await load_newest(setup.engine, run, watcher.note, lambda state: remember(setup, state))
    else:
        checkpoint = await load_checkpoint(setup.engine, run, start_from, watcher.note)
    if checkpoint is not None and checkpoint.state is not None:
        progress = remember(setup, checkpoint.state)
        for note in run.rewind(checkpoint.step, checkpoint.state["metrics"] if checkpoint.step else None):
            watcher.note(note)
        return checkpoint.step, progress, History(Visits.until(run, checkpoint.step), best_step(run))
    if there := run.contents():
        raise ConfigError(
            f"{run.path} has {there}, so it cannot continue, and nothing there was changed: put a checkpoint back and "
            f"name it with --resume {run.path} --checkpoint STEP, start a new run with --run DIR, or start over with "
            f"--restart, which moves what is there to {run.path / 'aside'}"
        )
    progress, history = Progress(), History(Visits.until(run, 0))
    if setup.config.start:
        await _begin_from(setup, progress)
    for note in run.rewind(0, None):  # not before it is sure that the run can begin again
        watcher.note(note)
    history.best = best_step(run)  # of an evaluation before the first step
    return 0, progress, history


async def _begin_from(setup: Setup, progress: Progress) -> None:
    """The weights that `config.start` names, without their optimizer, become checkpoint 0: from here on the run needs
    nobody else's folder."""
    source = start_of(setup.run, setup.config).source
    try:
        await setup.engine.load_state(source["state"], optimizer=False)
    except UNUSABLE as error:
        raise ConfigError(f"from {source['name']}: these weights cannot be loaded ({error})") from None
    await _seal(setup, progress, None, 0, {"step": 0, "phase": "start"})


def remember(setup: Setup, state: Mapping[str, Any]) -> Progress:
    """What a checkpoint carries; parts take back their own. Fails with ValueError, KeyError or the like on the state of
    another version."""
    if state["metrics"]["phase"] not in ("start", "warm", "self_play"):
        raise ValueError(f"its metrics are of phase {state['metrics']['phase']!r}")
    progress = Progress.from_state(state)
    for part in setup.parts:
        part.restore(state["parts"][part.name])
    return progress


async def fresh_optimizer(setup: Setup, step: int) -> None:
    """After the warm start Adam forgets it: moments of another loss, with gradients of another size, would steer the
    first steps."""
    saved = newest_whole(setup.run, step) if step else None
    if saved is None:
        return
    try:
        await setup.engine.load_state(saved.engine_state, optimizer=False)
    except EngineError as error:
        setup.watcher.note(
            f"this engine cannot reset its optimizer, so Adam's moments of the warm start stay ({error})"
        )
