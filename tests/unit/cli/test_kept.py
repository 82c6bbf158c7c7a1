"""Whatever ends work whose results are kept: one line, how to continue, and the exit status."""

from __future__ import annotations

import asyncio
import errno
import os
import signal

import pytest

from moot.cli.ending import Ended, interruptible, kept
from moot.errors import EngineError
from moot.training.state import Stopped


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (KeyboardInterrupt(), 130, "interrupted. Continue with: x"),
        (EngineError("no route."), 1, "stopped: no route. Continue with: x"),
        (Stopped("nothing finite"), 1, "stopped: nothing finite. Continue with: x"),
        (
            OSError(errno.ENOSPC, "No space left", "runs/a/metrics.jsonl"),
            1,
            "the disk is full (runs/a/metrics.jsonl); make room. Continue with: x",
        ),
        (OSError(errno.EDQUOT, "Quota exceeded"), 1, "the disk is full (runs/a); make room. Continue with: x"),
    ],
)
def test_what_ends_it_early_is_told_with_how_to_continue(error: BaseException, status: int, says: str) -> None:
    with pytest.raises(Ended) as ended, kept("Continue with: x", "runs/a"):
        raise error
    assert (ended.value.status, str(ended.value)) == (status, says)


def test_our_own_mistakes_come_out_as_they_are() -> None:
    with pytest.raises(PermissionError), kept("Continue with: x", "runs/a"):
        raise PermissionError(errno.EACCES, "Permission denied", "runs/a")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_work_which_closes_what_it_holds(number: signal.Signals) -> None:
    closed: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            closed.append("engine")

    with pytest.raises(KeyboardInterrupt):
        interruptible(work())
    assert closed == ["engine"]
