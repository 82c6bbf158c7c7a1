"""Answers that were given alone, as a debate of one round in which nobody votes."""

from __future__ import annotations

from collections.abc import Sequence

from moot.debate.parsing import last_think_end
from moot.debate.state import Debate
from moot.debate.types import Parsed, Question, Turn


def plain_answers(question: Question, texts: Sequence[str]) -> Debate:
    """Answers given alone, as a debate of one round in which nobody votes: so they are graded and counted like any
    other."""
    return Debate(
        question, len(texts), 1, turns=tuple(Turn(1, i, text, _solution(text)) for i, text in enumerate(texts))
    )


def _solution(text: str) -> Parsed:
    """What follows the thinking; all of it where the thinking never ended."""
    return Parsed({"solution": text[last_think_end(text) :]}, {"solution": (0, len(text))})
