"""Code: HumanEval, a test set, and `code:FILE`, JSON lines with prompt, entry_point and tests. Graded by running the
tests.

An answer is a program; the known right answer is its tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks import sandbox
from moot.tasks.graders import Grading
from moot.tasks.programs import CODE, TESTS, EqualPrograms, Problem, last_program
from moot.tasks.rows import Hub, Raw, Row, field, load, read
from moot.tasks.sets import fixed_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

HUB = Hub("openai/openai_humaneval", "test")


@dataclass(frozen=True)
class HumanEvalSettings:
    test: str = ""
    """A file with the problems, instead of the hub."""


@dataclass(frozen=True)
class CodeSettings:
    test: str = ""
    """Another file, with the test split."""
    held_out: str = ""
    """validation: a slice of the file. test: the test file, for the last measurement."""


def problem(raw: Raw, where: str) -> Problem:
    prompt, entry_point = field(raw, where, "prompt"), field(raw, where, "entry_point")
    name = next((name for name in ("tests", "test") if name in raw), "tests")
    tests = raw.get(name)
    written = "\n".join(map(str, tests)) if isinstance(tests, list) else field(raw, where, name)
    if not entry_point.isidentifier():
        raise ConfigError(f"{where}: entry_point must be the name of a function, got {entry_point!r}")
    if empty := next((name for name, text in (("prompt", prompt), ("tests", written)) if not text.strip()), None):
        raise ConfigError(f"{where}: {empty} is empty; write it, or take the row out of the file")
    # A comment tells problems with the same tests apart: the tests stand for the right answer.
    made = Problem(prompt, entry_point, f"{TESTS}{entry_point}\n{written}")
    if solution := str(raw.get("canonical_solution") or raw.get("solution") or ""):
        whole = f"def {entry_point}" in solution
        made = replace(made, solution=made.whole(solution) if whole else f"{prompt.rstrip()}\n{solution}")
    return made


def humaneval(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    chosen = spec.fill(HumanEvalSettings)
    raws = load(chosen.test, spec.name, HUB, ["test"])
    return _task(spec.label, {"test": [problem(raw, where) for where, raw in raws]}, "test", seed, held_out)


def code(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    if len(spec.words) != 1:
        raise ConfigError(f"task {spec.text!r}: name one file, as in code:problems.jsonl")
    chosen = spec.fill(CodeSettings)
    files = {"train": spec.words[0], **({"test": chosen.test} if chosen.test else {})}
    splits = {name: [problem(raw, where) for where, raw in read(Path(file))] for name, file in files.items()}
    return _task(Path(spec.words[0]).stem, splits, chosen.held_out, seed, held_out)


def _task(name: str, splits: dict[str, list[Problem]], use: str, seed: int, held_out: int) -> Task:
    sandbox.require()  # now, and not when the first program is to be graded
    problems = {problem.tests: problem for split in splits.values() for problem in split}
    programs = EqualPrograms(list(problems.values()))
    grading = Grading(programs, last_program, CODE, check=programs.check)

    def rows(split: str) -> Callable[[], list[Row]]:
        return lambda: [Row(f"Complete this function.\n\n{made.prompt.rstrip()}", made.tests) for made in splits[split]]

    def solution(question: Question) -> str:
        return f"```python\n{problems[question.answer or ''].solution}\n```"

    task = fixed_set(name, grading, {split: rows(split) for split in splits}, use, seed, held_out)
    # Wrong programs are made by the grader. A warm start would have to show tests as answers, so there is none.
    solved = all(problem.solution for problem in problems.values())
    return replace(task, solution=solution if solved else None, near_miss=None)
