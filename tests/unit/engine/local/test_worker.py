"""The one thread that touches torch: whatever comes while it looks around is heard."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from moot.engine.local.worker import Worker
from moot.errors import EngineError
from support.stressing import PATIENCE_S, quick_switches


@pytest.fixture
def hurried() -> Iterator[None]:
    with quick_switches():
        yield


class Interrupted(SimpleQueue):  # type: ignore[type-arg]
    """A bell that calls somebody, once, when it is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Any = None

    def empty(self) -> bool:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().empty()


@pytest.mark.parametrize("job_beside", [False, True])
def test_a_close_that_comes_while_the_bell_is_looked_at_ends_the_thread(job_beside: bool) -> None:
    """Its ring was taken as one of those before, and the thread waited for another for ever."""
    worker = Worker()
    bell = Interrupted()

    def close() -> None:
        worker._closing = True
        bell.put(None)

    worker._bell, bell.meanwhile = bell, close
    if job_beside:
        refused = worker.submit(lambda: 1)
    worker._ring()  # the thread waits at the bell it began with
    worker._thread.join(PATIENCE_S)
    assert not worker._thread.is_alive()
    if job_beside:
        with pytest.raises(EngineError, match="closed"):
            refused.result(PATIENCE_S)


@pytest.mark.usefixtures("hurried")
def test_workers_that_are_closed_at_any_moment_end() -> None:
    for number in range(300):
        worker = Worker()
        asked = [worker.submit(lambda: 1) for _ in range(number % 3)]
        closing = threading.Thread(target=worker.close, daemon=True)
        closing.start()
        closing.join(PATIENCE_S)
        assert not closing.is_alive(), "closed, and the thread did not hear of it"
        for pending in asked:
            with contextlib.suppress(EngineError):  # closed before it ran
                assert pending.result(PATIENCE_S) == 1
