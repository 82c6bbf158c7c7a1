"""Grades hostile answers from threads and from a coroutine. A process of its own: its children's memory and processor time can be told.

python grade_hostile.py COUNT SECONDS
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from hostile_answers import hostile

from moot.tasks.math_equality import EqualMathematics, at_a_glance
from moot.tasks.math_pool import Pool


def main(count: int, seconds: float) -> None:
    pool = Pool(workers=2, seconds=seconds)
    equal = EqualMathematics(pool)
    pairs = hostile(count)
    half = count // 2
    with ThreadPoolExecutor(4) as threads:
        verdicts = list(threads.map(lambda pair: equal(*pair), pairs[:half]))

    async def rest() -> list[bool]:
        return list(await asyncio.gather(*(asyncio.to_thread(equal, *pair) for pair in pairs[half:])))

    verdicts += asyncio.run(rest())
    works = equal("\\frac{2}{4}", "0.5")
    outcomes = Counter(equal.outcome(*pair) for pair in pairs if at_a_glance(*pair) is None)
    accepted = [(given[:100], right) for (given, right), verdict in zip(pairs, verdicts, strict=True) if verdict]
    pool.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    largest = children.ru_maxrss / (1024 if sys.platform == "linux" else 1 << 20)
    results = {
        "verdicts": len(verdicts),
        "accepted": accepted,
        "processor_seconds": children.ru_utime + children.ru_stime,
        "works": works,
        "largest_mb": largest,
        "outcomes": outcomes,
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
