"""One debate as a reader wants it: its sections, what became of each line of a comparison, and who pays for which token."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from moot.debate.labels import labels_for, with_agents
from moot.debate.parsing import BALLOT, CONTRACTS, comparison_lines, parse
from moot.debate.prompts import persona
from moot.debate.scoring import Scoring
from moot.debate.types import ConfigError, Parsed, Question
from moot.page.index import records
from moot.page.runs import inside
from moot.saved import standing

LONGEST = 2_000_000
"""Characters of a turn that are sent at all."""
LARGEST = 2**30
"""Bytes of a step's tokens that are unpacked at all: a run may come from somebody else."""


def shown(run: Path, step: int, number: int) -> dict[str, Any] | None:
    """None where there is no such debate."""
    for place, record in enumerate(records(run, step)):
        if place == number:
            return {
                "step": step,
                "number": number,
                **(_shown(run, step, number, record) if record else {"broken": "its line is not a JSON object"}),
            }
    return None


def _shown(run: Path, step: int, number: int, record: Mapping[str, Any]) -> dict[str, Any]:
    try:
        tokens = _tokens(run, step, number)
    except (OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        tokens = {"error": f"{type(error).__name__}: {error}"}
    try:
        return _debate(record, tokens)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        return {"broken": f"{type(error).__name__}: {error}"}


def _debate(record: Mapping[str, Any], tokens: Mapping[Any, Any]) -> dict[str, Any]:
    protocol = record.get("protocol") or {}
    agents, turns, jury = int(record["num_agents"]), list(record["turns"]), list(record.get("jury") or ())
    if not 0 < agents < 1000:
        raise ValueError(f"num_agents is {agents}")
    votes = _votes(record, agents)
    place = {}
    taken = [0] * agents
    for i, turn in enumerate(turns):
        place[i] = taken[turn["agent"]]
        taken[turn["agent"]] += 1
    leaders, winner = standing(record)
    labels = [_labels(record, protocol, viewer, agents) for viewer in range(agents + len(jury))]
    return {
        "question": {name: record["question"].get(name) for name in ("id", "text", "answer")},
        "agents": [_seat(protocol, agent) for agent in range(agents)],
        "max_rounds": record.get("max_rounds"),
        "protocol": protocol,
        "turns": [_turn(record, turns[i], place[i], i, votes, tokens.get(i), labels[turns[i]["agent"]]) for i in range(len(turns))],
        "jury": [_judge(record, judge, agents + j, votes, labels[agents + j]) for j, judge in enumerate(jury)],
        "jury_counts": record.get("jury_counts"),
        "votes": votes,
        "winner": winner,
        "leaders": list(leaders),
        "signal": record.get("signal"),
        "rewards": record.get("rewards"),
        "returns": record.get("returns"),
        "advantages": record.get("advantages"),
        "error": record.get("error"),
        "tokens_error": tokens.get("error"),
    }


def _seat(protocol: Mapping[str, Any], agent: int) -> dict[str, Any]:
    return {"persona": persona(agent).name, "style": persona(agent).style} if protocol.get("personas") else {}


def _labels(record: Mapping[str, Any], protocol: Mapping[str, Any], viewer: int, agents: int) -> list[int]:
    """The number by which `viewer` knows each agent."""
    if not protocol.get("shuffle_labels"):
        return list(range(agents))
    question = record["question"]
    return list(labels_for(Question(str(question["text"]), id=str(question.get("id") or "")), viewer, agents))


def _votes(record: Mapping[str, Any], agents: int) -> list[dict[str, Any]]:
    """Every vote with the round and agent of all three: who cast it, and the two it is about. Judge j is author N + j, of no round."""
    turns = record["turns"]
    # Those of judges who count stand among the debate's own; where they only look on, they are added here and marked.
    cast = [{**vote, "counts": True} for vote in record.get("votes") or ()]
    if not record.get("jury_counts"):
        for j, judge in enumerate(record.get("jury") or ()):
            cast += [{**vote, "turn": None, "judge": j, "counts": False} for vote in judge.get("votes") or ()]
    found = []
    for vote in cast:
        of_agent = vote["turn"] is not None
        about = {}
        for side in ("left", "right"):
            by_turn = f"{side}_turn" in vote
            turn = turns[vote[f"{side}_turn"]] if by_turn else {"agent": vote[side], "round": None}
            about[side] = {"agent": turn["agent"], "round": turn["round"]}
        found.append(
            {
                "turn": vote["turn"],
                "round": turns[vote["turn"]]["round"] if of_agent else None,
                "author": turns[vote["turn"]]["agent"] if of_agent else agents + int(vote["judge"]),
                "verdict": vote["verdict"],
                "counts": vote["counts"],
                **about,
            }
        )
    return found


def _turn(
    record: Mapping[str, Any],
    turn: Mapping[str, Any],
    step: int,
    i: int,
    votes: Sequence[Mapping[str, Any]],
    tokens: Any,
    labels: list[int],
) -> dict[str, Any]:
    cast = [vote for vote in votes if vote["turn"] == i]
    shown = {
        "round": turn["round"],
        "agent": turn["agent"],
        "answer": turn.get("answer"),
        "correct": turn.get("correct"),
        "stop": turn.get("stop"),
        "rewards": _of_step(record.get("rewards"), turn["agent"], step),
        "returns": _of_step(record.get("returns"), turn["agent"], step),
        "advantages": _of_step(record.get("advantages"), turn["agent"], step),
        **_said(record, turn, turn["agent"], bool(turn.get("ballot")), cast, labels),
    }
    if tokens is not None:
        shown["temperature"] = tokens["temperature"]
        shown["tokens"] = _shown_tokens(tokens, _Places(shown["text"]), [] if "failure" in turn else shown.get("sections", ()))
    return shown


def _shown_tokens(tokens: Mapping[str, Any], places: _Places, sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """In the order of the text, which is not that of sampling where sections were asked for one by one. Requests between the sections are
    no part of the text; tags that nobody sampled have no token, and get one without an id."""
    where = (tokens["starts"] >= 0) & (tokens["starts"] <= len(places.text))
    inserted = tokens["inserted"] if tokens["inserted"] is not None else np.zeros(len(where), dtype=bool)
    rows: list[tuple[int, int | None, float | None, float | None, bool]] = [
        (places.utf16(start), i, None if put else logprob, advantage, put)
        for start, i, logprob, advantage, put in zip(
            tokens["starts"][where].tolist(),
            tokens["ids"][where].tolist(),
            _numbers(tokens["logprobs"][where]),
            _numbers(tokens["advantages"][where]),
            inserted[where].tolist(),
            strict=True,
        )
    ]
    if not where.all():
        for section in sections:
            rows += [(place, None, None, 0.0, True) for place in (section["begin"], section["end"] - len(f"</{section['name']}>"))]
    rows.sort(key=lambda row: row[0])
    starts, ids, logprobs, advantages, put = ([row[i] for row in rows] for i in range(5))
    found = {"starts": starts, "ids": ids, "logprobs": logprobs, "advantages": advantages}
    return {**found, "inserted": put} if any(put) else found


def _judge(
    record: Mapping[str, Any], judge: Mapping[str, Any], number: int, votes: Sequence[Mapping[str, Any]], labels: list[int]
) -> dict[str, Any]:
    """A judge without a seat: it earns nothing and is taught nothing."""
    cast = [vote for vote in votes if vote["author"] == number]
    return {"agent": number, "rewards": {}, "returns": {}, "advantages": {}, **_said(record, judge, number, True, cast, labels)}


def _said(
    record: Mapping[str, Any], turn: Mapping[str, Any], author: int, ballot: bool, cast: Sequence[Mapping[str, Any]], labels: list[int]
) -> dict[str, Any]:
    """The text, where its sections stand in it, and what became of each line of its comparison."""
    text = str(turn["text"])
    shown: dict[str, Any] = {"text": text[:LONGEST], "length": len(text), "ballot": ballot}
    if labels != list(range(len(labels))):
        shown["labels"] = labels
    if "failure" in turn:
        return {**shown, "failure": str(turn["failure"])}
    shown["fields"] = {str(name): str(content)[:LONGEST] for name, content in dict(turn.get("fields") or {}).items()}
    contract = BALLOT if ballot else (record.get("protocol") or {}).get("contract", "three_tag")
    parsed = parse(text, contract, turn.get("stop") != "length") if contract in CONTRACTS else None
    if isinstance(parsed, Parsed):
        places, stream_of = _Places(shown["text"]), _stream_of(record)
        shown["sections"] = [
            {
                "name": name,
                "begin": places.utf16(begin),
                "end": places.utf16(end),
                "stream": "judge" if ballot else stream_of.get(name),
            }
            for name, (begin, end) in parsed.spans.items()
        ]
    if "comparison" in shown["fields"]:
        shown["lines"] = list(_lines(shown["fields"]["comparison"], author, labels, cast))
    return shown


def _stream_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Which stream paid for a section's tokens, as far as the record can be understood."""
    chosen = {name: value for name, value in dict(record.get("protocol") or {}).items() if name in ("reward", "evaluation_credit")}
    try:
        return Scoring(**chosen).stream_of
    except ConfigError:
        return Scoring().stream_of


def _of_step(values: Any, agent: int, step: int) -> dict[str, Any]:
    """By stream; a reward by agent is the stream `agent`."""
    try:
        if isinstance(values, Mapping):
            return {str(stream): rows[agent][step] for stream, rows in values.items()}
        return {} if values is None else {"agent": values[agent]}
    except (IndexError, TypeError, KeyError):
        return {}


def _lines(content: str, author: int, labels: list[int], cast: Sequence[Mapping[str, Any]]) -> Any:
    """Each line of a comparison, written in its author's labels, and what became of it."""
    parsed = with_agents(Parsed({}, {}, comparison_lines(content)), labels)
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
        elif not (0 <= line.left < len(labels) and 0 <= line.right < len(labels)):
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


def _tokens(run: Path, step: int, number: int) -> dict[Any, Any]:
    """By turn of the debate; empty where the run kept none."""
    file = inside(run, "debates", f"{step:06d}.npz")
    if not file.is_file():
        return {}
    status = file.stat()
    arrays = _load(file, status.st_ino, status.st_size, status.st_mtime_ns)
    offsets, found = arrays["offsets"], {}
    for k in np.flatnonzero(arrays["debate"] == number).tolist():
        cut = slice(int(offsets[k]), int(offsets[k + 1]))
        found[int(arrays["turn"][k])] = {
            "temperature": float(arrays["temperature"][k]),
            "starts": arrays["starts"][cut],
            "ids": arrays["tokens"][cut],
            "logprobs": arrays["logprobs"][cut],
            "advantages": arrays["advantages"][cut],
            "inserted": arrays["inserted"][cut] if "inserted" in arrays else None,
        }
    return found


@lru_cache(maxsize=4)
def _load(file: Path, *stamp: int) -> dict[str, Any]:
    """A reader goes from debate to debate of one step; the stamp says that it is still the same file."""
    names = ("debate", "turn", "offsets", "temperature", "starts", "tokens", "logprobs", "advantages")
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > LARGEST:
            raise ValueError(f"{file.name} would unpack to more than {LARGEST:,} bytes")
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in (*names, *({"inserted"} & set(arrays.files)))}
