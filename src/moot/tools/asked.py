"""Records that `moot ask` and `moot label` wrote, read again: whose debate it was, by which rules, how answers were
compared. Without numpy, for `moot score`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moot.debate.protocols import preset
from moot.debate.rules import Rules
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.runs.record import with_turns
from moot.tasks.answers import exact
from moot.tasks.graders import GRADERS, Grading, grading

BRIEF_BOX = "Put the final answer, as short as possible, in \\boxed{}."
IN_BOX = Grading(exact, lambda solution: None, BRIEF_BOX)
"""Where no grader is named: in prose the last number is any number, so an answer stands in a box or nowhere."""


def asked_grading(settings: Mapping[str, Any]) -> Grading:
    """How the answers of a record were compared. Code that a file names is not run on its word."""
    name, equal = (str(settings.get(key) or "") for key in ("grader", "equal"))
    known = [named if named in GRADERS else "" for named in (name, equal)]
    return grading(known[0] or "exact", known[1]) if any(known) else IN_BOX


def asked_rules(settings: Mapping[str, Any]) -> Rules:
    """The rules by which a question is debated, by the settings that stand beside its answer."""
    rules, temperature = preset(settings["protocol"]).rules, settings.get("temperature")
    return replace(
        rules,
        closing_ballot=bool(settings.get("closing_ballot")),
        sections=settings.get("sections", "sampled"),
        personas=rules.personas and settings.get("personas", True),
        temperature=1.0 if temperature is None else temperature,
    )


def asked_record(row: Any) -> Mapping[str, Any] | None:
    """What `moot ask` or `moot label` wrote, in a line of a file; None for a line of something else."""
    row = row.get("debate", row) if isinstance(row, dict) else None
    return row if isinstance(row, dict) and {"known_answer", "settings", "turns"} <= row.keys() else None


def asked_debate(record: Mapping[str, Any]) -> tuple[Debate, Scoring]:
    """The debate of such a record, under the rules that were asked for, and how its votes count."""
    settings = record["settings"]
    question = Question(
        str(record["question"]), record["known_answer"], str(record["number"]), str(settings["instruction"])
    )
    empty = Debate(question, int(record["num_agents"]), int(record["max_rounds"]), asked_rules(settings))
    return with_turns(empty, record["turns"]), preset(settings["protocol"]).scoring
