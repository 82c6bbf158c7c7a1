"""Layout shared on a real engine: a round's transcript is prefilled once for all agents, and computed once for all their datums."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from moot.debate.rules import Rules
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.local import LocalEngine
from moot.engine.protocol import SamplingParams
from moot.rl.rollout import rollout
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.turn import Advantages
from support import tiny_chat
from support.engine_calls import trainer_logprobs

AGENTS, ROUNDS, SAID = 4, 2, 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_chat.save(tmp_path_factory.mktemp("tiny"))


def play(model: Path, **choices: Any) -> tuple[LocalEngine, PlayedDebate]:
    engine = LocalEngine.create(str(model), dtype="fp32", device="cpu", max_cache_gib=0.1, token_budget=16384)
    rendering = Rendering(engine.tokenizer, "tiny")

    async def one() -> PlayedDebate:
        debate = Debate(Question("What is 3 + 4? " * 40, "7"), AGENTS, ROUNDS, Rules(personas=False, **choices))
        (played,) = await rollout(
            [debate],
            await engine.snapshot(),
            rendering,
            SamplingParams(SAID),
            limits={"evaluation": 8, "comparison": 8},
        )
        assert played.error is None
        return played

    return engine, asyncio.run(one())


@pytest.mark.parametrize("sections", ["sampled", "given", "asked"])
def test_a_round_is_prefilled_once_for_all_its_agents(model: Path, sections: str) -> None:
    """What the prefix cache does not find is what differs: at most the end of each prompt, and what was inserted into a turn."""
    engine, played = play(model, layout="shared", sections=sections)
    prompts = [
        [
            sampled.prompt
            for turn, sampled in zip(played.debate.turns, played.sampled, strict=True)
            if turn.round == round
        ]
        for round in (1, 2)
    ]
    texts = [[engine.tokenizer.decode(prompt) for prompt in of_round] for of_round in prompts]
    ends = [
        [len(text.rpartition("You are Agent")[2]) + len("You are Agent") for text in of_round] for of_round in texts
    ]
    if sections == "asked":
        ends[0] = [1] * AGENTS  # the plain question; the last token is run again for its logits
    inserted = sum(2 + int((~sampled.sampled).sum()) for sampled in played.sampled)
    once = len(prompts[0][0]) + max(len(prompt) for prompt in prompts[1])
    assert engine.statistics["prefilled"] <= once + sum(map(sum, ends)) + inserted
    assert engine.statistics["prefilled"] < 0.6 * sum(len(prompt) for of_round in prompts for prompt in of_round)
    asyncio.run(engine.close())


@pytest.mark.parametrize("sections", ["sampled", "given", "asked"])
def test_a_debate_is_trained_as_one_tree(model: Path, sections: str) -> None:
    """The longest prompt once, then for each turn what follows the last answer: its seat, and what it said."""
    engine, played = play(model, layout="shared", sections=sections)
    made = datums(played.debate, played.sampled, Advantages.per_agent((1.0, -1.0, 0.5, -0.5)))
    out = engine.forward_backward(made, "importance_sampling").result()
    assert len(made) == AGENTS * ROUNDS
    assert out.metrics["tokens"] == sum(map(len, made))
    own = [len(sampled.tokens) + 900 for sampled in played.sampled]  # in bytes, with the instructions
    assert out.metrics["computed_tokens"] <= max(len(sampled.prompt) for sampled in played.sampled) + sum(own)
    assert out.metrics["computed_tokens"] < 0.65 * out.metrics["tokens"]
    sampled = np.concatenate(
        [
            turn.logprobs[turn.sampled]
            for steps in played.debate.turns_by_agent()
            for turn in (played.sampled[i] for i in steps)
        ]
    )
    trained = np.concatenate([logprobs[datum.mask > 0] for logprobs, datum in zip(out.logprobs, made, strict=True)])
    np.testing.assert_allclose(trained, sampled, atol=1e-4)
    asyncio.run(engine.close())


def test_five_agents_prefill_a_transcript_once_and_sample_as_if_each_had_read_it_alone(
    make_engine: Callable[..., Any],
) -> None:
    """Opening 300, turns of 40, ends of 10. Each round adds its 5 turns to the transcript once, 200 tokens; each prompt has its own end.
    One prompt after the other would be 5 x (310 + 510 + 710) = 7650."""
    engine, rng = make_engine(), np.random.default_rng(0)

    async def main() -> None:
        sampler = await engine.snapshot()
        transcript = rng.integers(0, 50, 300)
        for round in range(3):
            ends = [np.concatenate([[50 + agent, round], rng.integers(0, 50, 8)]) for agent in range(5)]
            prompts = [np.concatenate([transcript, end]) for end in ends]
            calls = [
                sampler.sample(prompt, SamplingParams(max_tokens=40, seed=agent))
                for agent, prompt in enumerate(prompts)
            ]
            for prompt, (sample,) in zip(prompts, await asyncio.gather(*calls), strict=True):
                fresh = await trainer_logprobs(engine, [*prompt, *sample.tokens.tolist()])
                np.testing.assert_allclose(sample.logprobs, fresh[len(prompt) :], atol=1e-4)
                transcript = np.concatenate([transcript, sample.tokens % 50])
        assert engine.statistics["prefilled"] == 300 + 2 * 200 + 15 * 10 == 850

    asyncio.run(main())
