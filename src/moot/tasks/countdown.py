"""Countdown: make a target from a few numbers. Finding an expression is hard, checking one is easy, and many are
right: there is a checker and no key. `countdown:numbers=4,largest=25,target=10-200` is harder."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks.answer_classes import ByKey
from moot.tasks.answers import announced, first_clause
from moot.tasks.expressions import numbers, parsed, plain, value
from moot.tasks.spec import Spec
from moot.tasks.task import Exercise, Task, distinct, halves

TRIES = 10_000
INSTRUCTION = (
    "Try combinations step by step, and calculate each to check it. "
    "End with the expression alone in \\boxed{}, for example \\boxed{(1 + 2) * 3}."
)
_ASKED = re.compile(r"Use the numbers ([0-9, and]+) and the operations .+ to make ([0-9]+)\. ")


@dataclass(frozen=True)
class CountdownSettings:
    numbers: int = 3
    largest: int = 12
    """The numbers are from 1 to this."""
    target: str = "10-100"
    """What is to be made: a range, or one number."""

    def __post_init__(self) -> None:
        if not 2 <= self.numbers <= 6:
            raise ConfigError(f"numbers must be from 2 to 6, got {self.numbers}")
        if not 7 <= self.largest <= 1000:
            raise ConfigError(f"largest must be from 7 to 1000, got {self.largest}")
        if not re.fullmatch(r"[0-9]{1,6}(-[0-9]{1,6})?", self.target) or not self.targets:
            raise ConfigError(f"target must be a number or a range as 10-100, got {self.target!r}")

    @property
    def targets(self) -> range:
        low, _, high = self.target.partition("-")
        return range(int(low), int(high or low) + 1)


@dataclass(frozen=True)
class Made:
    """A question, and the expression that it was made from."""

    question: Question
    expression: ast.expr


Attempt = tuple[Question, ast.expr]
Kind = Callable[[Made, random.Random], Attempt]


@lru_cache(maxsize=1000)
def made(seed: object, split: str, number: int, settings: CountdownSettings = CountdownSettings()) -> Made:
    """Held-out questions are those whose numbers sum to a multiple of 7: no set of numbers is on both sides."""
    rng = random.Random(f"{seed}/{split}/{number}")
    for _ in range(TRIES):
        given = [rng.randint(1, settings.largest) for _ in range(settings.numbers)]
        if (sum(given) % 7 == 0) != (split == "held_out"):
            continue
        target, expression = _combined(given, rng)
        if target in settings.targets:
            return Made(_question(given, target, f"{split}-{number}"), expression)
    raise ConfigError(f"task countdown: {settings} leaves nothing to ask; use larger numbers or more targets")


def _combined(given: list[int], rng: random.Random) -> tuple[int, ast.expr]:
    """All of them in one expression. No result on the way is negative or a fraction."""
    parts: list[tuple[int, ast.expr]] = [(number, ast.Constant(number)) for number in given]
    while len(parts) > 1:
        (a, left), (b, right) = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
        results = {ast.Add: a + b, ast.Mult: a * b}
        if a > b:
            results[ast.Sub] = a - b
        if a % b == 0:
            results[ast.Div] = a // b
        operator = rng.choice(list(results))
        parts.append((results[operator], ast.BinOp(left, operator(), right)))
    return parts[0]


def _listed(given: Sequence[int]) -> str:
    return f"{', '.join(map(str, given[:-1]))} and {given[-1]}"


def _question(given: list[int], target: int, name: str) -> Question:
    text = f"Use the numbers {_listed(given)} and the operations +, -, * and / to make {target}."
    return Question(f"{text} Each number must be used exactly once.", id=name, instruction=INSTRUCTION)


@lru_cache(maxsize=1000)
def asked(text: str) -> tuple[list[int], int]:
    """The numbers of a question, in order of size, and its target."""
    match = _ASKED.match(text)
    if match is None:
        must = "a question must begin with 'Use the numbers … to make …'"
        raise ConfigError(f"task countdown: {must}, got {text[:80]!r}; ask one of the task's own")
    return sorted(map(int, re.findall("[0-9]+", match[1]))), int(match[2])


def kept(question: Question, answer: str) -> tuple[bool, bool]:
    """Whether it uses the given numbers, each once, and whether its value is the target."""
    given, target = asked(question.text)
    if (expression := parsed(answer)) is None:
        return False, False
    used = [constant.value for constant in numbers(expression)]
    given_ones = all(type(number) is int for number in used) and sorted(used) == given  # type: ignore[type-var]
    return given_ones, value(expression) == target


def check(question: Question, answer: str) -> bool:
    """Each number once, and the target exactly. Of `expression = value` only the expression counts."""
    return all(kept(question, answer))


def rules(question: Question) -> list[str]:
    """A judge that calculates overlooks numbers that were not given, so they are a rule of their own."""
    given, target = asked(question.text)
    return [
        f"The final expression uses each of the numbers {_listed(given)} exactly once, and no other number.",
        f"The value of the final expression is {target}.",
    ]


equal = ByKey(plain)
"""The same text in plain signs, spaces apart: two ways to make a target are two answers."""


def extract(solution: str) -> str | None:
    """Where nothing is boxed, what is announced; the last line of a search that was cut off is no answer."""
    return first_clause(announced(solution) or "") or None


def shown(answer: str) -> str | None:
    """In plain signs, without a value that is claimed for it; None where it is no expression."""
    return None if (expression := parsed(answer)) is None else ast.unparse(expression)


def _other_value(right: Made, rng: random.Random) -> Attempt:
    given, _ = asked(right.question.text)
    return right.question, _combined(given, rng)[1]


def _other_target(right: Made, rng: random.Random) -> Attempt:
    given, target = asked(right.question.text)
    moved = max(0, target + rng.choice([-10, -2, -1, 1, 2, 10]))
    return _question(rng.sample(given, len(given)), moved, right.question.id), right.expression


def _wrong_number(right: Made, rng: random.Random) -> Attempt:
    given, target = asked(right.question.text)

    def drawn() -> list[int]:
        *others, last = rng.sample(given, len(given))
        near = rng.random() < 0.5
        return [*others, max(1, last + rng.choice([-2, -1, 1, 2])) if near else rng.randint(1, max(given))]

    return right.question, _making(target, drawn, rng)


def _missing_number(right: Made, rng: random.Random) -> Attempt:
    given, target = asked(right.question.text)
    return right.question, _making(target, lambda: rng.sample(given, len(given) - 1), rng)


def _used_twice(right: Made, rng: random.Random) -> Attempt:
    given, target = asked(right.question.text)
    return right.question, _making(target, lambda: [*given, rng.choice(given)], rng)


def _making(target: int, drawn: Callable[[], list[int]], rng: random.Random) -> ast.expr:
    """Over other numbers; often the target all the same, so that the value alone does not tell."""
    for _ in range(30):
        result, expression = _combined(drawn(), rng)
        if result == target:
            break
    return expression


def _target_alone(right: Made, rng: random.Random) -> Attempt:
    return right.question, ast.Constant(asked(right.question.text)[1])


WRONG = (_other_value, _other_value, _other_target, _missing_number, _used_twice, _target_alone, *[_wrong_number] * 4)
"""How answers go wrong. Many use a number that was not given, as a policy that is paid by votes comes to do: the value
is right then, and a judge that only calculates approves it."""
SIGNS: tuple[dict[str, str], ...] = ({}, {"*": "\\times", "/": "\\div"}, {"*": "×", "/": "÷"})
"""How models write the same."""


def _wrong(right: Made, rng: random.Random, kinds: Sequence[Kind], targets: range) -> Attempt:
    for _ in range(TRIES):
        question, expression = rng.choice(kinds)(right, rng)
        if asked(question.text)[1] in targets and not check(question, ast.unparse(expression)):
            return question, expression
    raise ConfigError(f"task countdown: nothing wrong can be said to {right.question.text!r}; use larger numbers")


def _written(expression: ast.expr, rng: random.Random) -> str:
    text = ast.unparse(expression)
    for sign, other in rng.choice(SIGNS).items():
        text = text.replace(sign, other)
    return text if rng.random() < 0.75 or "\\" in text else text.replace(" ", "")


def exercises(seed: int, settings: CountdownSettings = CountdownSettings()) -> Iterator[Exercise]:
    """One right and one wrong answer of each two, all drawn and written in one way; `= target` stands as often behind
    either."""
    rng = random.Random(f"{seed}/exercises")
    for number, is_right in enumerate(halves(rng)):
        right = made(f"{seed}/exercises", "train", number, settings)
        question, expression = right.question, right.expression
        if not is_right:
            question, expression = _wrong(right, rng, WRONG, settings.targets)
        answer = _written(expression, rng)
        if rng.random() < 0.25:
            answer += f" = {asked(question.text)[1]}"
        assert check(question, answer) == is_right
        yield Exercise(question, answer, is_right, kept(question, answer))


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    settings = spec.fill(CountdownSettings)

    def again(question: Question) -> Made:
        split, _, number = question.id.rpartition("-")
        return made(seed, split, int(number), settings)

    def near_miss(question: Question, number: int) -> str:
        rng = random.Random(f"{question.text}/{number}")
        return ast.unparse(_wrong(again(question), rng, [_other_value], settings.targets)[1])

    def solution(question: Question) -> str:
        """A short search: two tries that come to something else, and then the expression."""
        target, right = asked(question.text)[1], ast.unparse(again(question).expression)
        tries = [near_miss(question, number) for number in (5, 6)]
        lines = [f"{tried} = {value(ast.parse(tried, mode='eval').body)}, not {target}." for tried in tries]
        return "\n".join([*lines, f"{right} = {target}.", f"The answer is \\boxed{{{right}}}."])

    return Task(
        spec.label,
        lambda i: made(seed, "train", i, settings).question,
        # With few targets there may be fewer questions than asked for.
        distinct((made(seed, "held_out", i, settings).question for i in range(10 * held_out)), held_out),
        equal,
        extract,
        solution,
        near_miss,
        check=check,
        exercises=lambda seed: exercises(seed, settings),
        shown=shown,
        rules=rules,
    )
