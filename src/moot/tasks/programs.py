"""Programs as answers: where one stands in a solution, whether it passes its tests, and when two are the same answer.

Two programs hold the same answer if they behave the same on the inputs that the problem shows, or, where it shows none,
on those of its tests. That takes no knowledge of the right answer. Everything runs in the sandbox; a program's text is
never even parsed here.
"""

from __future__ import annotations

import ast
import doctest
import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from moot.debate.types import Question
from moot.tasks.math_pool import cores
from moot.tasks.sandbox import Limits, run

CODE = "Write the whole function in Python, in one block that starts with ```python and ends with ```."
TESTS = "# tests of "
"""How the tests of a problem begin, which stand for the right answer: nobody writes an answer like that."""
LIMITS = Limits(seconds=4, wall_seconds=12.0)
MOST_CALLS = 12
MOST_REMEMBERED = 5000
LONGEST = 50_000
"""Characters of a program that is run at all."""

_FENCED = re.compile(r"```[ \t]*(?:python|py)?[0-9.]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.S | re.I)
_STARTS = re.compile(r"^(?:def|import|from|class|async def|@)[ \t]", re.M)
_DEFINED = re.compile(r"^(?:async[ \t]+)?def[ \t]+(\w+)|^(\w+)[ \t]*=", re.M)


@dataclass(frozen=True)
class Problem:
    prompt: str
    entry_point: str
    tests: str
    """Python that defines `check(candidate)`, or asserts by itself."""
    solution: str = ""
    """A whole program that passes, where one is known."""

    @cached_property
    def preamble(self) -> str:
        """What the prompt says before the function: imports, and functions to build on."""
        start = re.search(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(self.entry_point)}\b", self.prompt, re.M)
        return self.prompt[: start.start()] if start else ""

    def whole(self, program: str) -> str:
        """The program with the prompt's preamble; one that does not define the function is the rest of the prompt's."""
        defines = any(self.entry_point in names for names in _DEFINED.findall(program))
        return f"{self.preamble}\n{program}" if defines else f"{self.prompt.rstrip()}\n{program}"

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """Calls of the function: those of the prompt's examples, or else those of the tests."""
        try:
            examples = [example.source.strip() for example in doctest.DocTestParser().get_examples(self.prompt)]
        except ValueError:
            examples = []
        shown = [source for source in examples if re.match(rf"{re.escape(self.entry_point)}[ \t]*\(", source)]
        return tuple(dict.fromkeys(shown or _calls(self.tests, self.entry_point)))[:MOST_CALLS]


def _calls(tests: str, entry_point: str) -> list[str]:
    """Calls with literal arguments, in the order in which they stand."""
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError):
        return []
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    calls = []
    for node in sorted(called, key=lambda node: (node.lineno, node.col_offset)):
        if node.func.id in ("candidate", entry_point) and not node.keywords:  # type: ignore[attr-defined]
            arguments = [ast.unparse(argument) for argument in node.args]
            if all(_literal(argument) for argument in arguments):
                calls.append(f"{entry_point}({', '.join(arguments)})")
    return calls


def _literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def last_program(solution: str) -> str | None:
    """The last block in a fence that defines something, or the last block, or all from the first definition on."""
    blocks = [block for block in _FENCED.findall(solution) if block.strip()]
    if blocks:
        return str(next((block for block in reversed(blocks) if _DEFINED.search(block)), blocks[-1])).rstrip()
    start = _STARTS.search(solution)
    return solution[start.start() :].rstrip() if start and "def " in solution else None


class EqualPrograms:
    """Compares programs for a set of problems. Safe from every thread."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.workers = min(8, cores())
        self._by_tests = {problem.tests: problem for problem in problems}
        self._by_name: dict[str, list[Problem]] = defaultdict(list)
        for problem in problems:
            self._by_name[problem.entry_point].append(problem)
        # Agents repeat themselves and each other.
        self._run = lru_cache(MOST_REMEMBERED)(partial(run, limits=LIMITS))

    def __call__(self, a: str, b: str) -> bool:
        return a == b or self.key(a) == self.key(b)

    def check(self, question: Question, answer: str) -> bool:
        """Whether a program passes the tests of its problem."""
        return question.answer is not None and self.passes(answer, question.answer)

    def passes(self, given: str, right: str) -> bool:
        """Whether a program passes its tests, which stand for the right answer."""
        problem = self._by_tests[right]
        return len(given) <= LONGEST and self._run(problem.whole(given), problem.tests, problem.entry_point).passed

    def key(self, answer: str) -> Hashable:
        """What the program does. One that does nothing but fail is like no other that is written differently."""
        if len(answer) > LONGEST:
            return answer
        names = [name for pair in _DEFINED.findall(answer) for name in pair if name in self._by_name]
        problems = self._by_name[names[-1]] if names else []
        ran = [self._run(problem.whole(answer), "", "", problem.calls) for problem in problems]
        values = [value for result in ran for value in result.values]
        return tuple(values) if any(not value.startswith("raises ") for value in values) else answer

    def broken(self, right: str, number: int) -> str:
        """A program that looks right and is not: the i-th change to what the solution gives back."""
        problem = self._by_tests[right]
        name, other = problem.entry_point, ("None", "[value]", "(value, 1)")[number % 3]
        return (
            f"{problem.solution}\n\n_{name} = {name}\n\n\ndef {name}(*arguments):\n    value = _{name}(*arguments)\n"
            "    return not value if isinstance(value, bool) else value + 1 if isinstance(value, (int, float)) else "
            f"{other}\n"
        )
