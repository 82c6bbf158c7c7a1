"""What one thread gives to another is taken or refused, and whoever waits is told, whenever somebody closes or is cancelled."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections import Counter
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from moot.engine.handover import Inbox, LoopThread
from moot.engine.pending import Pending, outcome, settle
from moot.errors import EngineError
from support.stressing import PATIENCE_S, answered, quick_switches, seeds, tell


async def nothing() -> None: ...


def close(thread: LoopThread) -> None:
    thread.close(nothing, "is closed", "was closed before this was done")


def test_a_box_gives_what_it_got_in_order_and_refuses_with_its_first_words() -> None:
    rung = list[int]()
    box: Inbox[int] = Inbox(lambda: rung.append(1))
    box.put(1, 2, 3)
    assert box.take(1) == [1] and box.take() == [2, 3] and box.take() == [] and rung == [1]
    box.put(4)
    assert box.close("gone") and not box.close("gone again")
    with pytest.raises(EngineError, match=r"^gone$"):
        box.put(5)
    assert box.take() == [4], "what was in it before is still its owner's"


def test_every_thing_put_in_while_others_close_is_taken_or_refused() -> None:
    counts: Counter[str] = Counter()
    with quick_switches():
        for seed in seeds(60):
            rng, box = random.Random(seed), Inbox[tuple[int, int]]()
            taken, kept = list[tuple[int, int]](), list[tuple[int, int]]()

            def fill(number: int, box: Inbox[tuple[int, int]] = box, kept: list[tuple[int, int]] = kept) -> None:
                for item in range(200):
                    try:
                        box.put((number, item))
                    except EngineError:
                        return
                    kept.append((number, item))

            threads = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(rng.randrange(40)):
                taken += box.take(rng.choice([1, 5, None]))
            box.close("closed")
            taken += box.take()
            for thread in threads:
                thread.join(PATIENCE_S)
                assert not thread.is_alive()
            assert sorted(taken) == sorted(kept) and not len(box)
            counts["things"] += len(taken)
    tell("box", counts)
    assert counts["things"] > 2000


def test_whoever_gives_work_to_a_loop_that_closes_is_told() -> None:
    """Calls beside `close`, from four threads, until they are refused."""
    counts: Counter[str] = Counter()

    async def work(rng: random.Random) -> int:
        await asyncio.sleep(rng.choice([0, 0, 0.001, 60]))
        if rng.random() < 0.2:
            raise ValueError("planted")
        if rng.random() < 0.1:
            raise asyncio.CancelledError
        return 1

    def give(thread: LoopThread, seed: str, made: list[Future[int]]) -> None:
        rng = random.Random(seed)
        for _ in range(100):
            threading.Event().wait(rng.choice([0, 0, 0.0005]))
            try:
                made.append(thread.run(work(rng)))
            except EngineError:
                return
            if rng.random() < 0.2:
                made[-1].cancel()

    with quick_switches():
        for seed in seeds(40):
            thread, made = LoopThread("handover"), list[Future[int]]()
            givers = [threading.Thread(target=give, args=(thread, f"{seed} {number}", made)) for number in range(4)]
            for giver in givers:
                giver.start()
            threading.Event().wait(random.Random(seed).random() * 0.01)
            closers = [threading.Thread(target=close, args=(thread,)) for _ in range(2)]
            for closer in closers:
                closer.start()
            for other in (*closers, *givers):
                other.join(PATIENCE_S)
                assert not other.is_alive(), seed
            assert all(future.done() for future in made), f"lost with seed {seed}"
            for future in made:
                error = None if future.cancelled() else future.exception()
                assert error is None or isinstance(error, EngineError | ValueError), error
                counts["cancelled" if future.cancelled() else "done" if error is None else type(error).__name__] += 1
    tell("loop", counts)
    assert sum(counts.values()) > 1000 and min(counts.values()) > 10, counts


def test_work_goes_on_when_whoever_asked_is_cancelled() -> None:
    thread, go, went_on = LoopThread("handover"), threading.Event(), threading.Event()

    async def work() -> None:
        await asyncio.to_thread(go.wait, PATIENCE_S)
        went_on.set()

    async def ask() -> None:
        asking = asyncio.create_task(_outcome_of(thread.run(work())))
        await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask())
    go.set()
    assert went_on.wait(PATIENCE_S)
    close(thread)


async def _outcome_of(future: Future[Any]) -> Any:
    return await outcome(future)


def test_an_error_that_nobody_waits_for_any_more_makes_no_noise() -> None:
    """As at Ctrl-C: the waiter is cancelled, then the engine is closed and fails what had not begun."""
    noise: list[Any] = []

    async def wait() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: noise.append(context))
        future: Future[None] = Future()
        waiting = asyncio.create_task(_wait_for(Pending(future)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        settle(future, EngineError("the local engine was closed before this ran"))
        await asyncio.sleep(0.01)
        del future, waiting
        gc.collect()

    asyncio.run(wait())
    assert noise == []


async def _wait_for(pending: Pending[None]) -> None:
    await pending


def test_a_settled_future_stays_so_and_a_closed_loop_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(outcome(future), 0.01)

    asyncio.run(leave())
    settle(future, 1)  # the loop that waited is closed
    settle(future, EngineError("late"))
    assert future.result() == 1 and not caplog.records

    async def cancelled_elsewhere() -> None:
        gone: Future[int] = Future()
        gone.cancel()
        with pytest.raises(CancelledError) as caught:
            await answered(outcome(gone), "a future that its owner cancelled")
        assert not isinstance(caught.value, asyncio.CancelledError), "the waiter itself was not cancelled"

    asyncio.run(cancelled_elsewhere())
