"""What an engine's training verbs answer with."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """A call that has its place in the queue. Await it from any event loop, or block on `result()`."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, T]:
        # Shielded: a cancelled waiter must not take a training step out of the middle of the queue.
        return asyncio.shield(asyncio.wrap_future(self._future)).__await__()

    def result(self, timeout: float | None = None) -> T:
        return self._future.result(timeout)

    def done(self) -> bool:
        return self._future.done()


def settle(future: Future[Any], result: Any) -> None:
    """Whoever waits gets the result, or the exception that it is. What was settled or cancelled before stays so."""
    if future.done() or not future.set_running_or_notify_cancel():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
