"""How fast are honest answers graded, beside math-verify called directly in this process?

    python bench/grading.py [--count 2000] [--answers FILE]

Prints one line of JSON. Every pair is asked once, so nothing is remembered. `graded` is what training sees: what can be told at a
glance is, the rest goes to the processes. `pool` sends everything there. `direct` is the peer: this process, without limits.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from moot.tasks.answers import answer_in
from moot.tasks.math_equality import EqualMathematics, at_a_glance, last_mathematics
from moot.tasks.math_pool import Pool

Pair = tuple[str, str]
FORMS: list[Callable[[random.Random], Pair]] = [
    lambda r: (str(a := r.randint(0, 999)), str(r.choice((a, a + 1)))),
    lambda r: (f"{(a := r.randint(1000, 9_999_999)):,}", str(r.choice((a, a + 1)))),
    lambda r: (f"{(a := r.randint(1, 99)) / 4}", f"\\frac{{{r.choice((a, a + 1))}}}{{4}}"),
    lambda r: (f"\\frac{{{2 * (a := r.randint(1, 99))}}}{{14}}", f"\\frac{{{r.choice((a, a + 1))}}}{{7}}"),
    lambda r: (
        f"{(a := r.randint(2, 30))}\\sqrt{{{(b := r.randint(2, 9))}}}",
        f"\\sqrt{{{r.choice((a * a * b, a * a * b + 1))}}}",
    ),
    lambda r: (
        f"({(a := r.randint(0, 99))}, {(b := r.randint(0, 99))})",
        f"\\left( {a}, {r.choice((b, b + 1))} \\right)",
    ),
    lambda r: (f"x^2 + {(a := r.randint(2, 99))}x + {(b := r.randint(1, 99))}", f"{b}+x^2+{r.choice((a, a + 1))}x"),
    lambda r: (f"{(a := r.randint(2, 99))}\\pi", f"{r.choice((a, a + 1))} \\pi"),
    lambda r: (f"x = {(a := r.randint(100, 999))}", str(r.choice((a, a + 1)))),
    lambda r: (f"{(a := r.randint(2, 999))}", f"{r.choice((a, a + 1))}\\text{{ miles}}"),
]


def made(count: int) -> list[Pair]:
    """A third whole numbers, as in the public sets it is more than half; the rest as competition answers are written."""
    rng = random.Random(0)
    pairs: dict[Pair, None] = {}
    for number in range(100 * count):
        if len(pairs) == count:
            break
        pairs[FORMS[0 if number % 5 == 0 else number % len(FORMS)](rng)] = None
    return list(pairs)


def read(path: Path) -> list[Pair]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    pairs = {
        (answer, row["gold"]): None for row in rows if (answer := answer_in(row["text"], last_mathematics)) is not None
    }
    return list(pairs)


@dataclass(frozen=True)
class Speed:
    per_second: float
    """By the clock: what one gets, on this machine as busy as it is."""
    per_core_second: float
    """By the processor time that was used, by this process and those that worked for it: others on the machine do not count."""


def processor_time() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def measure(
    begin: Callable[[int], tuple[Callable[[Pair], object], Callable[[], None]]], pairs: list[Pair], threads: int
) -> Speed:
    """`begin` starts as many as are asked for and gives what to call and how to end it. Children's time is known when they have ended,
    so what starting costs is measured apart."""
    before = processor_time()
    _, end = begin(threads)
    end()
    starting = processor_time() - before
    before = processor_time()
    work, end = begin(threads)
    clock = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, pairs))
    clock = time.perf_counter() - clock
    end()
    used = max(1e-9, processor_time() - before - starting)
    return Speed(round(len(pairs) / clock, 1), round(len(pairs) / used, 1))


def warm(workers: int) -> Pool:
    pool = Pool(workers)
    with ThreadPoolExecutor(workers) as threads:  # started and warm before the clock runs
        list(threads.map(lambda i: pool.ask(f"x^{i}", "y"), range(4 * workers)))
    return pool


def through_the_pool(workers: int) -> tuple[Callable[[Pair], object], Callable[[], None]]:
    pool = warm(workers)
    return lambda pair: pool.ask(*pair), pool.close


def graded(workers: int) -> tuple[Callable[[Pair], object], Callable[[], None]]:
    pool = warm(workers)
    equal = EqualMathematics(pool)
    return lambda pair: equal(*pair), pool.close


def direct_call(pair: Pair) -> bool:
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0)]
    target, gold = (parse(f"\\boxed{{{answer}}}", config, parsing_timeout=None) for answer in pair)
    return bool(verify(gold, target, timeout_seconds=None))


def direct(_: int) -> tuple[Callable[[Pair], object], Callable[[], None]]:
    direct_call(("\\frac{1}{2}", "0.5"))
    return direct_call, lambda: None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answers", type=Path, help="JSON lines with gold and text: real answers instead of made ones")
    chosen = parser.parse_args()
    logging.disable(
        logging.WARNING
    )  # math-verify warns of the time-outs that are turned off, because they cannot be had in a thread
    pairs = read(chosen.answers) if chosen.answers else made(chosen.count)

    speeds = {
        "direct": measure(direct, pairs, 1),
        "pool": measure(through_the_pool, pairs, chosen.workers),
        "graded": measure(graded, pairs, chosen.workers),
    }
    pool = warm(chosen.workers)
    equal = EqualMathematics(pool)
    disagree = [pair for pair in pairs if equal(*pair) != direct_call(pair)]
    pool.close()
    results: dict[str, object] = {name: asdict(speed) for name, speed in speeds.items()}
    results |= {
        "pairs": len(pairs),
        "at_a_glance": round(sum(at_a_glance(*pair) is not None for pair in pairs) / len(pairs), 3),
        "graded_over_direct": round(speeds["graded"].per_second / speeds["direct"].per_second, 2),
        "workers": chosen.workers,
        "disagreements": len(disagree),
    }
    print(json.dumps(results))
    for given, right in disagree[:20]:
        print(f"  {given!r} against {right!r}")


if __name__ == "__main__":
    main()
