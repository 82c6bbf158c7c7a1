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
    rounds: dict[tuple[int, bool], dict[int, Turn]] = {}
    for turn in debate.turns:
        rounds.setdefault((turn.round, turn.ballot), {})[turn.agent] = turn
    rows = "".join(
        _row("Closing ballot" if ballot else f"Round {round}", said, debate.num_agents)
        for (round, ballot), said in rounds.items()
    )
    judges = "".join(f"<p><b>Outside judge {j}</b></p>{_turn(turn)}" for j, turn in enumerate(debate.jury))
    answer = "" if debate.question.answer is None else f"<p>Right answer: {_text(debate.question.answer)}</p>"
    table = (
        f'<table style="{_TABLE}"><tr><th style="{_CELL};width:5em"></th>{heads}</tr>{rows}</table>'
        if rows
        else "<p>Nobody has spoken.</p>"
    )
    return f"<div><p><b>{_text(debate.question.text)}</b></p>{answer}{table}{judges}</div>"


def _row(name: str, said: dict[int, Turn], num_agents: int) -> str:
    cells = (f'<td style="{_CELL}">{_turn(said[agent]) if agent in said else ""}</td>' for agent in range(num_agents))
    return f'<tr><th style="{_CELL}">{name}</th>{"".join(cells)}</tr>'


def _turn(turn: Turn) -> str:
    if isinstance(turn.parsed, ParseFailure):
        return f"<i>failed: {_text(turn.parsed.reason)}</i><br>{_text(turn.text)}"
    return "".join(
        f"<div><small>{_text(name)}</small><br>{_text(content)}</div>" for name, content in turn.parsed.fields.items()
    )


def _text(said: str) -> str:
    cut = said if len(said) <= LONGEST else said[:LONGEST] + " …"
    return escape(plain(cut), quote=True)
