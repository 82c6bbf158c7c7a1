"""Runs that train at once in one process: each has its folder, lock, alarms and numbers, and all share a base model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from moot.engine.protocol import in_words
from moot.players.find import Busy, Engines
from moot.runs import Run
from moot.settings.train import TrainConfig
from moot.training.setup import RowsWatcher, carry_out, check_folder, prepare
from moot.training.state import Setup, Watcher


def prepare_together(
    plan: Iterable[tuple[TrainConfig, Path]], busy: Busy = nullcontext, restart: bool = False
) -> list[Setup]:
    """All of them, or none: what is wrong with one is said before any begins."""
    setups: list[Setup] = []
    make = Engines().make
    try:
        for config, path in plan:
            setups.append(prepare(config, path, busy, restart, make))
    except BaseException:
        _let_go(setups)
        raise
    return setups


async def carry_out_together(
    setups: Sequence[Setup],
    start_from: int | None = None,
    busy: Busy = nullcontext,
    watchers: Sequence[Watcher] | None = None,
) -> list[Exception | None]:
    """Each to its end, with its own watcher. What ends one early harms no other; it is answered with, in the order of
    the runs. Cancelled, all end the step in flight."""

    async def one(setup: Setup, watcher: Watcher) -> Exception | None:
        try:
            await carry_out(setup, start_from, watcher, busy)
        except Exception as error:  # whatever it is: the others go on, and whoever started them is told
            if len(setups) > 1:
                watcher.note(f"this run ended early: {in_words(error)}")
            return error
        return None

    try:
        async with asyncio.TaskGroup() as group:
            pairs = zip(setups, watchers or [Watcher() for _ in setups], strict=True)
            tasks = [group.create_task(one(setup, watcher)) for setup, watcher in pairs]
    finally:
        _let_go(setups)
    return [task.result() for task in tasks]


def _let_go(setups: Sequence[Setup]) -> None:
    """Also of what was never begun. Of no effect on the others."""
    for setup in setups:
        setup.engine.shut()
        setup.lock.close()


async def train_together_async(
    plan: Iterable[tuple[TrainConfig, str | Path]],
    watch: Callable[[Run, dict[str, Any]], object] | None = None,
    restart: bool = False,
) -> list[Run]:
    """As `train_together`, to be awaited."""
    places = [(config, Path(path)) for config, path in plan]
    if not restart:
        for config, path in places:
            check_folder(path, config, "name another folder, or train with the settings of that run")
    setups = prepare_together(places, restart=restart)
    watchers = None if watch is None else [RowsWatcher(partial(watch, setup.run)) for setup in setups]
    errors = []
    for setup, error in zip(setups, await carry_out_together(setups, watchers=watchers), strict=True):
        if error is not None:
            error.add_note(f"This ended the run {setup.run.path}.")
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(setups)} runs ended early; the others are complete", errors)
    return [setup.run for setup in setups]
