"""Does the time to read hostile text grow with its length, and no faster?

    python bench/growth.py [--length 1000000]

Prints one line of JSON: for every text, the time at four times the length over the time at the length, the least of three. A linear
reader stays near 4 and a quadratic one near 16.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from moot.debate.parsing import parse
from moot.tasks.answers import answer_in, exact
from moot.tasks.graders import GRADERS

PIECES = (
    "<",
    "</solution",
    "<solution>",
    "</think>",
    "< /",
    " ",
    "*",
    "*_`",
    "= ",
    "1",
    "1,",
    "1.1",
    "-",
    "`",
    "\n",
    "{",
    "}",
    "\\",
    "\\boxed{",
    "$",
)
READERS: dict[str, Callable[[str], object]] = {
    "parse": lambda text: parse(text, "three_tag"),
    "parse_comparison": lambda text: parse(
        f"<solution>S</solution><evaluation>E</evaluation><comparison>{text}</comparison>", "three_tag"
    ),
    "answer_in": answer_in,
    "exact": lambda text: exact(text, "7"),
    **{f"extract_{name}": grading.extract for name, grading in GRADERS.items()},
}


def seconds(read: Callable[[str], object], text: str) -> float:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        read(text)
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=1_000_000)
    length = parser.parse_args().length
    growth: dict[str, tuple[float, str]] = {}
    for name, read in READERS.items():
        ratios = []
        for piece in PIECES:
            short, long = (seconds(read, piece * (size // len(piece))) for size in (length, 4 * length))
            if short > 3e-3:  # below, the clock and not the reader is measured
                ratios.append((round(long / short, 2), piece))
        growth[name] = max(ratios, default=(0.0, ""))
    print(json.dumps({name: {"largest_growth": ratio, "of": piece} for name, (ratio, piece) in growth.items()}))


if __name__ == "__main__":
    main()
