"""reasoning-gym: a hundred generators of questions, each with its own difficulty settings. `reasoning-gym:chain_sum,max_digits=3`.

Graded by exact match: its own score gives part of the credit to any text that contains the answer.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any, get_args

from moot.debate.types import ConfigError, Question
from moot.tasks.graders import BOXED, grading
from moot.tasks.sets import normal
from moot.tasks.spec import Spec
from moot.tasks.task import Task

TRIES = 1000
_STRIDE = 10_000_019
"""Item i of seed s is item i + 1 of seed s - 1: seeds of ours must lie further apart than any run is long."""


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    if len(spec.words) != 1:
        raise ConfigError(f"task {spec.text!r}: name one generator, as in reasoning-gym:chain_sum,max_digits=3")
    settings = dict(spec.settings or {})
    graded = grading(settings.pop("grader", "text"))
    items = _generator(spec, settings, (seed + 1) * _STRIDE * 10)

    def question(split: str, number: int) -> Question | None:
        """Which side a question is on is a matter of its text, so no seed ever trains on what another was measured on."""
        for attempt in range(TRIES):
            index = number + attempt * _STRIDE % (_STRIDE * 9)
            item = items(index)
            text, answer = str(item["question"]), item["answer"]
            if answer is None:
                raise ConfigError(f"task {spec.text!r} gives no single right answer, so nothing can be graded; choose another generator")
            rank = hashlib.sha256(normal(text).encode("utf-8", "surrogatepass")).digest()[0]
            if (rank < 32) == (split == "held_out"):
                return Question(text, str(answer).strip(), id=f"{split}-{number}", instruction=graded.instruction or BOXED)
        return None

    def train(number: int) -> Question:
        if (found := question("train", number)) is None:
            raise ConfigError(f"task {spec.text!r} has too few different questions; make it harder")
        return found

    tests: dict[str, Question] = {}
    for number in range(4 * held_out):
        if len(tests) < held_out and (found := question("held_out", _STRIDE // 2 + number)) is not None:
            tests.setdefault(found.text, found)
    return Task(
        f"reasoning-gym:{spec.words[0]}",
        train,
        tuple(tests.values()),
        graded.equal,
        graded.extract,
        lambda asked: f"The answer is \\boxed{{{asked.answer}}}.",
        lambda asked, number: graded.near_miss(asked.answer or "", number),
    )


def _generator(spec: Spec, settings: dict[str, str], seed: int) -> Any:
    """A function from a number to an item."""
    try:
        import reasoning_gym  # type: ignore[import-not-found, unused-ignore]
        from reasoning_gym.factory import DATASETS  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ConfigError(f"task {spec.text!r} needs the package reasoning-gym: pip install 'moot[data]'") from None
    name = spec.words[0]
    if name not in DATASETS:
        import difflib

        close = ", ".join(difflib.get_close_matches(name, DATASETS, 3)) or f"{', '.join(sorted(DATASETS)[:5])}, …"
        raise ConfigError(f"task {spec.text!r}: reasoning-gym has no generator {name!r}; there are {close}")
    known = {f.name: f for f in fields(DATASETS[name][1]) if f.name not in ("seed", "size")}
    if unknown := settings.keys() - known.keys():
        raise ConfigError(f"task {spec.text!r}: there is no setting {min(unknown)!r}; there are {', '.join(known)}")
    given = {key: _value(value, known[key].type, f"task {spec.text!r}: {key}") for key, value in settings.items()}
    try:
        made = reasoning_gym.create_dataset(name, seed=seed, size=2**31 - 1, **given)
    except Exception as error:  # its own checks are assertions
        raise ConfigError(f"task {spec.text!r}: {error or type(error).__name__}") from None
    return lambda number: made[number]


def _value(text: str, kind: Any, where: str) -> Any:
    """A setting of its dataclass; several values, as for operators, are written with + between them."""
    kinds = {kind, *get_args(kind)} - {type(None)}
    try:
        if bool in kinds:
            return {"yes": True, "true": True, "no": False, "false": False}[text.lower()]
        if int in kinds:
            return int(text)
        if float in kinds:
            return float(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{where} must be {getattr(kind, '__name__', kind)}, got {text!r}") from None
    return text
