"""What a program may not ask of the kernel: keys, memory that is not counted, sockets that leave the machine."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from test_sandbox import LIMITS, WORKING, left_behind, nobody_is_left, ran

from moot.tasks import sandbox
from moot.tasks.sandbox import Sandbox, _run
from moot.tasks.sandbox_filter import ARCHITECTURES, CLONE, CLONE3, REFUSED, SOCKET, SOCKETPAIR, call_filter

pytestmark = [
    pytest.mark.skipif(not WORKING, reason="no sandbox works here: it was NOT tested"),
    pytest.mark.skipif(platform.machine() not in ARCHITECTURES, reason="no filter here: it was NOT tested"),
]
COLUMN = ARCHITECTURES.get(platform.machine(), (0, 0))[0]
CALL = (
    "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ncall = lambda *a: (libc.syscall(*a), ctypes.get_errno())"
)


@pytest.fixture(params=WORKING, ids=lambda box: box.name)
def box(request: pytest.FixtureRequest) -> Sandbox:
    return request.param  # type: ignore[no-any-return]


def test_the_keys_of_the_user_stay_outside(box: Sandbox) -> None:
    """With the filter and without it: the keyring is the program's own."""
    keyctl, add_key, libc = REFUSED["keyctl"][COLUMN], REFUSED["add_key"][COLUMN], ctypes.CDLL(None, use_errno=True)
    join, search, session = 1, 10, -3
    if libc.syscall(keyctl, join, None) < 0 or libc.syscall(add_key, b"user", b"canary", b"secret", 6, session) < 0:
        pytest.skip("this kernel lets nobody keep keys")
    look = f"libc.syscall({keyctl}, {search}, {session}, b'user', b'canary', 0)"
    assert libc.syscall(keyctl, search, session, b"user", b"canary", 0) > 0
    for tried in (box, replace(box, filter=b"")):
        assert ran(tried, CALL, calls=(look,)).values == ("-1",)


def test_memory_that_no_limit_counts_cannot_be_had(box: Sandbox) -> None:
    """The limit is 256 MiB. Segments of shared memory and files in memory lie outside of it."""
    segments = f"sum(call({REFUSED['shmget'][COLUMN]}, 0, ctypes.c_size_t(64 << 20), 0o1600)[0] >= 0 for _ in range(8))"
    queues = f"sum(call({REFUSED['msgget'][COLUMN]}, 0, 0o1600)[0] >= 0 for _ in range(8))"
    calls = (segments, queues, "os.memfd_create('x')")
    assert ran(box, f"{CALL}\nimport os", calls=calls).values == ("0", "0", "raises PermissionError")


def test_sockets_are_of_families_that_have_namespaces(box: Sandbox) -> None:
    program = "import socket\ndef made(family, kind=socket.SOCK_STREAM):\n    socket.socket(family, kind).close()\n"
    others = ("made(socket.AF_VSOCK)", "made(38, 5)", "made(socket.AF_NETLINK, 3)", "made(socket.AF_PACKET, 3)")
    own = ("made(socket.AF_UNIX)", "made(socket.AF_INET)", "socket.socketpair()[0].close()")
    assert ran(box, program, calls=(*others, *own)).values == ("raises PermissionError",) * 4 + ("None",) * 3


def test_calls_that_are_refused(box: Sandbox) -> None:
    program = f"{CALL}\nrefused = {[numbers[COLUMN] for numbers in REFUSED.values()]}"
    answers = "{call(number, *[ctypes.c_long(0)] * 6) for number in refused}"
    flags = f"call({CLONE[COLUMN]}, ctypes.c_ulong(0x10000000 | 17), *[ctypes.c_long(0)] * 4)"  # a user namespace
    assert ran(box, program, calls=(answers, flags)).values == ("{(-1, 1)}", "(-1, 1)")


def test_what_programs_need_is_not_refused(box: Sandbox) -> None:
    program = (
        "import asyncio, os, threading\nseen = []\nthread = threading.Thread(target=seen.append, args=(1,))\n"
        "thread.start(); thread.join()\nchild = os.fork()\nif not child: os._exit(7)\n"
        "ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\nopen('file', 'w').write('x')\n"
        "slept = asyncio.run(asyncio.sleep(0, 5))"
    )
    assert ran(box, program, calls=("seen", "ended", "slept", "open('file').read()")).values == ("[1]", "7", "5", "'x'")


def test_the_numbers_are_those_that_the_library_knows() -> None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp is not installed")
    named = REFUSED | {"clone": CLONE, "clone3": CLONE3, "socket": SOCKET, "socketpair": SOCKETPAIR}
    for column, architecture in ARCHITECTURES.values():
        resolve, kind = library.seccomp_syscall_resolve_name_arch, ctypes.c_uint32(architecture)
        known = {name: resolve(kind, name.encode()) for name in named}
        # Below 0: too new for the library.
        assert {name: numbers[column] for name, numbers in named.items()} == {
            name: number if number >= 0 else named[name][column] for name, number in known.items()
        }


def test_no_filter_is_told_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert call_filter("riscv64") == b""
    monkeypatch.setattr(sandbox, "available", lambda: [replace(WORKING[0], filter=b"\xff" * 8)])
    sandbox._sandbox.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "moot"):
            assert sandbox.run("", calls=("1",)).passed and sandbox.run("", calls=("2",)).passed
        (said,) = (record.message for record in caplog.records if record.name == "moot")
        assert "without a filter of system calls" in said and "prctl 22: Invalid argument" in said
    finally:
        sandbox._sandbox.cache_clear()


# Nobody is left when moot is killed.

GRADER = """
import os, signal, subprocess, sys, time
from dataclasses import replace
from moot.tasks import sandbox
sandbox._INSIDE = sys.argv[2]
box = next(box for box in sandbox.available() if box.name == sys.argv[1])
if sys.argv[3] == "at once":  # before the sandbox has begun to be made, with everything it needs
    def talk(process, message, end):
        process.stdin.write(message)
        process.stdin.close()
        os.kill(os.getpid(), signal.SIGKILL)
    sandbox._talk = talk
print("ready", flush=True)
sandbox._run(box, "import time\\ntime.sleep(600)", "", "", (), replace(sandbox.Limits(), wall_seconds=600))
"""


def _kill(box: Sandbox, worker: str, after: float | None) -> None:
    """A grader that is killed so many seconds after it began, or by itself at the first moment."""
    command = [sys.executable, "-c", GRADER, box.name, worker, "at once" if after is None else "later"]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=surroundings) as grader:
        assert grader.stdout and grader.stdout.readline() == b"ready\n"
        try:
            assert grader.wait(60 if after is None else after) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            grader.kill()


@pytest.mark.parametrize("after", [None, 0.01, 0.1])
def test_a_killed_grader_leaves_nobody(box: Sandbox, after: float | None) -> None:
    worker = f"/worker-{os.getpid()}-{after}.py"
    _kill(box, worker, after)
    assert nobody_is_left(worker), left_behind(worker)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_60_killed_graders_leave_nobody(box: Sandbox) -> None:
    rng, worker = random.Random(0), f"/worker-{os.getpid()}-60.py"
    for _ in range(60):
        _kill(box, worker, rng.uniform(0.0, 0.15))
    assert nobody_is_left(worker), left_behind(worker)


def test_the_first_process_inside_looks_at_the_clock_itself(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lifeline of a killed grader may be held by a child of its own."""
    replies, talk = [], sandbox._talk

    def patient(process: subprocess.Popen[bytes], message: bytes, end: float) -> None:
        replies.append(talk(process, message, end + 60))

    monkeypatch.setattr(sandbox, "_talk", patient)
    _run(box, "import time\ntime.sleep(600)", "", "", (), replace(LIMITS, wall_seconds=0.5))
    assert replies == [b""]
