"""Small runs for the tests of the page, written as a run is: numbers that can be checked by hand, and texts that are up to no good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moot.debate.protocols import V2
from moot.runs import Run
from support.making import text


def turn(
    agent: int, answer: str | None = "7", correct: bool = False, round: int = 1, comparison: str = "N/A", **changes: Any
) -> dict[str, Any]:
    solution = f"It is {answer}."
    return {
        "round": round,
        "agent": agent,
        "text": text(comparison, solution),
        "fields": {"solution": solution, "evaluation": "Fine.", "comparison": comparison},
        "answer": answer,
        "correct": correct,
        "stop": "stop",
        **changes,
    }


def failed(agent: int, round: int = 1, said: str = "mumble") -> dict[str, Any]:
    return {
        "round": round,
        "agent": agent,
        "text": said,
        "failure": "no <solution> in the text",
        "answer": None,
        "correct": False,
        "stop": "stop",
    }


def record(
    *turns: dict[str, Any], question: str = "What is 3 + 4?", answer: str | None = "7", **changes: Any
) -> dict[str, Any]:
    """A debate of three agents that agent 0 won, unless told otherwise."""
    said = list(turns) or [turn(0, correct=True), turn(1, "8"), turn(2, "8")]
    kinds = list(dict.fromkeys(each["answer"] for each in said if "answer" in each and each["answer"] is not None))
    said = [{"same": kinds.index(each["answer"]) if each.get("answer") in kinds else None, **each} for each in said]
    zeros = [[0.0] * sum(each["agent"] == agent for each in said) for agent in range(3)]
    winner = changes.get("winner", 0)
    answers = [i for i, each in enumerate(said) if not each.get("ballot")]
    best = next((i for i in answers if said[i]["agent"] == winner), None)
    other = next((i for i in answers if said[i]["agent"] != winner), None)
    preferred = (
        []
        if best is None or other is None
        else [{"turn": answers[-1], "left_turn": best, "right_turn": other, "verdict": ">"}]
    )
    paid = [[1.0, *row[1:]] if row and agent == winner else row for agent, row in enumerate(zeros)]
    return {
        "number": 0,
        "question": {"id": "q", "text": question, "answer": answer},
        "num_agents": 3,
        "max_rounds": 2,
        "protocol": V2.as_dict(),
        "turns": said,
        "winner": 0,
        "signal": True,
        "votes": preferred,
        "rewards": {"generator": paid, "judge": zeros},
        "advantages": {"generator": zeros, "judge": zeros},
        **changes,
    }


def write_run(
    path: Path, steps: dict[int, Sequence[dict[str, Any]]], metrics: Sequence[dict[str, Any]] = (), tokens: bool = True
) -> Path:
    """The folder is the library's own; only its debates are written by hand, so that they may be what no moot would write."""
    config = {
        "model": {"model": "none"},
        "debate": {"task": "made up", "num_agents": 3, "max_rounds": 2},
        "protocol": V2.as_dict(),
    }
    run = Run.create(path, config, {"moot": "a test"})
    (path / "metrics.jsonl").touch()
    for row in metrics:
        run.append_metrics(row)
    for step, records in steps.items():
        write_step(path, step, records, tokens)
    return path


def write_step(path: Path, step: int, records: Sequence[dict[str, Any]], tokens: bool = True) -> None:
    numbered = [{**each, "number": i} for i, each in enumerate(records)]
    beside = path / "debates" / "tmp"
    beside.write_text("".join(json.dumps(each) + "\n" for each in numbered))
    beside.replace(path / "debates" / f"{step:06d}.jsonl")
    if tokens:
        write_tokens(path / "debates" / f"{step:06d}.npz", numbered)


def write_tokens(file: Path, records: Sequence[dict[str, Any]]) -> None:
    """A token for every four characters, and one that ends the turn; its id and a thousandth of it say which it is."""
    where = [(d, t, each["turns"][t]["text"]) for d, each in enumerate(records) for t in range(len(each["turns"]))]
    starts = [np.array([*range(0, len(said), 4), len(said)], dtype=np.int32) for *_, said in where]
    counts = [len(each) for each in starts]
    total = sum(counts)
    np.savez_compressed(
        file,
        format=np.array(1),
        debate=np.array([d for d, *_ in where], dtype=np.int32),
        turn=np.array([t for _, t, _ in where], dtype=np.int32),
        temperature=np.full(len(where), 0.5, dtype=np.float32),
        offsets=np.cumsum([0, *counts], dtype=np.int64),
        tokens=np.arange(total, dtype=np.int32),
        logprobs=(-np.arange(total) / 1000).astype(np.float32),
        advantages=np.concatenate([np.full(n, 0.5 if i % 2 else -0.25) for i, n in enumerate(counts)] or [[]]).astype(
            np.float32
        ),
        inserted=np.zeros(total, dtype=bool),
        starts=np.concatenate(starts or [np.zeros(0, dtype=np.int32)]),
    )
