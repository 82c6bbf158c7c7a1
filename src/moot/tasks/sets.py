"""Sets of fixed size: what is trained on, what is held out, and in which order questions come.

A published test split is for the last measurement of a result. Settings are chosen on a validation slice of the
training split. Which questions are in the slice is fixed by their text alone: whatever the seed and however many are
asked for, a question that one run was measured on was never trained on by another.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.tasks.graders import Grading, grading
from moot.tasks.rows import Hub, MakeRow, Row, convert, load
from moot.tasks.spec import Spec
from moot.tasks.task import Task
from moot.tasks.two_sided import instruction as either
from moot.tasks.two_sided import seated

Splits = Mapping[str, Callable[[], list[Row]]]
SLICE = 500
"""Most questions of a validation slice; a fifth of a small set."""


@dataclass(frozen=True)
class SetSettings:
    """What can be set of every published set."""

    train: str = ""
    """A file with the training split, instead of the hub."""
    test: str = ""
    """A file with the test split."""
    held_out: str = ""
    """validation: a slice of the training split, the default where there is one. test: for the last measurement."""
    grader: str = ""
    """Another grader than the set's own."""
    equal: str = ""
    """When two answers are the same, where the grader is not to decide that as well."""


def normal(text: str) -> str:
    """Questions that differ only in white space and case are one question."""
    return " ".join(text.split()).casefold()


@cache
def warn_once(text: str) -> None:
    """A command reads its file several times, and its user once."""
    logging.getLogger("moot").warning(text)


def fixed_set(
    name: str, grading: Grading, splits: Splits, use: str, seed: int, held_out: int, open_ended: bool = False
) -> Task:
    """`splits` are read when they are needed: training must not fetch a test split."""
    if use not in ("", "validation", "test"):
        raise ConfigError(f"task {name}: held_out must be validation or test, got {use!r}")
    use = use or ("validation" if "train" in splits else "test")
    if use == "test" and "test" not in splits:
        raise ConfigError(f"task {name}: held_out=test needs a test split; name its file with test=FILE")
    if use == "validation" and "train" not in splits:
        raise ConfigError(f"task {name}: held_out=validation needs a training split; name its file with train=FILE")
    notes: list[str] = []
    worked: dict[str, str] = {}

    def questions(split: str) -> list[Question]:
        rows = splits[split]()
        kept = [(i, row) for i, row in enumerate(rows, 1) if row.answer != ""]
        if len(kept) < len(rows):
            left_out = f"{len(rows) - len(kept)} of the {len(rows)} {split} questions of {name}"
            notes.append(f"{left_out} have no answer and are left out")
            warn_once(notes[-1])
        if not kept:
            check = "check the file and the subjects and levels asked for"
            raise ConfigError(f"task {name}: the {split} split holds no questions; {check}")
        worked.update({f"{split}-{i}": row.solution for i, row in kept if row.solution})
        usual = "" if open_ended else grading.instruction

        def question(i: int, row: Row) -> Question:
            told = either(row.sides, usual) if row.sides and usual else usual
            return Question(row.question, row.answer, id=f"{split}-{i}", instruction=told, sides=row.sides)

        return [question(i, row) for i, row in kept]

    training = questions("train") if "train" in splits else []
    kept, apart = _slice(training)
    test = questions("test") if use == "test" else []
    pool = test if use == "test" else apart
    if use == "test":
        kept = training
    chosen, keyed = list(pool), all(question.answer is not None for question in [*training, *test])
    random.Random(f"{seed}/held out").shuffle(chosen)

    def all_splits() -> Mapping[str, Sequence[Question]]:
        tests = {"test": test or questions("test")} if "test" in splits else {}
        return {**({"train": training} if training else {}), **tests}

    def solution(question: Question) -> str:
        plain = "" if question.answer is None else f"The answer is \\boxed{{{question.answer}}}."
        return worked.get(question.id) or plain

    # With a checker a worked solution says what is right, where no answer is known.
    taught = keyed or (grading.check is not None and all(question.id in worked for question in [*training, *test]))

    return Task(
        name,
        _stream(name, kept, seed),
        [seated(question, number) for number, question in enumerate(chosen[:held_out])],
        grading.equal,
        grading.extract,
        solution if taught else None,
        (lambda question, number: grading.near_miss(question.answer or "", number)) if keyed else None,
        open_ended,
        all_splits,
        tuple(notes),
        kept,
        grading.check,
    )


def published_set(
    spec: Spec, chosen: SetSettings, hub: Mapping[str, Hub], row: MakeRow, grader: str, seed: int, held_out: int,
    open_ended: bool = False,
) -> Task:  # fmt: skip
    """A set from the hub, or from files: where one is given, it is the whole set. `row` makes questions of rows."""
    named = {"train": chosen.train, "test": chosen.test}
    files = {name: file for name, file in named.items() if file} or dict.fromkeys(hub, "")

    def rows(name: str) -> list[Row]:
        split = hub.get(name, hub["train"])  # of no matter where there is a file
        return convert(load(files[name], spec.name, split, list(hub)), row)

    splits = {name: partial(rows, name) for name in files}
    graded = grading(chosen.grader or grader, chosen.equal)
    made = fixed_set(spec.label, graded, splits, chosen.held_out, seed, held_out, open_ended)
    return replace(made, comparable=not open_ended or spec.names_grader)


def without(task: Task, held_out: Sequence[Question], seed: int) -> Task:
    """The same task, of which nothing is trained on that another one holds out: slices need not be the same."""
    apart = {normal(question.text) for question in held_out}
    kept = [question for question in task.training if normal(question.text) not in apart]
    if len(kept) == len(task.training):
        return task
    note = f"{len(task.training) - len(kept)} questions of {task.name} are held out elsewhere and not trained on"
    logging.getLogger("moot").warning(note)
    return replace(task, train=_stream(task.name, kept, seed), training=kept, notes=(*task.notes, note))


def _slice(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """To train on, and to hold out. Copies of a question have one hash, and so stay on one side."""
    ranks = [hashlib.sha256(normal(question.text).encode("utf-8", "surrogatepass")).digest() for question in questions]
    size = min(SLICE, len(questions) // 5)
    last = sorted(ranks)[size - 1] if size else b""
    kept = [question for question, rank in zip(questions, ranks, strict=True) if rank > last]
    return kept, [question for question, rank in zip(questions, ranks, strict=True) if rank <= last]


def _stream(name: str, questions: Sequence[Question], seed: int) -> Callable[[int], Question]:
    @lru_cache(maxsize=4)
    def order(epoch: int) -> list[int]:
        shuffled = list(range(len(questions)))
        random.Random(f"{seed}/{epoch}").shuffle(shuffled)
        return shuffled

    def pick(number: int) -> Question:
        if not questions:
            way_out = f"train on another task or on a file of questions, {name}:train=FILE"
            raise ConfigError(f"task {name} has only a test split: evaluate on it, and {way_out}")
        epoch, i = divmod(number, len(questions))
        return seated(questions[order(epoch)[i]], number)

    return pick
