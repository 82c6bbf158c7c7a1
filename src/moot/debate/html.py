"""A debate as a table for notebooks: rounds as rows, agents as columns. What a model wrote is only ever text between
tags."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from moot.debate.types import ParseFailure, Turn
from moot.util.safe_text import plain

if TYPE_CHECKING:
    from moot.debate.state import Debate

_TABLE = "border-collapse:collapse;table-layout:fixed;width:100%"
_CELL = (
    "border:1px solid #8884;padding:.4em;text-align:left;vertical-align:top;white-space:pre-wrap;overflow-wrap:anywhere"
)
LONGEST = 4000
"""Characters of a section that are shown; the rest is in the debate."""


def as_html(debate: Debate) -> str:
    """No script, no link, no style sheet: one `<div>` that is safe in any page."""
    given = map(debate.position, range(debate.num_agents))
    sides = ["" if position is None else f", for: {_text(position)}" for position in given]
    heads = "".join(f'<th style="{_CELL}">Agent {agent}{side}</th>' for agent, side in enumerate(sides))
    rows = "".join(_row(debate, name, turns) for name, turns in debate.rounds.items())
    judges = "".join(f"<p><b>Outside judge {j}</b></p>{_turn(turn)}" for j, turn in enumerate(debate.jury))
    answer = "" if debate.question.answer is None else f"<p>Right answer: {_text(debate.question.answer)}</p>"
    table = (
        f'<table style="{_TABLE}"><tr><th style="{_CELL};width:5em"></th>{heads}</tr>{rows}</table>'
        if rows
        else "<p>Nobody has spoken.</p>"
    )
    return f"<div><p><b>{_text(debate.question.text)}</b></p>{answer}{table}{judges}</div>"


def _row(debate: Debate, name: str, turns: list[int]) -> str:
    said = {debate.turns[i].agent: _turn(debate.turns[i]) for i in turns}
    cells = (f'<td style="{_CELL}">{said.get(agent, "")}</td>' for agent in range(debate.num_agents))
    return f'<tr><th style="{_CELL}">{name}</th>{"".join(cells)}</tr>'


def _turn(turn: Turn) -> str:
    if isinstance(turn.parsed, ParseFailure):
        return f"<i>failed: {_text(turn.parsed.reason)}</i><br>{_text(turn.text)}"
    return "".join(
        f"<div><small>{_text(name)}</small><br>{_text(content)}</div>" for name, content in turn.parsed.fields.items()
    )


def _text(said: str) -> str:
    return text(said if len(said) <= LONGEST else said[:LONGEST] + " …")


def text(said: object) -> str:
    """A model's or a user's words, safe between tags and in attributes."""
    return escape(plain(str(said)), quote=True)
