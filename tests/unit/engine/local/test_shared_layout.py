"""Layout shared on a real engine: a round's transcript is prefilled once for all agents, and computed once for all their datums."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from moot.debate.rules import Rules
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.local import LocalEngine
from moot.engine.protocol import SamplingParams
from moot.records.played import PlayedDebate
from moot.rl.rendering import Rendering
from moot.rl.rollout import rollout
from support import tiny_chat

AGENTS, ROUNDS, SAID = 4, 2, 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat.save(tmp_path_factory.mktemp("tiny"))


def play(model: Path, **choices: Any) -> tuple[LocalEngine, PlayedDebate]:
    engine = LocalEngine.create(str(model), dtype="fp32", device="cpu", max_cache_gib=0.1)
    rendering = Rendering(engine.tokenizer, "tiny")

    async def one() -> PlayedDebate:
        debate = Debate(Question("What is 3 + 4? " * 40, "7"), AGENTS, ROUNDS, Rules(personas=False, **choices))
        (played,) = await rollout(
            [debate], await engine.snapshot(), rendering, SamplingParams(SAID), limits={"evaluation": 8, "comparison": 8}
        )
        assert played.error is None
        return played

    return engine, asyncio.run(one())


@pytest.mark.parametrize("sections", ["sampled", "given", "asked"])
def test_a_round_is_prefilled_once_for_all_its_agents(model: Path, sections: str) -> None:
    """What the prefix cache does not find is what differs: at most the end of each prompt, and what was inserted into a turn."""
    engine, played = play(model, layout="shared", sections=sections)
    prompts = [
        [sampled.prompt for turn, sampled in zip(played.debate.turns, played.sampled, strict=True) if turn.round == round]
        for round in (1, 2)
    ]
    texts = [[engine.tokenizer.decode(prompt) for prompt in of_round] for of_round in prompts]
    ends = [[len(text.rpartition("You are Agent")[2]) + len("You are Agent") for text in of_round] for of_round in texts]
    if sections == "asked":
        ends[0] = [1] * AGENTS  # the plain question; the last token is run again for its logits
    inserted = sum(2 + int((~sampled.sampled).sum()) for sampled in played.sampled)
    once = len(prompts[0][0]) + max(len(prompt) for prompt in prompts[1])
    assert engine.statistics["prefilled"] <= once + sum(map(sum, ends)) + inserted
    assert engine.statistics["prefilled"] < 0.6 * sum(len(prompt) for of_round in prompts for prompt in of_round)
    asyncio.run(engine.close())
