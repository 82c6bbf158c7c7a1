"""Committing a step, and coming back to it.

What the loop remembers goes into each checkpoint, and a run continues from the newest one that is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from moot.checkpoints import Checkpoint, best_step, checkpoints, load_checkpoint, load_newest, newest_whole
from moot.debate.types import ConfigError
from moot.engine.protocol import EngineError, Sampler
from moot.loop.state import Loop
from moot.rl.advantages import SeatMeans
from moot.rl.pace import Pace
from moot.rl.question_numbers import Further
from moot.rl.remedies import BatchQuestion
from moot.rl.trust import Alarms
from moot.rl.visits import Visits
from moot.rl.warm_from import warm_start_of


async def commit(loop: Loop, step: int, row: dict[str, Any]) -> None:
    place = loop.run.checkpoint_place(step)
    saved = await loop.engine.save_state(str(place))
    state = {
        "metrics": row,
        "seats": loop.seats.means,
        "alarms": loop.alarms.state(),
        "skipped": loop.skipped,
        "sampled": loop.sampled,
        "pace": loop.pace.factor,
        "further": loop.further.ranges,
        "curriculum": loop.curriculum.state(),
        # Those of batches that are being sampled ahead too: a kill loses the batches, and they are asked again.
        "again": {later: [asdict(each) for each in asked] for later, asked in loop.reopened.items() if later > step},
        "easy": sorted(loop.easy),
    }
    if saved not in (str(place), str(place.absolute())):
        state["engine_state"] = saved  # a server keeps its states itself, under names of its own
    used = {loop.best, loop.judge_taken.step if loop.judge_taken else None}
    loop.run.commit_checkpoint(step, state, is_kept(loop, step), used)
    loop.run.append_metrics(row)
    loop.watcher.row(row)


def is_kept(loop: Loop, step: int) -> bool:
    config = loop.config
    return step in (config.warm_steps, config.total_steps) or (config.save_every > 0 and config.iteration(step) % config.save_every == 0)


async def restore(loop: Loop) -> int:
    """Loads the newest checkpoint that is whole, or the one that is asked for; answers with its step, 0 for a fresh start."""
    if loop.start_from is None:
        checkpoint = await load_newest(loop.engine, loop.run, loop.watcher.note, lambda state: remember(loop, state))
    else:
        checkpoint = await load_checkpoint(loop.engine, loop.run, loop.start_from, loop.watcher.note)
    if checkpoint is not None and checkpoint.state is not None:
        remember(loop, checkpoint.state)
        for note in loop.run.rewind(checkpoint.step, checkpoint.state["metrics"]):
            loop.watcher.note(note)
        loop.best, loop.visits = best_step(loop.run), Visits.until(loop.run, checkpoint.step)
        await wake_past_selves(loop, checkpoint)
        return checkpoint.step
    taken = warm_start_of(loop.config) if loop.config.warm.warm_from else None
    if there := loop.run.contents():
        raise ConfigError(
            f"{loop.run.path} has {there}, so it cannot continue, and nothing there was changed: put a checkpoint back and name it with "
            f"--resume {loop.run.path} --checkpoint STEP, start a new run with --run DIR, or start over with --restart, which moves "
            f"what is there to {loop.run.path / 'aside'}"
        )
    if taken is not None:
        await loop.engine.load_state(taken.state)
    for note in loop.run.rewind(0, None):  # not before it is sure that the run can begin again
        loop.watcher.note(note)
    if taken is None:
        return 0
    for row in taken.rows[:-1]:
        loop.run.append_metrics(row)
        loop.watcher.row(row)
    await commit(loop, loop.config.warm_steps, taken.rows[-1])
    return loop.config.warm_steps


def remember(loop: Loop, state: Mapping[str, Any]) -> None:
    """Puts back what a checkpoint carries. Fails with ValueError, KeyError or the like on the state of another version."""
    seats = SeatMeans({name: {int(seat): mean for seat, mean in means.items()} for name, means in state["seats"].items()})
    alarms = Alarms.from_state(state["alarms"])
    reopened = {int(step): [BatchQuestion(**each) for each in asked] for step, asked in state["again"].items()}
    skipped, sampled = int(state["skipped"]), int(state.get("sampled", 0))
    if state["metrics"]["phase"] not in ("warm", "self_play"):
        raise ValueError(f"its metrics are of phase {state['metrics']['phase']!r}")
    if "curriculum" in state:
        loop.curriculum.restore(state["curriculum"])
    behind = loop.config.warm.warm_questions + loop.config.optim.num_train_datapoints
    loop.pace, loop.further = Pace(float(state.get("pace", 1.0))), Further.from_state(state.get("further", 0), behind)
    loop.seats, loop.alarms, loop.reopened, loop.skipped, loop.sampled = seats, alarms, reopened, skipped, sampled
    loop.easy = set(state.get("easy", ()))


MOST_PAST_SELVES = 8
"""Each holds its weights in memory."""


def past_steps(loop: Loop, step: int) -> list[int]:
    """Up to `step`, the kept steps that may hold a seat: every one while they are few, then every second, every fourth and so on. So the
    whole run is represented, and weights that were let go are never needed again."""
    kept = [each for each in range(loop.config.warm_steps + 1, step + 1) if is_kept(loop, each)]
    stride = 1
    while len(kept[::stride]) > MOST_PAST_SELVES:
        stride *= 2
    return kept[::stride]


def seat_past_self(loop: Loop, step: int, sampler: Sampler) -> None:
    """The policy of `step` takes its place among those that may hold a seat, and others make room."""
    loop.past[step] = loop.guest(sampler)
    chosen = past_steps(loop, max(loop.past))
    loop.past = {each: player for each, player in loop.past.items() if each in chosen}


async def wake_past_selves(loop: Loop, newest: Checkpoint) -> None:
    """The kept checkpoints up to the newest take their seats again, oldest first."""
    if not loop.config.recipe.past_selves:
        return
    chosen = past_steps(loop, newest.step)
    for past in reversed(list(checkpoints(loop.run))):
        if past.state is not None and past.step in chosen:
            await loop.engine.load_state(past.engine_state)
            seat_past_self(loop, past.step, await loop.engine.snapshot())
    await loop.engine.load_state(newest.engine_state)


async def fresh_optimizer(loop: Loop, step: int) -> None:
    """After the warm start Adam forgets it: moments of another loss, with gradients of another size, would steer the first steps."""
    saved = newest_whole(loop.run, step) if step else None
    if saved is None:
        return
    try:
        await loop.engine.load_state(saved.engine_state, optimizer=False)
    except EngineError as error:
        loop.watcher.note(f"this engine cannot reset its optimizer, so Adam's moments of the warm start stay ({error})")
