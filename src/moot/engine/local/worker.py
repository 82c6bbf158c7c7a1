"""The one thread that touches torch.

Training verbs run in the order they were called. Between them, and whenever there are none, the sampler takes one step
at a time.

Even loading a model happens here: each thread that computes brings a pool of its own, and with two pools on the same
cores OpenMP puts idle threads to sleep at once, which costs a small model a third of its speed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from moot.engine.handover import Inbox
from moot.engine.local.memory import give_up_when
from moot.engine.local.scheduler import Scheduler
from moot.engine.pending import Pending, settle
from moot.engine.protocol import in_words
from moot.errors import EngineError

T = TypeVar("T")


class Worker:
    def __init__(self) -> None:
        self._scheduler: Scheduler | None = None
        self._bell: SimpleQueue[None] = SimpleQueue()
        """Rung whenever there is something to look at. Unlike an Event, a finalizer may ring it at any point."""
        self._ring = partial(self._bell.put, None)
        self._jobs: Inbox[tuple[Callable[[], Any], Future[Any], Callable[[], bool]]] = Inbox(self._ring)
        self._before: Callable[[], None] = lambda: None
        self._closing = False
        self._given_up: Callable[[], bool] = bool
        """Whether nobody wants the job any more that is under way."""
        self._thread = threading.Thread(target=self._run, name="moot-local", daemon=True)
        self._thread.start()

    def serve(self, scheduler: Scheduler, before: Callable[[], None] = lambda: None) -> None:
        """From now on, step this between jobs. `before` is called before each job and each step."""
        scheduler.inbox.wake = self._ring
        self._scheduler, self._before = scheduler, before
        self._ring()

    def submit(self, job: Callable[[], T], given_up: Callable[[], bool] = bool) -> Pending[T]:
        """Once `given_up` says so, a pass of the job that is under way ends early."""
        future: Future[T] = Future()
        self._jobs.put((job, future, given_up))
        return Pending(future)

    def close(self) -> None:
        """What has not begun fails with EngineError. May be called twice."""
        self._closing = True
        self._ring()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        give_up_when(lambda: self._closing or self._given_up())
        refusal = "the local engine is closed"
        try:
            while self._hears():
                if not self._turn():
                    self._bell.get()
        except BaseException as error:  # a fault of ours; nobody may wait for a thread that is gone
            refusal = f"the local engine broke: {in_words(error)}"
            raise
        finally:
            self._end(refusal)

    def _hears(self) -> bool:
        """False once it is closed. Rings are taken before anything is looked at: what comes after rings again."""
        while not self._bell.empty():
            self._bell.get()
        return not self._closing

    def _turn(self) -> bool:
        """One job and one step, where there are any. Whether there was something to do."""
        if jobs := self._jobs.take(1):
            self._before()
            self._given_up = jobs[0][2]
            _do(*jobs.pop()[:2])
            self._given_up = bool
        scheduler = self._scheduler
        if scheduler is None or not scheduler.has_work():
            return len(self._jobs) > 0
        try:
            self._before()
            scheduler.step()
        except Exception as error:  # whatever it is: those who wait must hear of it, and the thread must live
            scheduler.abandon(f"sampling failed: {in_words(error)}")
        return True

    def _end(self, refusal: str) -> None:
        self._jobs.close(refusal)
        for _, future, _ in self._jobs.take():
            settle(future, EngineError("the local engine was closed before this ran"))
        if self._scheduler is not None:
            self._scheduler.inbox.close(refusal)
            self._scheduler.abandon("the local engine was closed" if self._closing else refusal)


def _do(work: Callable[[], Any], future: Future[Any]) -> None:
    """A function of its own, so that nothing here holds on to what came of it."""
    try:
        settle(future, work())
    except BaseException as error:  # the waiter must hear of everything, or it waits for ever
        settle(future, error)
