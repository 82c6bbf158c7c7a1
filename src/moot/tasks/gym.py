"""reasoning-gym: a hundred generators of questions, each with its own difficulty settings.
`reasoning-gym:chain_sum,max_digits=3`.

Right is what the generator itself scores with 1, or what equals the answer it gives: many questions have several right
answers, and lower scores are part of the credit for any text that contains the answer. The same are two answers with
the same text.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import inspect
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, get_args, get_origin, get_type_hints

from moot.debate.typed_fields import READ
from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks.answers import Checker
from moot.tasks.graders import grading, text
from moot.tasks.math_pool import Pool
from moot.tasks.sets import normal
from moot.tasks.spec import Spec
from moot.tasks.task import Task, distinct

SIZE = 500
"""Of a dataset of the package; many are strung together, because some make all their items at once."""
KEPT = 300
"""Training questions of each, where three quarters are expected to be on that side."""
LONGEST = 2000
"""Characters of an answer that is scored at all."""
_EVALUATES = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(")
_QUOTES = re.compile(r"[\"'\\\\`@{}]")
_NAME = re.compile(r"[^\W\d]\w*")
_FUNCTIONS = {
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt", "abs", "Abs", "pi",
}  # fmt: skip
_APART = 10_000_000
"""Item i of seed s is often item i + 1 of seed s - 1: seeds of ours must lie further apart than any run is long."""


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    if len(spec.words) != 1:
        raise ConfigError(f"task {spec.text!r}: name one generator, as in reasoning-gym:chain_sum,max_digits=3")
    settings = dict(spec.settings or {})
    own = "grader" in settings
    graded = grading(settings.pop("grader", "text"), settings.pop("equal", ""))
    make, given = _maker(spec, settings)

    def questions(split: str, dataset: int) -> Iterator[Question]:
        """The side of a question follows from its text: no seed trains on what another was measured on."""
        start = (2 * seed + (split == "held_out")) * _APART + dataset * SIZE
        items = make(start)
        for i in range(SIZE):
            asked, answer = str(items[i]["question"]), items[i]["answer"]
            known = None if answer is None else str(answer).strip()
            if known is None and own and graded.check is None:
                raise ConfigError(f"task {spec.text!r} gives no single right answer to compare with; leave grader out")
            first = hashlib.sha256(normal(asked).encode("utf-8", "surrogatepass")).digest()[0]
            if (first < 64) == (split == "held_out"):
                yield Question(asked, known, id=f"{split}-{start + i}", instruction=graded.instruction)

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

    datasets = range(1 + held_out // 50)
    tests = distinct((asked for dataset in datasets for asked in questions("held_out", dataset)), held_out)
    keyed = all(asked.answer is not None for asked in tests)
    return Task(
        spec.label,
        train,
        tests,
        graded.equal,
        graded.extract,
        (lambda asked: f"The answer is \\boxed{{{asked.answer}}}.") if keyed else None,
        (lambda asked, number: graded.near_miss(asked.answer or "", number)) if keyed else None,
        check=graded.check if own else _scorer(spec.words[0], given, make),
    )


@cache
def _pool() -> Pool:
    return Pool(about="gym")


def _scorer(name: str, settings: dict[str, Any], make: Callable[[int], Any]) -> Checker:
    """By the generator's own score, in a process that may be killed: some calculate what an answer says."""
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

    kind = DATASETS[name][0]
    scores = kind.score_answer is not ProceduralDataset.score_answer
    evaluates = _EVALUATES.search(inspect.getsource(sys.modules[kind.__module__])) is not None
    made = lru_cache(maxsize=8)(make)

    @lru_cache(maxsize=5000)  # agents repeat themselves and each other
    def scored(number: int, answer: str) -> bool:
        item = made(number // SIZE * SIZE)[number % SIZE]
        asked = base64.b64encode(pickle.dumps((name, settings, item))).decode("ascii")
        return _pool().compare(answer, asked, _pool().seconds).outcome == "equal"

    def check(question: Question, answer: str) -> bool:
        if question.answer is not None and text(answer, question.answer):
            return True
        if not scores or len(answer) > LONGEST or (evaluates and not harmless(answer)):
            return False
        return scored(int(question.id.rpartition("-")[2]), answer)

    return check


def harmless(answer: str) -> bool:
    """Whether Python may calculate it: a model writes it, and some generators hand it to `eval`. Where there are
    parentheses, which a call needs, there are no strings, and no names but variables and functions of a formula."""
    if "(" not in answer:
        return "__" not in answer
    return not _QUOTES.search(answer) and all(len(name) == 1 or name in _FUNCTIONS for name in _NAME.findall(answer))


def _maker(spec: Spec, settings: dict[str, str]) -> tuple[Callable[[int], Any], dict[str, Any]]:
    """From a seed to a dataset of the package, once its name and settings are known to be good; and the settings."""
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
    return make, given


def _value(text: str, kind: Any, where: str) -> Any:
    """A setting of its dataclass. Lists, which some generators take, cannot be spelled here."""
    kinds = [kind] if get_origin(kind) in (list, tuple, dict, set) else [*get_args(kind), kind]
    for plain_kind, (read, _) in READ.items():
        if plain_kind in kinds:
            try:
                return read(text)
            except (ValueError, KeyError):
                break
    if text in kinds:  # one of several words
        return text
    raise ConfigError(f"{where} must be {getattr(kind, '__name__', kind)}, got {text!r}")
