"""Rewards by answers, whose votes count, debates of one question, credit for an evaluation: against the second scorer in tests/oracle."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from answered import answered_files, turn_texts
from later import LATER, credit, score_lines
from test_oracle import differences, through_json

from moot.debate.parsing import parse
from moot.debate.protocols import V2, preset
from moot.debate.types import Turn
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import Advantages, SampledTurn
from moot.tokens.turn import credit as credited
from moot.tools.transcripts import score

FILES = 300


@pytest.mark.parametrize("part", range(3))
def test_files_of_debates_with_answers_and_judges(part: int) -> None:
    """100 files in each part, of up to six debates, some of them of one question."""
    for number, lines in enumerate(answered_files(FILES // 3, seed=11 + part)):
        results = list(score([json.dumps(line) for line in lines], preset("v2")))
        assert all(isinstance(each, PlayedDebate) for each in results), f"file {number}: {results}"
        found = [through_json(each) for each in results if isinstance(each, PlayedDebate)]
        expected = [{"line": i, **each} for i, each in enumerate(score_lines(lines), 1)]
        assert not differences(found, expected), f"file {number}: {json.dumps(lines)}"


def test_the_generator_reaches_what_it_should() -> None:
    """A rule that never matters is not compared: each of them changes what some debate is paid."""
    files = list(answered_files(FILES, seed=11))
    lines = [line for file in files for line in file]

    kept = [line for line in lines if line["protocol"]["reward"] == "generator_judge" and line.get("jury")]
    plain = score_lines([{**line, "protocol": {**line["protocol"], "advantage": "center_group"}} for line in kept])

    def changed(**other: Any) -> int:
        """How many debates are paid otherwise under another choice."""
        alike = [{**line, "protocol": {**line["protocol"], **other, "advantage": "center_group"}} for line in kept]
        return sum(a != b for a, b in zip(score_lines(alike), plain, strict=True))

    assert {line["protocol"]["reward"] for line in lines} == {
        "truth",
        "majority",
        "truth_last",
        "majority_last",
        "generator_judge",
    }
    assert (
        min(
            changed(voters="agents"),
            changed(voters="judges"),
            changed(both_orders=False),
        )
        > 30
    )


@pytest.mark.parametrize("pays", ["generator", "judge", "nobody", "truth"])
def test_who_pays_for_the_tokens_of_an_evaluation(pays: str) -> None:
    """500 turns, readable and not, cut into tokens anywhere. Under truth only the solution is paid for."""
    protocol = (
        {**LATER, "reward": "truth"}
        if pays == "truth"
        else {**LATER, "reward": "generator_judge", "evaluation_credit": pays}
    )
    scoring = V2.with_choices({name: protocol[name] for name in ("reward", "evaluation_credit")}).scoring
    values = {"generator": 0.5} if pays == "truth" else {"generator": 0.5, "judge": -0.25}
    failures = 0
    for text, starts in turn_texts(500, seed=3):
        turn = Turn(1, 0, text, parse(text, "three_tag"))
        ids = np.zeros(len(starts), dtype=np.int32)
        sampled = SampledTurn(
            ids[:0], False, ids, np.zeros(len(starts), dtype=np.float32), np.array(starts, dtype=np.int32)
        )
        found = credited(
            turn, sampled, 0, Advantages({name: ((value,),) for name, value in values.items()}, scoring.stream_of)
        )
        assert found.tolist() == credit(text, starts, values, protocol), text
        failures += turn.failed
    assert 20 < failures < 200
