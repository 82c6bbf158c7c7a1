"""Runs programs that a model wrote. Never bare: under bubblewrap where it is installed, otherwise in user namespaces of
our own making, and where neither can be had not at all.

A program sees the standard library, a scratch folder in memory and nothing else: no network, no other process, no file
of this machine, no environment variable, no key of the kernel's. Time, memory, processes, files and output are bounded,
and some system calls refused (`sandbox_filter.py`). When it is over everything it started is gone; so it is when this
process dies.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import platform
import random
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from moot.errors import ConfigError
from moot.tasks.sandbox_filter import call_filter

Outcome = Literal["passed", "failed", "time", "memory", "crashed"]
_OUTCOMES: dict[bytes, Outcome] = {b"P": "passed", b"F": "failed", b"M": "memory"}
_HERE = Path(__file__).parent
_WORKER, _ENTER = _HERE / "sandbox_worker.py", _HERE / "sandbox_enter.py"
_INSIDE = "/worker.py"
_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_ENDING_SECONDS = 10
MOST_BYTES = 100_000
"""Of what a program may answer: the rest is not read."""


NO_FILTER = (
    "programs run in a sandbox without a filter of system calls, which cannot be had here ({}): shared memory that "
    "they make is not counted, and vsock, io_uring and the like are not refused"
)


@dataclass(frozen=True)
class Limits:
    seconds: int = 5
    """Of processor time, for each process of the program."""
    wall_seconds: float = 15.0
    """By the clock: a program may sleep, and a machine may be busy."""
    megabytes: int = 512
    """Of memory, for each process."""
    processes: int = 8
    file_megabytes: int = 8
    """The largest file; all together may hold twice that."""


@dataclass(frozen=True)
class Ran:
    outcome: Outcome
    message: str = ""
    """What was raised, where something was."""
    values: tuple[str, ...] = ()
    """What the calls came to, as they are written."""

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


def run(
    program: str, tests: str = "", entry_point: str = "", calls: Sequence[str] = (), limits: Limits = Limits()
) -> Ran:
    """Runs a program, then its tests (`check(candidate)` is called with the entry point, where they define it), then
    evaluates calls."""
    return _run(_sandbox(), program, tests, entry_point, calls, limits)


def require() -> str:
    """Which sandbox programs run in. Raises ConfigError where there is none."""
    return _sandbox().name


@dataclass(frozen=True)
class Sandbox:
    name: str
    command: Callable[[Limits], list[str]]
    filter: bytes = b""
    """Of system calls."""


def _run(sandbox: Sandbox, program: str, tests: str, entry_point: str, calls: Sequence[str], limits: Limits) -> Ran:
    secret = secrets.token_hex(16)
    job: dict[str, Any] = {"program": program, "tests": tests, "entry_point": entry_point, "calls": list(calls)}
    job |= {"secret": secret, "uid": _uid(), "filter": sandbox.filter.hex()}
    job |= asdict(limits) | {"seconds": max(1, math.ceil(limits.seconds))}
    with _started(sandbox.command(limits)) as (process, lifeline):
        end = time.monotonic() + limits.wall_seconds
        replied = _talk(process, json.dumps(job | {"lifeline": lifeline}).encode(), end)
        status, complaint = None, ""
        if replied == b"":  # it ended, or it closed what it should answer on
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(max(0.0, end - time.monotonic()))
                complaint = process.stderr.read(1000).decode(errors="replace").strip() if process.stderr else ""
    said, line, _ = (replied or b"").partition(b"\n")
    if line and said.startswith(secret.encode()):
        outcome = _OUTCOMES.get(said[len(secret) : len(secret) + 1], "crashed")
        try:
            message, values = json.loads(said[len(secret) + 1 :])
            return Ran(outcome, str(message), tuple(map(str, values)))
        except (ValueError, TypeError, RecursionError):
            # A program may have changed how its interpreter writes things down.
            return Ran("crashed", "its verdict cannot be read")
    if replied:
        return Ran("crashed", "it answered with something else than a verdict")
    if status is None or status - 128 in (signal.SIGXCPU, signal.SIGKILL):
        return Ran("time", "it took too long")
    return Ran("crashed", complaint or f"it ended with status {status} and no verdict")


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A sandbox, and the lifeline that its first process watches. We hold the other end and never write: when it
    closes, because we leave or because we were killed, everything in the sandbox ends."""
    watched, held = os.pipe()
    with os.fdopen(held, "wb") as other_end:
        try:
            # Its own session: a Ctrl-C for us is not for it. An empty environment: there is no key in it.
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, env={}, cwd="/", start_new_session=True,
                pass_fds=(watched,),
            )  # fmt: skip
        finally:
            os.close(watched)
        with process:
            try:
                yield process, watched
            finally:
                other_end.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDING_SECONDS)
                process.kill()


def _talk(process: subprocess.Popen[bytes], message: bytes, end: float) -> bytes | None:
    """One line of reply, or less where it ended before, or None where it took too long. A flood is not read."""
    assert process.stdin and process.stdout
    reply, waiting_to_send = b"", memoryview(message)
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        ready.register(process.stdin, selectors.EVENT_WRITE)
        while (left := end - time.monotonic()) > 0:
            for key, _ in ready.select(left):
                if key.fileobj is process.stdin:
                    try:
                        waiting_to_send = waiting_to_send[os.write(process.stdin.fileno(), waiting_to_send[:65536]) :]
                    except BrokenPipeError:
                        waiting_to_send = waiting_to_send[:0]
                    if not waiting_to_send:
                        ready.unregister(process.stdin)
                        process.stdin.close()
                else:
                    piece = os.read(process.stdout.fileno(), 65536)
                    reply += piece
                    if not piece or b"\n" in piece or len(reply) > MOST_BYTES:
                        return reply
    return None


def _uid() -> int:
    """Root gives each program a user of its own, who owns nothing; others stay who they are."""
    return random.SystemRandom().randrange(1 << 20, 1 << 30) if os.getuid() == 0 else 0


# Which sandbox.


@lru_cache(maxsize=1)
def _sandbox() -> Sandbox:
    """The first that works here. Raises ConfigError where none does: a program is never run without."""
    complaints: list[str] = []
    for sandbox in dict.fromkeys(tried for box in available() for tried in (box, replace(box, filter=b""))):
        ran = _run(sandbox, "", "", "", ["1 + 1"], Limits(wall_seconds=60.0))
        if ran.values == ("2",):
            if not sandbox.filter:
                logging.getLogger("moot").warning(NO_FILTER.format("; ".join(complaints) or platform.machine()))
            return sandbox
        complaints.append(f"{sandbox.name}: {ran.message}")
    raise ConfigError(
        "programs are run in a sandbox alone, and none works here: install bubblewrap (apt-get install bubblewrap), or "
        "allow user namespaces (Linux, in a container its seccomp profile decides) "
        f"({'; '.join(complaints) or 'this is not Linux'})"
    )


def available() -> list[Sandbox]:
    """Those that may work on this system, best first."""
    if sys.platform != "linux":
        return []
    sandboxes = [Sandbox("user namespaces", _namespaces, call_filter())]
    if path := shutil.which("bwrap"):
        sandboxes.insert(0, Sandbox("bubblewrap", lambda limits: _bubblewrap(path, limits), call_filter()))
    return sandboxes


def _inside() -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[str]]:
    """Links to make, things to show where they stand, and how the worker is started: by the interpreter below any
    virtual environment."""
    executable, prefix = str(Path(sys.executable).resolve()), Path(sys.base_prefix)
    own = [str(prefix / "bin"), str(prefix / "lib")] if str(prefix) in ("/usr", "/usr/local") else [str(prefix)]
    links: list[tuple[str, str]] = []
    shown: list[str] = []
    for path in (*_LIBRARIES, *own, executable):
        if Path(path).is_symlink() and path in _LIBRARIES:
            links.append((path, str(Path(path).readlink())))
        elif Path(path).exists() and not any(path == folder or path.startswith(f"{folder}/") for folder in shown):
            shown.append(path)
    # Neither environment variables nor site packages nor compiled files: nothing but the standard library.
    return links, [(path, path) for path in shown], [executable, "-I", "-S", "-B", "-X", "utf8", _INSIDE]


def _bubblewrap(path: str, limits: Limits) -> list[str]:
    links, folders, worker = _inside()
    command = [path, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    # As root: the worker becomes somebody else, for which it needs these two until it has.
    command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.getuid() == 0 else ["--unshare-user"]
    command += ["--as-pid-1", "--new-session", "--clearenv", "--hostname", "sandbox"]
    for link, target in links:
        command += ["--symlink", target, link]
    for source, target in [*folders, (str(_WORKER), _INSIDE)]:
        for parent in [*Path(target).parents][-2::-1]:  # made for root alone if they were not named
            command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind", source, target]
    for device in _DEVICES:
        command += ["--dev-bind", device, device]
    command += ["--perms", "1777", "--size", str(limits.file_megabytes << 21), "--tmpfs", "/scratch"]
    return [*command, "--remount-ro", "/", "--chdir", "/", "--", *worker]


def _namespaces(limits: Limits) -> list[str]:
    links, folders, worker = _inside()
    plan: dict[str, Any] = {
        "links": links,
        "readable": [*folders, (str(_WORKER), _INSIDE), *((device, device) for device in _DEVICES)],
        "scratch_megabytes": 2 * limits.file_megabytes,
        "command": worker,
    }
    return [worker[0], "-I", "-S", "-B", str(_ENTER), json.dumps(plan)]
