"""Any file of questions: `questions.jsonl`, with `question=FIELD,answer=FIELD,grader=NAME` where its fields have other
names.

Without answers and without a grader of one's own it is open-ended, and so is a text file with one prompt per line. Rows
may have two `sides` to argue for; the answer is then one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from moot.errors import ConfigError
from moot.tasks.graders import grading
from moot.tasks.rows import Raw, Row, convert, field, read
from moot.tasks.sets import fixed_set, warn_once
from moot.tasks.spec import Spec
from moot.tasks.task import Task
from moot.tasks.two_sided import with_sides_of

QUESTION = ("question", "problem", "prompt")


@dataclass(frozen=True)
class FileSettings:
    question: str = ""
    """The field with the question; question, problem or prompt if not given."""
    answer: str = ""
    """The field with the right answer; answer if not given. What stands after #### counts, where there is such a
    mark."""
    solution: str = "solution"
    """The field with a worked solution, if there is one."""
    grader: str = "exact"
    """exact, number, text, choice, math, or path.py:function of (question, answer)."""
    equal: str = ""
    """When two answers are the same: one of these names, or path.py:function of two answers. The grader's own way if
    not given."""
    test: str = ""
    """Another file, with the test split."""
    held_out: str = ""
    """validation: a slice of the file. test: the test file, for the last measurement."""
    trusted: bool = True
    """Of labels that `moot label` wrote, only those it trusts."""


def row(raw: Raw, where: str, chosen: FileSettings, labelled: bool, sided: bool) -> Row:
    made = _row(raw, where, chosen, labelled)
    return with_sides_of(made, raw, where) if sided else made


def _row(raw: Raw, where: str, chosen: FileSettings, labelled: bool) -> Row:
    question = field(raw, where, *([chosen.question] if chosen.question else QUESTION))
    if not labelled:
        return Row(question, None, str(raw.get(chosen.solution) or ""))
    worked, marker, answer = field(raw, where, chosen.answer or "answer").rpartition("####")
    answer = answer.strip()
    if marker:
        return Row(question, answer, f"{worked.strip()}\nThe answer is \\boxed{{{answer}}}.")
    return Row(question, answer, str(raw.get(chosen.solution) or ""))


def check_fields(spec: Spec, chosen: FileSettings, where: str, first: Raw) -> None:
    """Refuses a file whose first row has no question, and says how to name its fields."""
    if chosen.question or any(name in first for name in QUESTION):
        return
    if spec.name.endswith(".csv"):
        wanted = f"the first line must name the columns, one of them {' or '.join(QUESTION)}"
        raise ConfigError(
            f"{spec.name}: {wanted}; it is {','.join(first)[:80]!r}; put such a line there, or name yours, as in "
            f"{spec.name}:question=COLUMN"
        )
    names = [f"{ours}={theirs}" for ours, theirs in zip(("question", "answer"), first, strict=False)]
    told = f"needs the field {' or '.join(QUESTION)}; it has {', '.join(first) or 'none'}"
    raise ConfigError(f"{where}: {told}" + (f"; name yours, as in {spec.name}:{','.join(names)}" if names else ""))


def is_label(raw: Raw) -> bool:
    """Whether `moot label` wrote the row."""
    return raw.keys() >= {"answer", "share", "confidence", "trusted"}


def is_trusted(raw: Raw) -> bool:
    return str(raw["trusted"]).lower() == "true"


def _trusted(rows: list[tuple[str, Raw]], file: str, notes: list[str]) -> list[tuple[str, Raw]]:
    kept = [(where, raw) for where, raw in rows if not is_label(raw) or is_trusted(raw)]
    if left := len(rows) - len(kept):
        if not kept:
            raise ConfigError(
                f"{file}: no label is trusted; label with a lower --threshold, or take all: {file}:trusted=no"
            )
        notes.append(
            f"{left} of the {len(rows)} labels of {file} are not trusted and left out; trusted=no takes them too"
        )
        warn_once(notes[-1])
    return kept


def task(spec: Spec, seed: int = 0, held_out: int = 64) -> Task:
    spec.no_words()
    chosen = spec.fill(FileSettings)
    raws = {name: read(Path(file)) for name, file in {"train": spec.name, "test": chosen.test}.items() if file}
    for name, rows in raws.items():
        if not rows:
            raise ConfigError(f"{spec.name if name == 'train' else chosen.test} holds no questions")
    check_fields(spec, chosen, *raws["train"][0])
    notes: list[str] = []
    if chosen.trusted:
        raws = {
            name: _trusted(rows, spec.name if name == "train" else chosen.test, notes) for name, rows in raws.items()
        }
    if any(is_label(raw) for _, raw in raws["train"]):
        notes.append(f"the answers of {spec.name} are labels, so right means: agrees with the label")
        if chosen.held_out != "test":
            notes[-1] += f"; {spec.name}:test=FILE,held_out=test measures by known answers"
        warn_once(notes[-1])
    # One answer is enough to expect the rest of them: a file with a misspelled field must not pass for prompts.
    labelled = bool(chosen.answer) or any("answer" in raw for rows in raws.values() for _, raw in rows)
    sided = any("sides" in raw for rows in raws.values() for _, raw in rows)
    make = partial(row, chosen=chosen, labelled=labelled, sided=sided)
    splits: dict[str, Callable[[], list[Row]]] = {
        name: partial(list, convert(rows, make)) for name, rows in raws.items()
    }
    graded = grading(chosen.grader, chosen.equal)
    open_ended = not labelled and graded.check is None
    made = fixed_set(Path(spec.name).stem, graded, splits, chosen.held_out, seed, held_out, open_ended)
    made = replace(made, comparable=not open_ended or spec.names_grader)
    fields = {name for rows in raws.values() for _, raw in rows for name in raw}
    others = sorted(fields - {chosen.question, "sides", *QUESTION})
    if not open_ended or not others:
        return replace(made, notes=(*made.notes, *notes))
    note = f"no row of {spec.name} has the field answer, so nothing is graded; if {' or '.join(others[:5])} is the "
    note += f"answer, name it as in {spec.name}:answer={others[0]}"
    logging.getLogger("moot").warning(note)
    return replace(made, notes=(*made.notes, *notes, note))
