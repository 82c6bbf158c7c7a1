"""The one thread that touches torch.

Training verbs run in the order they were called. Between them, and whenever there are none, the sampler takes one step at a time.

Even loading a model happens here: each thread that computes brings a pool of its own, and with two pools on the same cores OpenMP puts idle
threads to sleep at once, which costs a small model a third of its speed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from moot.engine.local.memory import give_up_when
from moot.engine.local.scheduler import Scheduler
from moot.engine.pending import Pending, settle
from moot.engine.protocol import EngineError, in_words

T = TypeVar("T")


class Worker:
    def __init__(self) -> None:
        self._scheduler: Scheduler | None = None
        self._before: Callable[[], None] = lambda: None
        self._jobs: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="moot-local", daemon=True)
        self._thread.start()

    def serve(self, scheduler: Scheduler, before: Callable[[], None] = lambda: None) -> None:
        """From now on, step this between jobs. `before` is called before each job and each step."""
        with self._wake:
            self._scheduler, self._before = scheduler, before

    def submit(self, job: Callable[[], T]) -> Pending[T]:
        future: Future[T] = Future()
        self.notify(lambda: self._jobs.append((job, future)))
        return Pending(future)

    def notify(self, change: Callable[[], None]) -> None:
        """Give the thread something to do: `change` runs under the lock that it waits on."""
        with self._wake:
            if self._closing:
                raise EngineError("the local engine is closed")
            change()
            self._wake.notify()

    def close(self) -> None:
        """What has not begun fails with EngineError. May be called twice."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        give_up_when(lambda: self._closing)
        while True:
            with self._wake:
                while not (self._jobs or self._closing or self._with_work()):
                    self._wake.wait()
                if self._closing:
                    break
                job = self._jobs.popleft() if self._jobs else None
            self._before()
            if job is not None:
                _do(*job)
            if (scheduler := self._with_work()) is not None:
                try:
                    scheduler.step()
                except Exception as error:  # whatever it is: those who wait must hear of it, and the thread must live
                    scheduler.abandon(f"sampling failed: {in_words(error)}")
        for _, future in self._jobs:
            future.set_exception(EngineError("the local engine was closed before this ran"))
        self._jobs.clear()
        if self._scheduler is not None:
            self._scheduler.abandon("the local engine was closed")

    def _with_work(self) -> Scheduler | None:
        return self._scheduler if self._scheduler is not None and self._scheduler.has_work() else None


def _do(work: Callable[[], Any], future: Future[Any]) -> None:
    """A function of its own, so that nothing here holds on to what came of it."""
    try:
        settle(future, work())
    except BaseException as error:  # the waiter must hear of everything, or it waits for ever
        settle(future, error)
