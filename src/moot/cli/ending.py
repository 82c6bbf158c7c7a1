"""How a command ends when it cannot continue: interrupted, stopped by an engine, or by a disk that is full. What was
finished stays.

Loads nothing heavy: `moot --help` comes through here.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_S = 0.3
"""Seconds after Ctrl-C in which nobody wonders whether it was heard."""
UNHEARD_S = 5.0
"""Seconds after which work that never pauses is broken off where it stands."""


class Ended(Exception):
    """The command ends here: what to say, and its exit status."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


def disk_is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def kept(continuing: str, place: object) -> Iterator[None]:
    """Around work whose results are kept as they come: one line says what ended it, and how to continue."""
    from moot.errors import EngineError
    from moot.training.state import Stopped

    try:
        yield
    except KeyboardInterrupt:
        raise Ended(f"interrupted. {continuing}", 130) from None
    except (EngineError, Stopped) as error:
        raise Ended(f"stopped: {str(error).rstrip('.')}. {continuing}", 1) from None
    except OSError as error:
        if not disk_is_full(error):
            raise
        raise Ended(f"the disk is full ({error.filename or place}); make room. {continuing}", 1) from None


def interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Runs it. Ctrl-C and TERM cancel it, so that files and engines are closed in order: KeyboardInterrupt.

    Work that does not pause to hear of it is broken off where it stands: by a second signal, or after a while."""
    import asyncio

    main, ended = threading.get_ident(), threading.Event()
    unheard: float | None = None
    """Since when a signal waits to be heard."""

    async def go() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            nonlocal unheard
            unheard = None
            if not task.cancelling():
                loop.call_later(PATIENCE_S, complain, "stopping after this pass")  # not told where it has ended by then
            task.cancel()

        def ask(number: int, frame: FrameType | None) -> None:
            nonlocal unheard
            now = time.monotonic()
            if unheard is not None and now - unheard > PATIENCE_S:  # two at once are one: some send it for another
                unheard = None
                raise asyncio.CancelledError
            unheard = unheard or now
            loop.call_soon_threadsafe(stop)

        with _handled((signal.SIGINT, *_ends()), ask):
            return await task

    def remind() -> None:
        while not ended.wait(UNHEARD_S / 10):
            if (since := unheard) is not None and time.monotonic() - since > UNHEARD_S:
                signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=remind, name="reminder", daemon=True).start()
    try:
        return asyncio.run(go())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        ended.set()


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """TERM, and HUP of a closed terminal, end a command as Ctrl-C does: files are closed, half-written ones removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(_ends(), interrupt):
        yield


@contextlib.contextmanager
def _handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _ends() -> list[int]:
    """What ends a command besides Ctrl-C; HUP not where `nohup` has it ignored."""
    return [signal.SIGTERM, *([signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else [])]


def complain(message: str) -> None:
    """One line on standard error."""
    from moot.util.safe_text import plain
    from moot.util.secrets import redact

    print(f"moot: {plain(redact(' '.join(message.split())))}", file=sys.stderr)
