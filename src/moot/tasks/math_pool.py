"""Processes that compare answers, and may be killed. Usable from any thread; started when first needed, ended with the
program.

Answers are written by models, and some freeze or fill whatever evaluates them. Neither signals nor threads stop that
from inside, so it happens elsewhere. Processes are started afresh, never forked from this one, which may be full of
other libraries' threads.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from moot.errors import ConfigError

Outcome = Literal["equal", "different", "unreadable", "time", "memory", "lost"]
"""`unreadable`: one of the two is no mathematics. `lost`: the process went away for a reason of its own."""
_NOT_EVALUATED: frozenset[Outcome] = frozenset({"time", "memory", "lost"})
_OUTCOMES: dict[bytes, Outcome] = {b"=": "equal", b"!": "different", b"?": "unreadable", b"T": "time", b"M": "memory"}
_WORKER = Path(__file__).with_name("math_worker.py")
_PACKAGES = {"math": "math-verify", "gym": "reasoning-gym"}


@dataclass(frozen=True)
class Comparison:
    outcome: Outcome
    seconds: float
    """The processor time it took; the whole limit where nothing came of it."""

    @property
    def given_up(self) -> bool:
        return self.outcome in _NOT_EVALUATED


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """At most `workers` comparisons at once, each with at most so much processor time and memory."""

    def __init__(
        self, workers: int | None = None, seconds: float = 3.0, megabytes: int = 512, about: str = "math"
    ) -> None:
        self.workers = workers or min(8, cores())
        self.seconds, self._megabytes, self._about = seconds, megabytes, about
        self._start_afresh()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_afresh)

    def ask(self, given: str, right: str) -> Outcome:
        return self.compare(given, right, self.seconds).outcome

    def compare(self, given: str, right: str, seconds: float) -> Comparison:
        """In so many seconds of processor time, or in the pool's own limit where that is less."""
        limit = min(seconds, self.seconds)
        message = json.dumps([given, right, limit]).encode("ascii")
        places = self._places
        worker, usable = places.get(), False
        try:
            if worker is None:
                worker = _Worker(self._megabytes, self._about)
                self._all.add(worker)
            outcome, used = worker.ask(message, limit)
            usable = outcome != "lost"
        finally:  # after Ctrl-C too: its reply is still to come, and must not be taken for the next one's
            if worker is not None and not usable:
                self._all.discard(worker)
                worker.kill()
            places.put(worker if usable else None)
        return Comparison(outcome, limit if outcome in _NOT_EVALUATED else used)

    def close(self) -> None:
        ending, idle = self._all, set(self._places.queue)
        self._start_afresh()
        for worker in ending:
            worker.kill(patience=1.0 if worker in idle else 0.0)

    def _start_afresh(self) -> None:
        """Without workers; so does a forked copy of this program, which must not talk to its parent's."""
        self._all: set[_Worker] = set()
        self._places: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        """One for each worker there may be. The newest is taken first: an idle one before one that must be started."""
        for _ in range(self.workers):
            self._places.put(None)


class _Worker:
    def __init__(self, megabytes: int, about: str) -> None:
        # -P: its own folder must not stand before the libraries. Hashes are fixed because sympy's order of terms
        # follows them.
        command = [sys.executable, "-P", str(_WORKER), str(megabytes), about]
        surroundings = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=surroundings, start_new_session=True
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._requests, self._replies = self._process.stdin, self._process.stdout
        try:
            ready, _ = self._reply(120)
        except BaseException:
            self.kill()
            raise
        if ready != b"R":
            self._process.kill()
            said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
            self.kill()
            why = said[-1] if said else "no reply"
            raise ConfigError(f"grading needs the package {_PACKAGES[about]}: pip install 'moot[data]' ({why})")

    def ask(self, message: bytes, limit: float) -> tuple[Outcome, float]:
        """What came of it, and the processor time it took."""
        try:
            self._requests.write(len(message).to_bytes(4, "big") + message)
        except BrokenPipeError:
            return "lost", 0.0
        # The worker limits itself. This is for a machine so busy, or a worker so broken, that it does not.
        outcome, used = self._reply(20 * limit + 20)
        return _OUTCOMES.get(outcome, "lost"), used

    def kill(self, patience: float = 0.0) -> None:
        """One that is idle ends by itself when nobody will ask any more."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        if self._process.returncode != 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # it and the child that works for it
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _reply(self, patience: float) -> tuple[bytes, float]:
        """A byte that tells what came of it, and four with microseconds of processor time, written at once."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._replies, selectors.EVENT_READ)
            reply = self._replies.read(5) or b"" if waiting.select(patience) else b""
        return reply[:1], int.from_bytes(reply[1:], "big") / 1e6
