"""Sixty questions with two sides, for advocates and their judge: half are word problems, half are about a short text.

    python recipes/two_sided.py > recipes/two_sided.jsonl

The wrong side of a word problem is what a usual mistake comes to; that of a text is another name in it. Which side stands first is drawn.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

NAMES = ("Ada", "Ben", "Chika", "Dora", "Emil", "Fatou", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena")
THINGS = ("pens", "plates", "stamps", "bricks", "lamps", "cups")
PLACES = ("harbour", "station", "library", "market", "old mill", "town hall")


def shop(rng: random.Random) -> tuple[str, int, int]:
    """The mistake: what is given away is added."""
    who, what = rng.choice(NAMES), rng.choice(THINGS)
    boxes, each, gone = rng.randint(3, 9), rng.randint(4, 9), rng.randint(2, 9)
    text = (
        f"{who} buys {boxes} boxes of {each} {what} and gives {gone} {what} away. How many {what} does {who} have left?"
    )
    return text, boxes * each - gone, boxes * each + gone


def order(rng: random.Random) -> tuple[str, int, int]:
    """The mistake: the sum is made before the product."""
    a, b, c = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 9)
    return f"What is {a} + {b} * {c}?", a + b * c, (a + b) * c


def travel(rng: random.Random) -> tuple[str, int, int]:
    """The mistake: the way back is forgotten."""
    who, days, far, place = rng.choice(NAMES), rng.randint(2, 6), rng.randint(3, 12), rng.choice(PLACES)
    text = f"The {place} is {far} km from {who}'s house. {who} walks there and back on each of {days} days. How many km is that in all?"
    return text, 2 * days * far, days * far


def arrival(rng: random.Random) -> tuple[str, str, str]:
    first, second, third = rng.sample(NAMES, 3)
    place = rng.choice(PLACES)
    text = f"{first} came to the {place} after {second} but before {third}, who had missed the bus."
    asked, right, wrong = rng.choice((("first", second, first), ("last", third, first)))
    return f"{text} Who of the three came {asked}?", right, wrong


def key(rng: random.Random) -> tuple[str, str, str]:
    owner, helper, finder = rng.sample(NAMES, 3)
    text = f"{owner} lent the key of the {rng.choice(PLACES)} to {helper}. {helper} lost it. {finder} found it and gave it back to {owner}."
    asked, right, wrong = rng.choice((("has the key now", owner, finder), ("lost the key", helper, owner)))
    return f"{text} Who {asked}?", right, wrong


def heights(rng: random.Random) -> tuple[str, str, str]:
    a, b, c = rng.sample(NAMES, 3)
    text = f"{a} is taller than {b}. {c} is shorter than {b}, although {c} is the oldest."
    asked, right, wrong = rng.choice((("tallest", a, c), ("shortest", c, b)))
    return f"{text} Who is the {asked}?", right, wrong


def rows(seed: int = 0, count: int = 60) -> Iterator[dict[str, object]]:
    rng, asked = random.Random(seed), set[str]()
    kinds = (shop, arrival, order, key, travel, heights)
    while len(asked) < count:
        question, right, wrong = kinds[len(asked) % len(kinds)](rng)
        if question in asked or right == wrong:
            continue
        asked.add(question)
        sides = [str(right), str(wrong)]
        rng.shuffle(sides)
        yield {"question": question, "sides": sides, "answer": str(right)}


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row))
