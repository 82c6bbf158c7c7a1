"""Questions without answers to labelled rows: what was read, what each row is given, and when to trust it. The part of
`moot label` that needs no terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.evaluate.figures import Bin
from moot.evaluate.store import question_key
from moot.tasks.files import QUESTION, FileSettings, check_fields
from moot.tasks.files import row as read_row
from moot.tasks.rows import Raw, read
from moot.tasks.sets import normal
from moot.tasks.spec import Spec
from moot.tools.ask import GroupAnswer
from moot.util.disk import write_atomically
from moot.util.files import write_lines
from moot.util.intervals import wilson

SUFFIXES = (".jsonl", ".json", ".csv", ".txt")
EVEN = 1e-9
"""Confidences that differ by less are the same."""


# What is asked


@dataclass(frozen=True)
class Sheet:
    """A file of questions."""

    rows: tuple[Raw, ...]
    texts: tuple[str, ...]
    """The question of each row."""
    known: Mapping[str, str]
    """By question, as `normal` writes it: its answer, where that is known."""
    answer_field: str
    """Where rows have the answer that is known."""
    notes: tuple[str, ...] = ()

    def questions(self, instruction: str) -> list[Question]:
        """Each question once. It goes by its words, so that a file may grow and change its order."""
        first = {normal(text): text for text in reversed(self.texts)}
        asked = {normal(text): first[normal(text)] for text in self.texts}
        made = (Question(text, self.known.get(key), instruction=instruction) for key, text in asked.items())
        return [Question(question.text, question.answer, question_key(question), instruction) for question in made]


def read_sheet(text: str, known: str | None = None) -> Sheet:
    """`questions.jsonl`, or `FILE:question=FIELD,answer=FIELD`; `known` is another such file, with answers."""
    spec, chosen, rows = _rows(text)
    texts, answers, own = [], dict[str, str](), 0
    name = chosen.answer or "answer"
    if chosen.answer and not any(chosen.answer in raw for _, raw in rows):
        raise ConfigError(f"{spec.name}: no row has the field {chosen.answer!r}; it has {', '.join(rows[0][1])}")
    for where, raw in rows:
        question, answer = _question(raw, where, chosen)
        texts.append(question)
        if answer:
            own += 1
            _learn(answers, question, answer, where)
    notes = []
    if repeated := len(texts) - len({normal(text) for text in texts}):
        notes.append(f"{repeated} of {len(texts)} rows repeat a question; it is asked once, and they share its label")
    if known is not None:
        notes.append(_add_known(known, text, texts, answers))
    return Sheet(tuple(raw for _, raw in rows), tuple(texts), answers, name, tuple(notes))


def _rows(text: str) -> tuple[Spec, FileSettings, list[tuple[str, Raw]]]:
    spec = Spec.read(text)
    spec.no_words()
    if not spec.name.endswith(SUFFIXES):
        raise ConfigError(f"{spec.name} must be a file that ends in {', '.join(SUFFIXES)}; rename it")
    if not Path(spec.name).exists():
        raise ConfigError(f"{spec.name}: no such file; check the path")
    chosen = spec.fill(FileSettings)
    rows = read(Path(spec.name))
    if not rows:
        raise ConfigError(f"{spec.name} holds no questions; write one per line, or one object per line")
    check_fields(spec, chosen, *rows[0])
    return spec, chosen, rows


def _question(raw: Raw, where: str, chosen: FileSettings) -> tuple[str, str | None]:
    labelled = (chosen.answer or "answer") in raw
    made = read_row(raw, where, chosen, labelled, sided=False)
    if not made.question:
        raise ConfigError(f"{where}: the question is empty; write one, or take the row out")
    return made.question, made.answer or None


def _learn(answers: dict[str, str], question: str, answer: str, where: str) -> None:
    before = answers.setdefault(normal(question), answer)
    if before != answer:
        raise ConfigError(
            f"{where}: this question stands there before with the answer {before[:60]!r}, and here with "
            f"{answer[:60]!r}; keep one"
        )


def _add_known(known: str, file: str, texts: Sequence[str], answers: dict[str, str]) -> str:
    spec, chosen, rows = _rows(known)
    asked, given = {normal(text) for text in texts}, dict[str, str]()
    for where, raw in rows:
        question, answer = _question(raw, where, chosen)
        if answer:
            _learn(given, question, answer, where)
    if not given:
        raise ConfigError(f"--known {spec.name}: no row has an answer; name its field, as in {spec.name}:answer=FIELD")
    shared = asked & given.keys()
    if not shared:
        raise ConfigError(
            f"--known {spec.name} shares no question with {file}; put the {len(given)} questions whose answers are "
            "known into the file of questions too"
        )
    for question in shared:
        _learn(answers, question, given[question], f"--known {spec.name}")
    return f"{len(shared)} of the {len(given)} known answers of {spec.name} are to questions of {file}"


# What a question is given


@dataclass(frozen=True)
class Label:
    """The answer that most agents give, by `equal`; where a judge scored, the one with the highest mean score."""

    answer: str | None
    share: float
    """Of all who were asked."""
    runner_up: str | None
    """The next answer by the same order."""
    runner_up_share: float
    score: float | None
    """The judge's."""
    solution: str | None
    right: bool | None
    """None where the answer is not known."""

    @property
    def confidence(self) -> float:
        """The judge's score where there is one, the share where there is none; 0 without an answer."""
        return 0.0 if self.answer is None else self.share if self.score is None else self.score

    def trusted(self, threshold: float | None) -> bool:
        return threshold is not None and self.answer is not None and self.confidence >= threshold - EVEN

    def fields(self, threshold: float | None) -> dict[str, Any]:
        return {
            "answer": self.answer,
            "share": round(self.share, 4),
            "runner_up": self.runner_up,
            "runner_up_share": round(self.runner_up_share, 4),
            "score": None if self.score is None else round(self.score, 4),
            "confidence": round(self.confidence, 4),
            "trusted": self.trusted(threshold),
            "right": self.right,
            "solution": self.solution,
        }


def label_of(group: GroupAnswer, known: bool) -> Label:
    ranked, agents = group.ranked, len(group.held)
    if not ranked:
        return Label(None, 0.0, None, 0.0, None, None, False if known else None)
    best, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    return Label(
        group.held[best],
        group.holding(best) / agents,
        None if second is None else group.held[second],
        0.0 if second is None else group.holding(second) / agents,
        group.score(best),
        group.solution,
        group.right[best] if known else None,
    )


# When to trust it


@dataclass(frozen=True)
class Kept:
    """The known rows that a threshold keeps."""

    threshold: float
    rows: int
    right: int

    @property
    def precision(self) -> float | None:
        return self.right / self.rows if self.rows else None

    def as_dict(self) -> dict[str, Any]:
        low, high = wilson(self.right, self.rows)
        return {**asdict(self), "precision": self.precision, "low": low, "high": high}


@dataclass(frozen=True)
class Calibration:
    """What confidence was worth on the rows whose answers are known."""

    known: int
    right: int
    bins: tuple[Bin, ...]
    asked: float | None
    """The precision that was asked for."""
    kept: Kept | None
    """At the threshold in use; None where none reaches what was asked for."""
    best: Kept | None
    """The threshold with the highest precision, for where none reaches it."""
    levels: tuple[Kept, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        kept = {name: value and value.as_dict() for name, value in (("kept", self.kept), ("best", self.best))}
        bins = [tenth.as_dict() for tenth in self.bins]
        return {"known": self.known, "right": self.right, "asked": self.asked, **kept, "reliability": bins}


def cautious(kept: Kept) -> float:
    """Precision as if one more row were known, and wrong: a threshold that few rows speak for must not win by luck."""
    return kept.right / (kept.rows + 1)


def calibrate(labels: Sequence[Label], precision: float | None, threshold: float) -> Calibration:
    """By the labels of which it is known whether they are right. With `precision` the lowest threshold that reaches it
    is taken, so that it keeps the most rows; otherwise `threshold` is."""
    known = [
        (label.confidence, label.right) for label in labels if label.right is not None and label.answer is not None
    ]
    levels = [_kept(known, level) for level in sorted({confidence for confidence, _ in known})]
    if precision is None:
        kept: Kept | None = _kept(known, threshold)
    else:
        kept = next((level for level in levels if cautious(level) >= precision), None)
    best = max(levels, key=cautious, default=None)
    right = sum(right for _, right in known)
    return Calibration(len(known), right, _reliability(known), precision, kept, best, tuple(levels))


def _reliability(known: Sequence[tuple[float, bool]]) -> tuple[Bin, ...]:
    """By tenths of confidence; tenths without a label are left out."""
    tenths = [[row for row in known if min(int(row[0] * 10 + EVEN), 9) == tenth] for tenth in range(10)]
    return tuple(
        Bin(sum(confidence for confidence, _ in own) / len(own), sum(right for _, right in own), len(own))
        for own in tenths
        if own
    )


def _kept(known: Sequence[tuple[float, bool]], threshold: float) -> Kept:
    right = [right for confidence, right in known if confidence >= threshold - EVEN]
    return Kept(threshold, len(right), sum(right))


# What is written


def labelled_rows(
    sheet: Sheet, labels: Mapping[str, Label], debates: Mapping[str, Mapping[str, Any]], threshold: float | None
) -> list[dict[str, Any]]:
    """Every row whose question has a label, with all its fields. One that has the name of ours is called given_NAME."""
    made = []
    for raw, text in zip(sheet.rows, sheet.texts, strict=True):
        key = normal(text)
        if (label := labels.get(key)) is None:
            continue
        ours = label.fields(threshold) | {"debate": debates[key]}
        # The others read the question from the first of these.
        stands = next((str(raw[name]).strip() for name in QUESTION if name in raw), None)
        question = {} if stands == text else {"question": text}
        taken = ours.keys() | question.keys()
        own = {f"given_{name}" if name in taken else name: value for name, value in raw.items()}
        if key in sheet.known:
            own.setdefault("given_answer", sheet.known[key])
        made.append({**question, **own, **ours})
    return made


def write_labels(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """JSON lines, with all that was said; or CSV, which has no place for that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".csv":
        write_lines(path, rows)
        return
    names = list(dict.fromkeys(name for row in rows for name in row if name != "debate"))
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, names, restval="")
    table.writeheader()
    table.writerows({name: _cell(row[name]) for name in names if name in row} for row in rows)
    write_atomically(path, text.getvalue().encode())


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
