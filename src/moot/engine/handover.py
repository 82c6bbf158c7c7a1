"""How one thread gives work to another so that none is lost.

What is given is either taken by its owner or refused with EngineError, in that moment and under one lock: there is no
time between in which a thing lies in a box that nobody opens again. From then on the work is its owner's. Whoever asked
may be cancelled or gone; the work goes on, and every future is settled, at the latest when the owner closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from moot.engine.pending import settle
from moot.errors import EngineError

T = TypeVar("T")
FAREWELL_S = 30.0
"""How long a loop that is closed may take for its last work."""


class Inbox(Generic[T]):
    """A box that any thread fills and one owner empties. `wake` is called, under the lock, when something has come."""

    def __init__(self, wake: Callable[[], Any] = lambda: None) -> None:
        self.wake = wake
        self._items: deque[T] = deque()
        self._lock = threading.RLock()  # a finalizer may put something in while this thread is in here
        self._closed: str | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def put(self, *items: T) -> None:
        with self._lock:
            if self._closed is not None:
                raise EngineError(self._closed)
            self._items.extend(items)
            self.wake()

    def take(self, most: int | None = None) -> list[T]:
        """The oldest ones, or all that is here now. What comes later stays for the next time."""
        with self._lock:
            return [
                self._items.popleft() for _ in range(len(self._items) if most is None else min(most, len(self._items)))
            ]

    def close(self, why: str) -> bool:
        """From now on everything is refused with these words; what is here stays to be taken. False where it was closed
        before."""
        with self._lock:
            first, self._closed = self._closed is None, self._closed or why
            return first


class LoopThread:
    """An event loop in a thread of its own, and the work that is given to it."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._inbox: Inbox[Callable[[], object]] = Inbox(lambda: self.loop.call_soon_threadsafe(self._take))
        self._owed: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._inbox.closed

    def post(self, action: Callable[[], object], future: Future[Any]) -> None:
        """Runs the action in the loop, in the order in which actions came. The future is settled by it, or at the
        latest by `close`."""
        self._owed.add(future)
        future.add_done_callback(self._owed.discard)
        try:
            self._inbox.put(action)
        except EngineError:
            self._owed.discard(future)
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Makes it a task of the loop. It goes on where whoever asked is cancelled."""
        future: Future[T] = Future()
        try:
            self.post(lambda: self.loop.create_task(work).add_done_callback(partial(_pass_on, future)), future)
        except EngineError:
            work.close()
            raise
        return future

    def close(self, farewell: Callable[[], Coroutine[Any, Any, None]], refusal: str, ending: str) -> None:
        """Whoever comes now hears the refusal, whoever waits the ending; then `farewell` runs. May be called twice, and
        by several."""
        if not self._inbox.close(refusal):
            self._thread.join(2 * FAREWELL_S)
            return

        async def end() -> None:
            self._take()
            self._settle_all(ending)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(farewell(), return_exceptions=True), FAREWELL_S)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=FAREWELL_S)

        try:
            asyncio.run_coroutine_threadsafe(end(), self.loop).result(3 * FAREWELL_S)
        finally:
            self._settle_all(ending)  # also where the loop is stuck
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(10)
            if not self._thread.is_alive():
                self.loop.close()

    def _take(self) -> None:
        for action in self._inbox.take():
            action()

    def _settle_all(self, ending: str) -> None:
        for future in list(self._owed):
            settle(future, EngineError(ending))


def _pass_on(future: Future[Any], task: asyncio.Task[Any]) -> None:
    settle(
        future, EngineError("it was cancelled on its way") if task.cancelled() else task.exception() or task.result()
    )
