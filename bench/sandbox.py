"""How many programs are graded per second in the sandbox, beside the same programs in a bare interpreter each?

    python bench/sandbox.py [--count 100] [--workers 2]

Prints one line of JSON. `bare` is the peer: the same interpreter and worker without a sandbox, on programs that are known to be harmless.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from moot.tasks.sandbox import Limits, _run, available

TESTS = "def check(candidate):\n    assert [candidate(i) for i in range(5)] == [0, 1, 4, 9, 16]"


def program(number: int) -> str:
    return f"def square(x):\n    return x ** 2  # {number}"


def bare(number: int) -> bool:
    code = f"{program(number)}\n{TESTS}\ncheck(square)"
    return subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], env={}, check=False).returncode == 0


def per_second(work: Callable[[int], bool], count: int, workers: int) -> float:
    begin = time.perf_counter()
    with ThreadPoolExecutor(workers) as threads:
        passed = list(threads.map(work, range(count)))
    assert all(passed)
    return round(count / (time.perf_counter() - begin), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    results: dict[str, float] = {"bare": per_second(bare, chosen.count, chosen.workers)}
    for box in available():
        results[box.name] = per_second(
            lambda i, box=box: _run(box, program(i), TESTS, "square", (), Limits()).passed,  # type: ignore[misc]
            chosen.count,
            chosen.workers,
        )
        results[f"{box.name} over bare"] = round(results[box.name] / results["bare"], 2)
    print(json.dumps({**results, "programs": chosen.count, "workers": chosen.workers}))


if __name__ == "__main__":
    main()
