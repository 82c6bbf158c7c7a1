"""Runs one program inside a sandbox and says what became of it. Knows nothing of moot.

Started by `sandbox.py`, in an empty file system of its own. The kernel's limits are set here, from inside, because only what runs here
shall have them. What the program prints goes nowhere; the verdict leaves on a descriptor of its own, behind a secret that the program
was not told, and tests have builtins that the program could not change. That is no proof against a program that sets out to fool its
tests: it may search its own interpreter for the secret, or give back an object that equals everything. Whoever pays for passed tests
should look at what passes them.
"""

from __future__ import annotations

import builtins
import json
import os
import resource
import sys
from typing import Any

LONGEST = 1000
"""Characters of a value or message that are told."""


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
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
