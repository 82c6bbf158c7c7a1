"""One process per run: a lock that dies with its process, and says who holds it. Readers take no notice of it.

The kernel's lock lies on the run's folder itself, so that nobody can delete it; `lock` says who holds it. A network
file system that locks files alone has it on `lock`, and one without any locks has a file `lock.held` instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from pathlib import Path

from moot.errors import ConfigError
from moot.util.disk import refuse_links

NAME, HELD = "lock", "lock.held"
PARTS = {
    NAME, HELD, "run.json", "metrics.jsonl", "labels.jsonl", "visits.jsonl", "warm_own.json", "warm_wrong.json",
    "debates", "held_out", "checkpoints", "evals", "aside", "judge", "export", "loggers.json", "tensorboard",
}  # fmt: skip
"""What moot writes in a run; other files there are somebody's own."""


class RunLock(contextlib.ExitStack):
    """Held until it is closed, by hand or as a context. After a kill the kernel lets go of it."""

    note = ""
    """What people should know where the file system has no locks."""
    _place: Path | None = None
    _held: os.stat_result

    def check(self) -> None:
        """ConfigError where what the lock lies on was removed or replaced: another process may hold the run as well."""
        with contextlib.suppress(FileNotFoundError):
            if self._place is None or os.path.samestat(self._held, self._place.stat()):
                return
        raise ConfigError(
            f"{self._place} was removed or replaced while this process wrote to the run, so that another may write "
            "there too; this one stopped before it wrote more"
        )

    def take(self, run: Path, instead: str = "another folder with --run") -> None:
        """`instead` is what to name where another process holds it."""
        folder = self._opened(run, os.O_RDONLY | os.O_DIRECTORY)
        file = self._opened(run / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK)
        for handle, place in ((folder, run), (file, run / NAME)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                told = f"{run} is in use by {_holder(file)}; wait until it ends, or name {instead}"
                raise ConfigError(told) from None
            except OSError:
                continue
            self._place, self._held = place, os.fstat(handle)
            break
        else:
            self._take_softly(run, file)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
        # A full disk must not keep a run from continuing, and the lock holds without a name on it.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(holder).encode() + b"\n", 0)

    def _opened(self, path: Path, flags: int) -> int:
        handle = os.open(path, flags | os.O_CLOEXEC, 0o644)
        self.callback(os.close, handle)
        return handle

    def _take_softly(self, run: Path, file: int) -> None:
        """A file that only one process can make. It names that process, and goes where that is dead."""
        from filelock import SoftFileLock, Timeout

        self._place = run / HELD
        lock = SoftFileLock(self._place, timeout=1, thread_local=False)  # a second, to remove what a dead process left
        try:
            lock.acquire()
        except Timeout:
            gone = f"where its machine is gone, remove {self._place}"
            raise ConfigError(f"{run} is in use by {_holder(file)}; wait until it ends; {gone}") from None
        self.callback(lock.release)
        self._held = self._place.stat()
        self.note = f"the file system of {run} has no locks; {self._place} keeps other processes out."


def locked(run: Path) -> RunLock:
    """Holds the run; ConfigError where another process does, or where a part of it is a link."""
    refuse_links(run, PARTS)
    with contextlib.ExitStack() as undo:
        lock = undo.enter_context(RunLock())
        lock.take(run)
        undo.pop_all()
    return lock


def _holder(handle: int) -> str:
    try:
        told = json.loads(os.pread(handle, 1000, 0))
        return f"process {int(told['pid'])} on {str(told['host'])[:100]} since {str(told['since'])[:40]}"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another process"
