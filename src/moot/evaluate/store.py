"""What was sampled, kept line by line as it comes, so that an evaluation that was stopped continues where it was.

A line is found again by what was asked of whom and how (`settings`, a digest), the question, and a number. Only what
was said is kept: grading is done anew, so a better grader needs no new samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moot.debate.state import Debate
from moot.debate.types import ParseFailure, Question, Turn
from moot.errors import ConfigError
from moot.runs.record import checks_of, checks_to_json, turns_to_json, with_jury, with_turns
from moot.runs.validate import check_said
from moot.tokens.played import PlayedDebate
from moot.util.files import Appended, json_lines

Record = dict[str, Any]


def question_key(question: Question) -> str:
    """By what it asks, not by its place: a larger set finds the smaller one's answers again."""
    return hashlib.sha256("\x1f".join((question.text, question.instruction, *question.sides)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SampleKey:
    """Where a record belongs."""

    settings: str
    question: str
    number: int


class AnswerStore:
    """A file of records, or, without a path, only the memory of them."""

    def __init__(self, path: Path | None = None, check: Callable[[Any], None] = check_said) -> None:
        """`check` raises for a record that cannot be used: it is sampled again."""
        self._records: dict[SampleKey, Record] = {}
        self._file = Appended(path)
        for _, record, _ in json_lines(path) if path is not None else ():
            with suppress(KeyError, TypeError, ConfigError):  # a line cut short, or the text of settings
                check(record)
                self._records[SampleKey(record["settings"], record["question"], record["number"])] = record

    def __len__(self) -> int:
        return len(self._records)

    def get(self, place: SampleKey) -> Record | None:
        return self._records.get(place)

    def add(self, place: SampleKey, record: Record) -> None:
        whole = {"settings": place.settings, "question": place.question, "number": place.number, **record}
        self._records[place] = whole
        self._file.add(whole)

    def close(self) -> None:
        self._file.close()

    def note(self, settings: str, spelled_out: Mapping[str, Any]) -> None:
        """What a digest stands for, for people who read the file."""
        self._file.add({"settings": settings, "means": dict(spelled_out)})


# A debate as a record, and back


def debate_record(played: PlayedDebate) -> Record:
    """What was said; a run's debates have more, which here is found anew."""
    tokens = played.jury_tokens + sum(turn.count for turn in played.sampled)
    jury = [{"text": turn.text, **_failure(turn)} for turn in played.debate.jury]
    record = {"asked": played.debate.question.text, "turns": turns_to_json(played, sections=False), "tokens": tokens}
    record |= {} if played.debate.checks is None else {"checks": checks_to_json(played.debate.checks)}
    return {**record, **({"jury": jury} if jury else {})}


def _failure(turn: Turn) -> dict[str, str]:
    return {"failure": turn.parsed.reason} if isinstance(turn.parsed, ParseFailure) else {}


def cut(record: Record) -> tuple[float, float]:
    """Turns (or the answer) that ended at the token limit, of all there are."""
    stops = [turn["stop"] for turn in record["turns"]] if "turns" in record else [record["stop"]]
    return float(stops.count("length")), float(len(stops))


def debate_of(record: Record, empty: Debate) -> Debate:
    """`empty` filled with what was said."""
    said = with_jury(with_turns(empty, record["turns"]), record.get("jury", ()))
    return replace(said, checks=checks_of(record))
