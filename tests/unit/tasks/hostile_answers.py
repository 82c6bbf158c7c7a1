"""Answers that a model could write and that break graders: each kind in growing sizes."""

from __future__ import annotations

import random

RIGHT = (
    "7",
    "\\frac{1}{2}",
    "x^2+1",
    "\\sqrt{2}",
    "(1,2)",
    "10^{9}",
    "\\text{Evelyn}",
    "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}",
)


def nested(left: str, inner: str, right: str, depth: int) -> str:
    return left * depth + inner + right * depth


KINDS = [
    lambda n: nested("9^{", "9", "}", n),
    lambda n: "9^{9^{9^{9}}}" + "0" * n,
    lambda n: f"{10 ** (n % 12)}!",
    lambda n: nested("(", "9", "!)", n % 20 + 2),
    lambda n: "10^{9}!" + "!" * (n % 5),
    lambda n: "{" * n,
    lambda n: "}" * n + "7",
    lambda n: "\\frac{1}{" * n + "2",
    lambda n: "7" * n * 1000,
    lambda n: "0." + "3" * n * 10,
    lambda n: "\x00" * n + "7",
    lambda n: "7\x00" * n,
    lambda n: nested("(", "1", ")", n),
    lambda n: nested("\\sqrt{", "2", "}", n),
    lambda n: nested("\\sqrt{2+", "3", "}", n % 12),
    lambda n: nested("\\frac{1}{", "2", "}", n),
    lambda n: nested("\\frac{1}{1+", "x", "}", n % 40),
    lambda n: nested("\\left(", "x", "\\right)^{2}", n),
    lambda n: nested("\\{", "1", "\\}", n),
    lambda n: nested("|", "x", "|", n),
    lambda n: "1+" * n + "1",
    lambda n: "x" * n,
    lambda n: "-" * n + "7",
    lambda n: "2^" * n + "2",
    lambda n: "\\cdot".join(f"(x+{i})" for i in range(n)),
    lambda n: f"(x+y+z)^{{{n}}}",
    lambda n: f"(x+1)^{{{10 ** (n % 9)}}}",
    lambda n: f"\\sum_{{k=1}}^{{{10 ** (n % 12)}}} k^k",
    lambda n: f"\\prod_{{k=1}}^{{{10 ** (n % 12)}}} (k+1)",
    lambda n: "\\int_0^\\infty e^{-x^{" + "x" * (n % 9 + 1) + "}} dx",
    lambda n: f"\\lim_{{x \\to \\infty}} x^{{{n}}} e^{{-x}}",
    lambda n: f"\\binom{{{10 ** (n % 12)}}}{{{10 ** (n % 12) // 2}}}",
    lambda n: f"\\sqrt[{10 ** (n % 9) + 7}]{{2}}",
    lambda n: f"2^{{1/{n + 1}}} + 3^{{1/{n + 2}}} + 5^{{1/{n + 3}}}",
    lambda n: f"1e{10 ** (n % 12)}",
    lambda n: f"\\sin(10^{{10^{{{n % 12}}}}})",
    lambda n: f"7^{{10^{{{n % 15}}}}} \\mod 13",
    lambda n: f"\\log_{{{n + 2}}}(10^{{10^{{{n % 12}}}}})",
    lambda n: (
        "\\begin{pmatrix}"
        + " \\\\ ".join(" & ".join(f"x^{{{i * j}}}" for i in range(n % 9 + 2)) for j in range(n % 9 + 2))
        + "\\end{pmatrix}^{-1}"
    ),
    lambda n: "\\begin{pmatrix}" * n,
    lambda n: "\\{" + ",".join(map(str, range(n))) + "\\}",
    lambda n: f"x \\in (0, 10^{{10^{{{n % 12}}}}}) \\cup \\{{1\\}}",
    lambda n: f"x^{{{n}}} + x + 1 = 0",
    lambda n: "=".join(["7"] * n),
    lambda n: "7 \\text{ or } " * n + "8",
    lambda n: f"__import__('os').system('sleep {n}')",
    lambda n: "exec('while True: pass')",
    lambda n: "\\text{" * n + "a",
    lambda n: "\\boxed{" * n + "7" + "}" * n,
    lambda n: "\ud800\u202e🙂" * n,
    lambda n: "\\" * n,
    lambda n: "$" * n + "7",
    lambda n: "\\d" * n + "frac12",
    lambda n: "%" * n,
    lambda n: "\n" * n,
    lambda n: "\\dbinom{n}{k}" * n,
    lambda n: "i^{" + "i^{" * (n % 15) + "i" + "}" * (n % 15) + "}",
    lambda n: "e^{e^{e^{" + str(n) + "}}} - e^{e^{e^{" + str(n + 1) + "}}}",
    lambda n: "\\frac{" + "9" * n + "}{" + "7" * n + "}",
    lambda n: "0^{-" + "1" * n + "}",
]


def hostile(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs of an answer and the right one. Sizes grow from small, where parsers still try, to a megabyte."""
    rng = random.Random(seed)
    pairs = []
    for number in range(count):
        size = rng.choice((3, 9, 30, 90, 300, 900))
        pairs.append((KINDS[number % len(KINDS)](size), rng.choice(RIGHT)))
    pairs[0] = ("7" * 1_000_000, "7")
    pairs[1] = ("{" * 1_000_000, "\\frac{1}{2}")
    return pairs
