"""Runs in a process of its own and asks math-verify whether two answers are equal. Knows nothing of moot, and starts nothing but itself.

Started by `pool.py`. It imports math-verify once and then forks: the child answers requests until one of them kills it, and the
next child is there in milliseconds, without importing again. Limits are the kernel's, because an answer may freeze the interpreter
where no Python handler runs: processor time ends the child by a signal, memory by the size of its address space.

A request is four bytes of length and a JSON list [given, right]; a reply is one byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from typing import Any

READY, EQUAL, DIFFERENT, UNREADABLE, TIME, MEMORY = b"R", b"=", b"!", b"?", b"T", b"M"
OUT_OF_MEMORY, WORN_OUT = 3, 4
MOST_REQUESTS = 1000
"""Caches grow with every new formula; a fresh child now and then costs nothing."""


def main() -> None:
    seconds, megabytes = float(sys.argv[1]), int(sys.argv[2])
    replies = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # what a library prints must not look like a reply
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    judge(r"\frac{1}{2}", "0.5")  # imports everything, and fills the parser's tables once for all children
    os.dup2(nowhere, 2)  # up to here a complaint is worth hearing; from here on nobody listens, and a full pipe would block
    os.write(replies, READY)
    while True:
        child = os.fork()
        if child == 0:
            serve(replies, seconds, megabytes)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == WORN_OUT:
            continue
        os.write(replies, TIME if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF else MEMORY)


def serve(replies: int, seconds: float, megabytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # macOS knows the limit and does not keep it
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(MOST_REQUESTS):
        length = read(4)
        if not length:
            os._exit(0)
        given, right = json.loads(read(int.from_bytes(length, "big")))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            reply = judge(given, right)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BaseException:  # SystemExit and the like, raised by whatever the answer set off
            reply = UNREADABLE
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(replies, reply)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > before + (megabytes << 8):
            break  # a quarter of what it may have: the next request must not pay for this one
    os._exit(WORN_OUT)


def read(count: int) -> bytes:
    """Exactly that many bytes; none when whoever started us is gone."""
    found = b""
    while len(found) < count:
        piece = os.read(0, count - len(found))
        if not piece:
            return b""
        found += piece
    return found


def judge(given: str, right: str) -> bytes:
    from math_verify import verify

    target, gold = parsed(given), parsed(right)
    if not target or not gold:
        return UNREADABLE
    return EQUAL if verify(gold, target, allow_set_relation_comp=True, timeout_seconds=None) else DIFFERENT


def parsed(answer: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    config = [LatexExtractionConfig(boxed_match_priority=0)]
    return list(parse(f"\\boxed{{{answer}}}", config, fallback_mode="no_fallback", parsing_timeout=None))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
