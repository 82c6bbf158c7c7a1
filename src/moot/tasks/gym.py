"""reasoning-gym: a hundred generators of questions, each with its own difficulty settings. `reasoning-gym:chain_sum,max_digits=3`.

Graded by exact match: its own score gives part of the credit to any text that contains the answer.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, get_args, get_origin, get_type_hints

from moot.debate.types import ConfigError, Question
from moot.tasks.graders import grading
from moot.tasks.sets import normal
from moot.tasks.spec import Spec
from moot.tasks.task import Task

SIZE = 500
"""Of a dataset of the package; many are strung together, because some make all their items at once."""
KEPT = 300
"""Training questions of each, where three quarters are expected to be on that side."""
_APART = 10_000_000
"""Item i of seed s is often item i + 1 of seed s - 1: seeds of ours must lie further apart than any run is long."""


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    if len(spec.words) != 1:
        raise ConfigError(f"task {spec.text!r}: name one generator, as in reasoning-gym:chain_sum,max_digits=3")
    settings = dict(spec.settings or {})
    graded = grading(settings.pop("grader", "text"))
    make = _maker(spec, settings)

    def questions(split: str, dataset: int) -> Iterator[Question]:
        """Which side a question is on is a matter of its text, so no seed ever trains on what another was measured on."""
        start = (2 * seed + (split == "held_out")) * _APART + dataset * SIZE
        items = make(start)
        for i in range(SIZE):
            text, answer = str(items[i]["question"]), items[i]["answer"]
            if answer is None:
                raise ConfigError(f"task {spec.text!r} gives no single right answer, so nothing can be graded; choose another generator")
            first = hashlib.sha256(normal(text).encode("utf-8", "surrogatepass")).digest()[0]
            if (first < 64) == (split == "held_out"):
                yield Question(text, str(answer).strip(), id=f"{split}-{start + i}", instruction=graded.instruction)

    @lru_cache(maxsize=4)
    def opened(dataset: int) -> tuple[list[Question], Iterator[Question]]:
        return [], questions("train", dataset)

    def train(number: int) -> Question:
        """Items are made when they are first asked for, which in training is one after another."""
        dataset, i = divmod(number, KEPT)
        questions_so_far, coming = opened(dataset)
        while len(questions_so_far) <= i:
            if (following := next(coming, None)) is None:
                break
            questions_so_far.append(following)
        if not questions_so_far:
            raise ConfigError(f"task {spec.text!r} has too few different questions; make it harder")
        return questions_so_far[i % len(questions_so_far)]

    tests: dict[str, Question] = {}
    for dataset in range(1 + held_out // 50):
        for asked in questions("held_out", dataset):
            if len(tests) == held_out:
                break
            tests.setdefault(asked.text, asked)
    return Task(
        spec.label,
        train,
        tuple(tests.values()),
        graded.equal,
        graded.extract,
        lambda asked: f"The answer is \\boxed{{{asked.answer}}}.",
        lambda asked, number: graded.near_miss(asked.answer or "", number),
    )


def _maker(spec: Spec, settings: dict[str, str]) -> Callable[[int], Any]:
    """From a seed to a dataset of the package, once its name and settings are known to be good."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise ConfigError(f"task {spec.text!r} needs the package reasoning-gym: pip install 'moot[data]'") from None
    name = spec.words[0]
    if name not in DATASETS:
        close = ", ".join(difflib.get_close_matches(name, DATASETS, 3)) or f"{', '.join(sorted(DATASETS)[:5])}, …"
        raise ConfigError(f"task {spec.text!r}: reasoning-gym has no generator {name!r}; there are {close}")
    kinds = {name: kind for name, kind in get_type_hints(DATASETS[name][1]).items() if name not in ("seed", "size")}
    if unknown := settings.keys() - kinds.keys():
        raise ConfigError(f"task {spec.text!r}: there is no setting {min(unknown)!r}; there are {', '.join(kinds)}")
    given = {key: _value(value, kinds[key], f"task {spec.text!r}: {key}") for key, value in settings.items()}

    def make(seed: int) -> Any:
        try:
            return reasoning_gym.create_dataset(name, seed=seed, size=SIZE, **given)
        except Exception as error:  # its own checks are assertions
            raise ConfigError(f"task {spec.text!r}: {error or type(error).__name__}") from None

    make(0)
    return make


def _value(text: str, kind: Any, where: str) -> Any:
    """A setting of its dataclass. Lists, which some generators take, cannot be spelled here."""
    kinds = [kind] if get_origin(kind) in (list, tuple, dict, set) else [*get_args(kind), kind]
    for plain_kind, read in _READ.items():
        if plain_kind in kinds:
            try:
                return read(text)
            except (ValueError, KeyError):
                break
    if text in kinds:  # one of several words
        return text
    raise ConfigError(f"{where} must be {getattr(kind, '__name__', kind)}, got {text!r}")


_READ: dict[type, Callable[[str], Any]] = {
    bool: lambda text: {"yes": True, "true": True, "no": False, "false": False}[text.lower()],
    int: int,
    float: float,
    str: str,
}
