"""How fast are honest answers graded, beside math-verify called directly in this process?

    python bench/grading.py [--count 2000] [--answers FILE]

Prints one line of JSON. Every pair is asked once, so nothing is remembered. `graded` is what training sees: what can be told at a
glance is, the rest goes to the processes. `pool` sends everything there. `direct` is the peer: one process, no limits on memory, its
own time-out.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moot.tasks.answers import answer_in
from moot.tasks.mathematical import EqualMathematics, at_a_glance, last_mathematics
from moot.tasks.pool import Pool

Pair = tuple[str, str]
FORMS: list[Callable[[random.Random], Pair]] = [
    lambda r: (str(a := r.randint(0, 999)), str(r.choice((a, a + 1)))),
    lambda r: (f"{(a := r.randint(1000, 9_999_999)):,}", str(r.choice((a, a + 1)))),
    lambda r: (f"{(a := r.randint(1, 99)) / 4}", f"\\frac{{{r.choice((a, a + 1))}}}{{4}}"),
    lambda r: (f"\\frac{{{2 * (a := r.randint(1, 99))}}}{{14}}", f"\\frac{{{r.choice((a, a + 1))}}}{{7}}"),
    lambda r: (f"{(a := r.randint(2, 30))}\\sqrt{{{(b := r.randint(2, 9))}}}", f"\\sqrt{{{r.choice((a * a * b, a * a * b + 1))}}}"),
    lambda r: (f"({(a := r.randint(0, 99))}, {(b := r.randint(0, 99))})", f"\\left( {a}, {r.choice((b, b + 1))} \\right)"),
    lambda r: (f"x^2 + {(a := r.randint(2, 99))}x + {(b := r.randint(1, 99))}", f"{b}+x^2+{r.choice((a, a + 1))}x"),
    lambda r: (f"{(a := r.randint(2, 99))}\\pi", f"{r.choice((a, a + 1))} \\pi"),
    lambda r: (f"x = {(a := r.randint(100, 999))}", str(r.choice((a, a + 1)))),
    lambda r: (f"{(a := r.randint(2, 999))}", f"{r.choice((a, a + 1))}\\text{{ miles}}"),
]


def made(count: int) -> list[Pair]:
    """A third whole numbers, as in the public sets it is more than half; the rest as competition answers are written."""
    chance = random.Random(0)
    found: dict[Pair, None] = {}
    for number in range(100 * count):
        if len(found) == count:
            break
        found[FORMS[0 if number % 5 == 0 else number % len(FORMS)](chance)] = None
    return list(found)


def read(path: Path) -> list[Pair]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = {(answer, row["gold"]): None for row in rows if (answer := answer_in(row["text"], last_mathematics)) is not None}
    return list(found)


def rate(work: Callable[[Pair], object], pairs: list[Pair], threads: int = 1) -> float:
    begin = time.perf_counter()
    if threads == 1:
        for pair in pairs:
            work(pair)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, pairs))
    return len(pairs) / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answers", type=Path, help="JSON lines with gold and text: real answers instead of made ones")
    chosen = parser.parse_args()
    pairs = read(chosen.answers) if chosen.answers else made(chosen.count)

    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0)]

    def direct(pair: Pair) -> bool:
        target, gold = (parse(f"\\boxed{{{answer}}}", config) for answer in pair)
        return bool(verify(gold, target))

    pool = Pool(chosen.workers)
    with ThreadPoolExecutor(chosen.workers) as threads:  # started and warm before the clock runs
        list(threads.map(lambda i: pool.ask(f"x^{i}", "y"), range(4 * chosen.workers)))
    direct(("\\frac{1}{2}", "0.5"))
    equal = EqualMathematics(pool)
    rates = {
        "direct": rate(direct, pairs),
        "pool": rate(lambda pair: pool.ask(*pair), pairs, chosen.workers),
        "graded": rate(lambda pair: equal(*pair), pairs, chosen.workers),
    }
    disagree = [pair for pair in pairs if equal(*pair) != direct(pair)]
    pool.close()
    found: dict[str, object] = {f"{name}_per_second": round(value, 1) for name, value in rates.items()}
    found |= {
        "pairs": len(pairs),
        "at_a_glance": round(sum(at_a_glance(*pair) is not None for pair in pairs) / len(pairs), 3),
        "graded_over_direct": round(rates["graded"] / rates["direct"], 2),
        "workers": chosen.workers,
        "disagreements": len(disagree),
    }
    print(json.dumps(found))
    for given, right in disagree[:20]:
        print(f"  {given!r} against {right!r}")


if __name__ == "__main__":
    main()
