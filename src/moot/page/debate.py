"""One debate as a reader wants it: its sections, what became of each line of a comparison, and who pays for which
token."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from moot.debate.outcome import onlookers_votes
from moot.debate.parsing import ANY_TAG, comparison_lines
from moot.debate.prompt_texts import Prompts
from moot.debate.prompts import persona
from moot.debate.protocols import Protocol
from moot.debate.rewards.checked import scores_by_turn
from moot.debate.state import Debate
from moot.debate.types import Parsed, ParseFailure, Turn
from moot.errors import ConfigError
from moot.page.index import Part, Place, line_at
from moot.page.runs import LARGEST, inside
from moot.runs.arrays import SHOWN, read_arrays, turn_tokens
from moot.runs.prompt_of_turn import seen_to_json, with_prompts
from moot.runs.record import Damaged, numbers_to_json, read_line
from moot.runs.run import step_file
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import paid_by

LONGEST = 2_000_000
"""Characters of a turn that are sent at all."""


def shown(
    run: Path, step: int, number: int, where: Place | None = None, part: Part = "debates"
) -> dict[str, Any] | None:
    """None where there is no such debate. `where` says where its line stands, if an index knows."""
    line = line_at(run, step, number, where, part)
    if line is None:
        return None
    played, here = read_line(line, step, number), {"step": step, "number": number}
    if isinstance(played, Damaged):
        return {**here, "broken": played.reason}
    try:
        tokens, tokens_error = _tokens(run, step, number) if part == "debates" else {}, None
    except (OSError, ValueError, KeyError, IndexError, TypeError, OverflowError, zipfile.BadZipFile) as error:
        tokens, tokens_error = {}, f"{type(error).__name__}: {error}"
    return {**here, **_debate(played, tokens), "tokens_error": tokens_error}


def seen_in(
    run: Path, step: int, number: int, turn: int, prompts: Prompts, where: Place | None = None, part: Part = "debates"
) -> list[dict[str, str]] | None:
    """What the agent of that turn saw before it spoke, in the run's `prompts`; None where no such turn can be read."""
    played = read_line(line_at(run, step, number, where, part) or b"", step, number)
    if isinstance(played, Damaged) or not 0 <= turn < len(played.debate.turns):
        return None
    return seen_to_json(with_prompts(played, prompts), turn)


def _debate(played: PlayedDebate, tokens: Mapping[int, Any]) -> dict[str, Any]:
    debate, votes, numbers = played.debate, _votes(played), numbers_to_json(played)
    return {
        "question": {name: getattr(debate.question, name) for name in ("id", "text", "answer")},
        "agents": [_seat(debate, agent) for agent in range(debate.num_agents)],
        "max_rounds": debate.max_rounds,
        "protocol": Protocol(debate.rules, played.scoring).as_dict(),
        "turns": [
            _turn(played, i, step, votes, tokens.get(i), numbers) for i, step in enumerate(debate.turn_numbers())
        ],
        "jury": [_judge(played, turn, votes) for turn in debate.jury],
        "jury_counts": played.scoring.judges_count if debate.jury else None,
        "votes": votes,
        **_came_to(played),
        **_checks(played),
        "by_votes": bool(votes) or (played.scoring.rule.from_votes and debate.max_rounds > 1),
        "signal": None if played.scores is None else played.scores.has_signal,
        **numbers,
        "error": played.error,
    }


def _came_to(played: PlayedDebate) -> dict[str, Any]:
    """Who won, and what each agent came to: the outcome's own figures, so that the page counts nothing by a rule of its
    own."""
    if played.outcome is None:
        return {"winner": None, "leaders": [], "means": None, "won": None, "lost": None}
    return {name: getattr(played.outcome, name) for name in ("winner", "leaders", "means", "won", "lost")}


def _checks(played: PlayedDebate) -> dict[str, Any]:
    """What judges who check answers thought and said, and what it makes of each answer by its turn."""
    debate = played.debate
    if debate.checks is None:
        return {}
    try:
        scores = scores_by_turn(debate, played.scoring) if played.scoring.rule.ballot else {}
    except ConfigError:  # of a record with fewer checks than its reward needs
        scores = {}
    told = [
        {name: getattr(check, name) for name in ("turns", "judge", "value", "by", "rule")}
        | {"thinking": check.thinking[:LONGEST]}
        for check in debate.checks
    ]
    return {"checks": told, "scores_by_turn": scores}


def _seat(debate: Debate, agent: int) -> dict[str, Any]:
    """Who sits there: an advocate goes by its position."""
    if (position := debate.position(agent)) is not None:
        return {"persona": f"argues for: {position}", "style": "the side that this seat was given"}
    return {"persona": persona(agent).name, "style": persona(agent).style} if debate.rules.personas else {}


def _votes(played: PlayedDebate) -> list[dict[str, Any]]:
    """Every vote with the round and agent of all three: who cast it, and the two it is about. Those of judges who only
    look on too."""
    turns = played.debate.turns

    def about(agent: int, response: int | None) -> dict[str, Any]:
        return {"agent": agent, "round": None if response is None else turns[response].round}

    cast = () if played.outcome is None else played.outcome.votes
    return [
        {
            "turn": vote.turn,
            "round": vote.round,
            "author": vote.author,
            "verdict": vote.verdict,
            "counts": vote.counts,
            "left": about(vote.left, vote.left_turn),
            "right": about(vote.right, vote.right_turn),
        }
        for vote in (*cast, *onlookers_votes(played.debate, played.scoring))
    ]


def _turn(
    played: PlayedDebate, i: int, step: int, votes: Sequence[Mapping[str, Any]], tokens: Any, numbers: Mapping[str, Any]
) -> dict[str, Any]:
    turn, grades = played.debate.turns[i], played.grades
    shown = {
        "round": turn.round,
        "agent": turn.agent,
        "answer": None if grades is None else grades.answers[i],
        "correct": None if grades is None else grades.correct[i],
        "stop": played.sampled[i].stop_reason if played.sampled else None,
        **{name: _of_step(values, turn.agent, step) for name, values in numbers.items()},
        **_said(played, turn, [vote for vote in votes if vote["turn"] == i]),
    }
    if tokens is not None:
        shown["temperature"] = tokens["temperature"]
        shown["tokens"] = _shown_tokens(tokens, _Places(shown["text"]), played.debate.rules.sections == "asked")
    return shown


def _shown_tokens(tokens: Mapping[str, Any], places: _Places, asked: bool) -> dict[str, Any]:
    """In the order of the text, which is not that of sampling where sections were asked for one by one. Requests
    between the sections are
    no part of the text; tags, which nobody samples there, have no token, and get one without an id."""
    where = (tokens["starts"] >= 0) & (tokens["starts"] <= len(places.text))
    rows: list[tuple[int, int | None, float | None, float | None, bool]] = [
        (places.utf16(start), i, None if put else logprob, advantage, put)
        for start, i, logprob, advantage, put in zip(
            tokens["starts"][where].tolist(),
            tokens["ids"][where].tolist(),
            _numbers(tokens["logprobs"][where]),
            _numbers(tokens["advantages"][where]),
            tokens["inserted"][where].tolist(),
            strict=True,
        )
    ]
    if asked:  # a section ends where its author writes a tag, so every tag in the text was put there
        rows += [(places.utf16(tag.start()), None, None, 0.0, True) for tag in ANY_TAG.finditer(places.text)]
    rows.sort(key=lambda row: row[0])
    starts, ids, logprobs, advantages, put = ([row[i] for row in rows] for i in range(5))
    told = {"starts": starts, "ids": ids, "logprobs": logprobs, "advantages": advantages}
    return {**told, "inserted": put} if any(put) else told


def _judge(played: PlayedDebate, turn: Turn, votes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A judge without a seat: it earns nothing and is taught nothing."""
    cast = [vote for vote in votes if vote["author"] == turn.agent]
    return {"agent": turn.agent, "rewards": {}, "returns": {}, "advantages": {}, **_said(played, turn, cast)}


def _said(played: PlayedDebate, turn: Turn, cast: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The text, where its sections stand in it, and what became of each line of its comparison."""
    labels, stream_of = list(played.debate.labels(turn.agent)), (played.scores or played.scoring).stream_of
    shown: dict[str, Any] = {"text": turn.text[:LONGEST], "length": len(turn.text), "ballot": turn.ballot}
    if labels != list(range(len(labels))):
        shown["labels"] = labels
    if isinstance(turn.parsed, ParseFailure):
        return {**shown, "failure": turn.parsed.reason}
    shown["fields"] = {str(name): str(content)[:LONGEST] for name, content in turn.parsed.fields.items()}
    if turn.parsed.spans:
        places = _Places(shown["text"])
        shown["sections"] = [
            {
                "name": name,
                "begin": places.utf16(begin),
                "end": places.utf16(end),
                "stream": paid_by(turn, name, stream_of),
            }
            for name, (begin, end) in turn.parsed.spans.items()
        ]
    if "comparison" in shown["fields"]:
        shown["lines"] = list(_lines(played.debate, shown["fields"]["comparison"], turn.agent, cast))
    return shown


def _of_step(values: Any, agent: int, step: int) -> dict[str, Any]:
    """By stream; a reward by agent is the stream `agent`."""
    try:
        if isinstance(values, Mapping):
            return {str(stream): rows[agent][step] for stream, rows in values.items()}
        return {} if values is None else {"agent": values[agent]}
    except (IndexError, TypeError, KeyError):
        return {}


def _lines(debate: Debate, content: str, author: int, cast: Sequence[Mapping[str, Any]]) -> Any:
    """Each line of a comparison, written in its author's labels, and what became of it."""
    parsed = debate.about_seats(Parsed({}, {}, comparison_lines(content)), author)
    counted: dict[tuple[Any, Any, Any], int] = {}
    for vote in cast:
        key = (vote["left"]["agent"], vote["right"]["agent"], vote["verdict"])
        counted[key] = counted.get(key, 0) + 1
    lines = list(zip(content.split("\n"), parsed.lines, strict=True))
    fates: list[str] = []
    # An author's last word on a pair is the one that counts, so votes are given out from the end.
    for _, line in reversed(lines):
        key = (line.left, line.right, line.verdict)
        if line.kind != "comparison":
            fates.append("silent" if line.kind == "silent" else "unreadable")
        elif author in (line.left, line.right):
            fates.append("self")
        elif line.left == line.right:
            fates.append("same")
        elif not (0 <= line.left < debate.num_agents and 0 <= line.right < debate.num_agents):
            fates.append("unknown")
        elif counted.get(key):
            counted[key] -= 1
            fates.append("vote")
        elif any({line.left, line.right} == {vote["left"]["agent"], vote["right"]["agent"]} for vote in cast):
            fates.append("superseded")
        else:
            fates.append("unseen")
    for (text, _), fate in zip(lines, reversed(fates), strict=True):
        yield {"text": text, "fate": fate}


class _Places:
    """Characters as Python counts them to characters as a browser does, where one above U+FFFF is two."""

    def __init__(self, text: str) -> None:
        self.text = text
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        self._before = np.concatenate([[0], np.cumsum(1 + (points > 0xFFFF))])

    def utf16(self, place: int) -> int:
        return int(self._before[min(max(place, 0), len(self.text))])


def _numbers(values: Any) -> list[float | None]:
    return [round(value, 5) if math.isfinite(value) else None for value in values.tolist()]


# Tokens


def _tokens(run: Path, step: int, number: int) -> dict[int, dict[str, Any]]:
    """By turn of the debate; empty where the run kept none."""
    file = inside(run, "debates", step_file(step, ".npz"))
    if not file.is_file():
        return {}
    status = file.stat()
    return turn_tokens(_load(file, status.st_ino, status.st_size, status.st_mtime_ns), number)


@lru_cache(maxsize=4)
def _load(file: Path, *stamp: int) -> dict[str, Any]:
    """A reader goes from debate to debate of one step; the stamp says that it is still the same file."""
    return read_arrays(file, SHOWN, LARGEST)
