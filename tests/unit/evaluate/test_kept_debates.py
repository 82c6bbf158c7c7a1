"""What an evaluation keeps of a debate gives the same debate again, whatever the protocol."""

from __future__ import annotations

import asyncio
import json

import pytest

from moot.debate.protocols import Protocol
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.evaluate.store import debate_of, debate_record
from moot.rl.rollout import rollout
from moot.tokens.rendering import Rendering
from support.making import v1, v2

ENGINE = ScriptedEngine(style="mixed", seed=5)
RENDERING = Rendering(ENGINE.tokenizer)


@pytest.mark.parametrize(
    "protocol",
    [
        v1(),
        v2(),
        v2(shuffle_labels=True),
        v2(closing_ballot=True),
        v1(shuffle_labels=True, closing_ballot=True, on_parse_failure="continue"),
    ],
)
def test_a_kept_debate_comes_back_as_it_was(protocol: Protocol) -> None:
    """Comparison lines are about the same seats, ballots are ballots, and what failed has failed. Twenty debates, some of them hostile."""
    asked = [Debate(Question(f"What is {i} + 4?", str(i + 4), str(i)), 4, 2, protocol.rules) for i in range(20)]
    played = asyncio.run(rollout(asked, ENGINE, RENDERING, SamplingParams(max_tokens=3000)))
    for empty, each in zip(asked, played, strict=True):
        assert debate_of(json.loads(json.dumps(debate_record(each))), empty) == each.debate
