"""One process per run: a lock that dies with its process, and says who holds it. Readers take no notice of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from pathlib import Path

from moot.debate.types import ConfigError

NAME = "lock"


def locked(run: Path) -> contextlib.ExitStack:
    """Holds the run until it is closed, by hand or as a context; ConfigError where another process holds it. Nothing needs to be removed
    after a kill: the kernel lets go of the lock itself."""
    handle = os.open(run / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    opened = contextlib.ExitStack()
    opened.callback(os.close, handle)
    try:
        _take(handle, run)
    except BaseException:
        opened.close()
        raise
    return opened


def _take(handle: int, run: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"{run} is in use by {_holder(handle)}; wait until it ends, or name another folder with --run") from None
    except OSError:
        return  # a file system without locks: better a run without one than none at all
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
    # A full disk must not keep a run from continuing, and the lock holds without a name on it.
    with contextlib.suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(holder).encode() + b"\n", 0)


def _holder(handle: int) -> str:
    try:
        told = json.loads(os.pread(handle, 1000, 0))
        return f"process {int(told['pid'])} on {str(told['host'])[:100]} since {str(told['since'])[:40]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
