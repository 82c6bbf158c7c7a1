"""What an engine's training verbs answer with, and how an answer gets from the thread that makes it to the one that
waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """A call that has its place in the queue. Await it from any event loop, or block on `result()`."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, T]:
        return outcome(self._future).__await__()

    def result(self, timeout: float | None = None) -> T:
        return self._future.result(timeout)

    def done(self) -> bool:
        return self._future.done()


async def outcome(future: Future[T]) -> T:
    """What another thread's future comes to. A cancelled waiter leaves the work as it is: a step in the middle of a
    queue must stay."""
    if not future.done():
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(None)

        def tell(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(arrive)

        future.add_done_callback(tell)
        await arrived
    return future.result()


def settle(future: Future[Any], result: Any) -> None:
    """Whoever waits gets the result, or the exception that it is. What was settled or cancelled before stays so."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
