"""Runs in a process of its own and asks math-verify whether two answers are equal, or reasoning-gym how it scores one.

Knows nothing of moot, and starts nothing but itself. Started by `math_pool.py`. It imports one of the two packages once
and then forks: the child answers requests until one of them kills it, and the next child is there in milliseconds,
without importing again. Limits are the kernel's, because an answer may freeze the interpreter where no Python handler
runs: processor time ends the child by a signal, memory by the size of its address space.

A request is four bytes of length and a JSON list [given, right, seconds of processor time]; a reply is one byte and
four more, the microseconds of it that were used. For reasoning-gym `right` is a pickle of ours, in base64: the
generator, its settings, the item.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import re
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

READY, EQUAL, DIFFERENT, UNREADABLE, TIME, MEMORY = b"R", b"=", b"!", b"?", b"T", b"M"
WORDS = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{[^{}]*\}")
VARIABLE = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
USUAL = (
    r"\frac{1}{2}", "0.5", "x^2 - 2x + 1", r"3\sqrt{2}", r"2\pi", "(1, -2)", r"[0, \infty)", "x = 3", "1, 2", "x > 2",
    "6 - 5i", r"90^\circ",
)  # fmt: skip
OUT_OF_MEMORY, WORN_OUT = 3, 4
MOST_REQUESTS = 1000
"""Caches grow with every new formula; a fresh child now and then costs nothing."""


def main() -> None:
    megabytes, about = int(sys.argv[1]), sys.argv[2]
    replies = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # what a library prints must not look like a reply
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if about == "gym":
        import reasoning_gym  # noqa: F401
    else:  # imports everything, and fills the parser's tables once for all children
        for answer in USUAL:
            judge(answer, answer)
    # Up to here a complaint is worth hearing; from here on nobody listens, and a full pipe would block.
    os.dup2(nowhere, 2)
    send(replies, READY)
    while True:
        child = os.fork()
        if child == 0:
            serve(replies, megabytes, score if about == "gym" else judge)
        _, status = os.waitpid(child, 0)
        if status == 0:
            os._exit(0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == WORN_OUT:
            continue
        send(replies, TIME if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF else MEMORY)


def serve(replies: int, megabytes: int, verdict: Callable[[str, str], bytes]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # macOS knows the limit and does not keep it
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(MOST_REQUESTS):
        length = read(4)
        if not length:
            os._exit(0)
        given, right, seconds = json.loads(read(int.from_bytes(length, "big")))
        begin = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            reply = verdict(given, right)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BaseException:  # SystemExit and the like, raised by whatever the answer set off
            reply = UNREADABLE
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(replies, reply, time.process_time() - begin)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > before + (megabytes << 8):
            break  # a quarter of what it may have: the next request must not pay for this one
    os._exit(WORN_OUT)


def send(replies: int, reply: bytes, seconds: float = 0.0) -> None:
    os.write(replies, reply + max(0, int(seconds * 1e6)).to_bytes(4, "big"))


def read(count: int) -> bytes:
    """Exactly that many bytes; none when whoever started us is gone."""
    received = b""
    while len(received) < count:
        piece = os.read(0, count - len(received))
        if not piece:
            return b""
        received += piece
    return received


def judge(given: str, right: str) -> bytes:
    from math_verify import verify

    # To math-verify the t of 3t is a unit and left out. Where the right answer has a letter of its own, letters are
    # variables.
    units = not VARIABLE.search(WORDS.sub("", right))
    target, gold = parsed(given, units), parsed(right, units)
    if not target or not gold:
        return UNREADABLE
    equal = verify(gold, target, allow_set_relation_comp=True, timeout_seconds=None)
    return EQUAL if equal and not tiny_and_apart(gold[0], target[0]) else DIFFERENT


def score(given: str, asked: str) -> bytes:
    import reasoning_gym

    name, settings, item = pickle.loads(base64.b64decode(asked))
    scorer = reasoning_gym.create_dataset(name, seed=0, size=1, **settings)
    return EQUAL if scorer.score_answer(given, item) == 1.0 else DIFFERENT


def tiny_and_apart(a: Any, b: Any) -> bool:
    """math-verify compares numbers to six decimals, by which all numbers below a millionth are equal."""
    try:
        left, right = complex(a), complex(b)
    except (TypeError, ValueError, AttributeError):
        return False
    size = max(abs(left), abs(right))
    return size < 1e-3 and abs(left - right) > 1e-5 * size


def parsed(answer: str, units: bool) -> list[Any]:
    """With units left out or not; the other way where nothing sensible remains (`a + b + c`, c for cups)."""
    from math_verify import LatexExtractionConfig, parse

    config = LatexExtractionConfig(boxed_match_priority=0)
    for left_out in (units, not units):
        chosen = replace(config, normalization_config=replace(config.normalization_config, units=left_out))
        if expressions := parse(f"\\boxed{{{answer}}}", [chosen], fallback_mode="no_fallback", parsing_timeout=None):
            return list(expressions)
    return []


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
