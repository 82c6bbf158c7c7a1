"""Runs one program inside a sandbox and says what became of it. Knows nothing of moot.

Started by `sandbox.py`, in an empty file system of its own, as the first process of its namespace: it watches over a
second one, which runs the program. The kernel's limits are set here, from inside, because only what runs here shall
have them. What the program prints goes nowhere; the verdict leaves on a descriptor of its own, behind a secret that the
program was not told, and tests have builtins that the program could not change. That is no proof against a program that
sets out to fool its tests: it may search its own interpreter for the secret, or give back an object that equals
everything. Whoever pays for passed tests should look at what passes them.
"""

from __future__ import annotations

import _thread
import builtins
import ctypes
import errno
import json
import os
import resource
import select
import signal
import sys
from typing import Any, NoReturn

LONGEST = 1000
"""Characters of a value or message that are told."""


DUMPABLE, SECCOMP, FILTER, NO_NEW_PRIVILEGES = 4, 22, 2, 38
KEYCTL, JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1

libc = ctypes.CDLL(None, use_errno=True)


class FilterProgram(ctypes.Structure):
    _fields_ = [("steps", ctypes.c_ushort), ("bytes", ctypes.c_char_p)]


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    leave_keys()
    control(DUMPABLE)  # who watches is not to be looked into
    if child := os.fork():
        watch(child, job["lifeline"], job["wall_seconds"])
    os.close(job["lifeline"])
    work(job)


def watch(child: int, lifeline: int, seconds: float) -> NoReturn:
    """Ends as the child does, or when nobody holds the other end of the lifeline any more, or after the time. Then the
    kernel ends everything in this namespace."""

    def wait() -> None:
        select.select([lifeline], [], [], seconds)
        os._exit(128 + signal.SIGKILL)

    _thread.start_new_thread(wait, ())
    ended, status = 0, 0
    while ended != child:  # what the program left behind is a child of this process, too
        ended, status = os.waitpid(-1, 0)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def leave_keys() -> None:
    """A session keyring of its own, instead of the user's. Where nobody may use keys there is nothing to hide."""
    number = KEYCTL.get(os.uname().machine)
    if number is None or libc.syscall(ctypes.c_long(number), JOIN_SESSION_KEYRING, None) >= 0:
        return
    if (error := ctypes.get_errno()) not in (errno.ENOSYS, errno.EPERM):
        sys.exit(f"no sandbox: keyctl: {os.strerror(error)}")


def control(option: int, *values: object) -> None:
    """A prctl; values that are not given are 0."""
    if libc.prctl(option, *values, *[ctypes.c_ulong(0)] * (4 - len(values))) != 0:
        sys.exit(f"no sandbox: prctl {option}: {os.strerror(ctypes.get_errno())}")


def refuse_calls(steps: bytes) -> None:
    control(NO_NEW_PRIVILEGES, ctypes.c_ulong(1))
    control(SECCOMP, ctypes.c_ulong(FILTER), ctypes.byref(FilterProgram(len(steps) // 8, steps)))


def work(job: dict[str, Any]) -> None:
    if job["filter"]:
        refuse_calls(bytes.fromhex(job["filter"]))
    replies = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    limit(job)
    if job["uid"]:
        os.setgroups([])
        os.setresgid(job["uid"], job["uid"], job["uid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])
    os.chdir("/scratch")
    # Bound now, because the program may put something else in their place.
    write, leave, dumps = os.write, os._exit, json.dumps
    outcome, message, values = run(job["program"], job["tests"], job["entry_point"], job["calls"])
    write(replies, job["secret"].encode() + outcome + dumps([message, values]).encode() + b"\n")
    leave(0)  # without waiting for threads, or running what the program left to be run at the end


def limit(job: dict[str, Any]) -> None:
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, job["seconds"]),
        (resource.RLIMIT_AS, job["megabytes"] << 20),
        (resource.RLIMIT_FSIZE, job["file_megabytes"] << 20),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_NPROC, job["processes"]),
    ):
        resource.setrlimit(kind, (most, most + (kind == resource.RLIMIT_CPU)))


PASSED, FAILED, MEMORY = b"P", b"F", b"M"


def run(program: str, tests: str, entry_point: str, calls: list[str]) -> tuple[bytes, str, list[str]]:
    execute, evaluate, written, untouched = exec, eval, repr, dict(vars(builtins))
    space: dict[str, Any] = {"__name__": "program"}

    def value(call: Any) -> str:
        """As it is written, or the name of the exception."""
        try:
            return written(evaluate(call, space))[:LONGEST]
        except MemoryError:
            raise
        except BaseException as error:
            return f"raises {type(error).__name__}"

    try:
        testing, calling = compile(tests, "tests", "exec"), [compile(call, "call", "eval") for call in calls]
        execute(compile(program, "program", "exec"), space)
        if tests:
            checking = {**space, "__builtins__": untouched, "check": None}
            execute(testing, checking)
            if checking["check"] is not None:
                checking["check"](space[entry_point])
        return PASSED, "", [value(call) for call in calling]
    except MemoryError:
        return MEMORY, "MemoryError", []
    except BaseException as error:  # sys.exit and KeyboardInterrupt too: the tests did not pass
        try:
            return FAILED, f"{type(error).__name__}: {error}"[:LONGEST], []
        except BaseException:
            return FAILED, "an error that cannot be told", []


if __name__ == "__main__":
    main()
