"""Whole debates on the scripted engine, as what an engine trains on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from moot.debate.protocols import Protocol
from moot.debate.rewards import score
from moot.debate.state import Debate
from moot.debate.types import Message, Parsed, Question
from moot.engine.protocol import AdamParams, Datum, SamplingParams, Scene
from moot.engine.scripted import ScriptedEngine
from moot.rl.advantages import ESTIMATORS, advantages
from moot.rl.rollout import rollout
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.turn import Advantages, SampledTurn, credit
from support.making import v2

AGENTS, ROUNDS = 4, 3
QUESTION = Question("What is 3 + 4?", "7")


@dataclass(frozen=True)
class Played:
    debate: Debate
    sampled: tuple[SampledTurn, ...]
    advantages: Advantages
    datums: list[Datum]

    def of(self, agent: int) -> list[Datum]:
        """The datums stand agent by agent; an agent's are as many as its turns that extend nothing."""
        counts = [sum(not self.sampled[i].extends for i in turns) for turns in self.debate.turns_by_agent()]
        first = sum(counts[:agent])
        return self.datums[first : first + counts[agent]]


@cache
def _play(rendering: Rendering, protocol: Protocol, style: str, rounds: int, max_tokens: int) -> Played:
    engine = ScriptedEngine(style=style, tokenizer=rendering.tokenizer)  # type: ignore[arg-type]
    debate = Debate(QUESTION, AGENTS, rounds, protocol.rules)
    (done,) = asyncio.run(rollout([debate], engine, rendering, SamplingParams(max_tokens)))
    assert done.error is None
    (found,) = advantages([(done.debate, score(done.debate, protocol.scoring))], ESTIMATORS[protocol.scoring.estimator])
    assert found.per == "turn"
    return Played(done.debate, done.sampled, found, datums(done.debate, done.sampled, found))


def played(
    rendering: Rendering, style: str = "well_formed", rounds: int = ROUNDS, max_tokens: int = 2000, **choices: Any
) -> Played:
    return _play(rendering, v2(**choices), style, rounds, max_tokens)


def sequence(datum: Datum) -> np.ndarray:
    """The tokens before they were shifted."""
    return np.append(datum.tokens[:1], datum.targets)


def stretches(datum: Datum) -> list[tuple[bool, np.ndarray]]:
    """The sequence cut into what was read and what was sampled, in order."""
    tokens, sampled = sequence(datum), np.append(0, datum.mask)
    cuts = [0, *(np.flatnonzero(np.diff(sampled)) + 1).tolist(), len(tokens)]
    return [(bool(sampled[a]), tokens[a:b]) for a, b in pairwise(cuts)]


def together(parts: Sequence[np.ndarray]) -> list[float]:
    return np.concatenate(list(parts)).tolist()


STYLES = ["well_formed", "sloppy", "hostile", "mixed"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_growing_gives_one_datum_an_agent_with_all_it_sampled(rendering: Rendering, style: str, schedule: str) -> None:
    debate = played(rendering, style, schedule=schedule)
    assert len(debate.datums) == AGENTS
    for agent, turns in enumerate(debate.debate.turns_by_agent()):
        (datum,) = debate.of(agent)
        assert len(turns) == ROUNDS
        assert together([tokens for sampled, tokens in stretches(datum) if sampled]) == together(
            [debate.sampled[i].tokens for i in turns]
        )
        acted = datum.mask == 1
        assert datum.targets[acted].tolist() == together([debate.sampled[i].tokens for i in turns])
        assert datum.logprobs[acted].tolist() == together([debate.sampled[i].logprobs for i in turns])
        values = [
            credit(debate.debate.turns[i], debate.sampled[i], step, debate.advantages) for step, i in enumerate(turns)
        ]
        assert datum.advantages[acted].tolist() == together(values)
        for array in (datum.logprobs, datum.advantages):
            assert set(array[~acted].tolist()) <= {0.0}
        assert datum.tokens[1:].tolist() == datum.targets[:-1].tolist()


def test_a_turns_logprobs_are_still_its_chance_in_the_datum(rendering: Rendering) -> None:
    """The script picks one of eight answers, so a turn's tokens together have a chance of 1/8, or of 2/8 if two are alike."""
    debate = played(rendering)
    for agent in range(AGENTS):
        (datum,) = debate.of(agent)
        sampled = np.append(0, datum.mask)
        borders = np.flatnonzero(np.diff(sampled) == 1)
        assert len(borders) == ROUNDS
        chances = [8 * math.exp(part.sum()) for part in np.split(datum.logprobs, borders)[1:]]
        assert chances == pytest.approx([round(chance) for chance in chances], abs=1e-4)
        # In round 1 the answers differ in one number, and all eight may be alike; with votes in them they are not.
        assert 1 <= round(chances[0]) <= 8
        assert all(1 <= round(chance) < 8 for chance in chances[1:])


def test_judged_debates_pay_both_sides_and_the_tokens_say_so(rendering: Rendering) -> None:
    """Round 1 sees nobody, so nothing is compared there; in round 2 the votes are about it."""
    debate = played(rendering)
    generator, judge = debate.advantages.streams["generator"], debate.advantages.streams["judge"]
    assert any(value for row in generator for value in row)
    for agent, turns in enumerate(debate.debate.turns_by_agent()):
        (datum,) = debate.of(agent)
        expected = {0.0, *map(np.float32, generator[agent]), *map(np.float32, judge[agent])}
        assert set(datum.advantages.tolist()) <= {float(value) for value in expected}
        assert len(turns) == ROUNDS


@pytest.mark.parametrize("style", ["well_formed", "sloppy"])
@pytest.mark.parametrize("layout", ["growing", "rebuilt"])
def test_a_datum_reads_as_the_debate(rendering: Rendering, style: str, layout: str) -> None:
    debate = played(rendering, style, layout=layout).debate
    for agent, turns in enumerate(debate.turns_by_agent()):
        found = iter(part for datum in played(rendering, style, layout=layout).of(agent) for part in stretches(datum))
        for step, i in enumerate(turns):
            is_sampled, read = next(found)
            prompt = rendering.decode(read)
            assert not is_sampled
            is_sampled, tokens = next(found)
            assert is_sampled
            assert rendering.said(tokens)[0] == debate.turns[i].text
            if step == 0 or layout == "rebuilt":
                assert f"You are Agent {agent}. {AGENTS} agents" in prompt
                assert QUESTION.text in prompt
            else:
                assert QUESTION.text not in prompt
            assert f"Round {step + 1} of {ROUNDS}." in prompt
            for other in debate.turns:
                new = other.round == step if layout == "growing" else other.round <= step
                if other.agent == agent:
                    assert f"[Agent {agent}, round" not in prompt
                elif new and isinstance(other.parsed, Parsed):
                    for field in ("solution", "evaluation"):
                        assert f"{field}: {other.parsed.fields[field]}" in prompt
                    assert f"[Agent {other.agent}, round {other.round}]" in prompt
                    assert f"comparison: {other.parsed.fields['comparison']}" not in prompt  # reviews are blind
                elif new:
                    assert f"[Agent {other.agent}, round {other.round}]\ngave no valid response." in prompt
                else:
                    assert f"[Agent {other.agent}, round {other.round}]" not in prompt
        assert next(found, None) is None


def test_a_window_of_one_round_starts_a_new_datum_each_time_it_moves(rendering: Rendering) -> None:
    """Rounds 1 and 2 show round 1; round 3 drops it, and round 4 drops round 2."""
    debate = played(rendering, rounds=4, history_rounds=1)
    assert len(debate.datums) == 3 * AGENTS
    for agent, turns in enumerate(debate.debate.turns_by_agent()):
        first, second, third = debate.of(agent)
        tokens = [debate.sampled[i].tokens.tolist() for i in turns]
        assert [part.tolist() for sampled, part in stretches(first) if sampled] == tokens[:2]
        assert [part.tolist() for sampled, part in stretches(second) if sampled] == [tokens[2]]
        assert [part.tolist() for sampled, part in stretches(third) if sampled] == [tokens[3]]
        # The last own turn stands in the new prompt as it was sampled, to be read and not to be trained on again.
        (_, read), _ = stretches(second)
        assert contains(read.tolist(), tokens[1])
        (_, read), _ = stretches(third)
        assert contains(read.tolist(), tokens[2])
        assert not contains(read.tolist(), tokens[1]) or tokens[1] == tokens[2]


def contains(whole: list[int], part: list[int]) -> bool:
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


def test_rebuilt_gives_one_datum_a_turn(rendering: Rendering) -> None:
    debate = played(rendering, layout="rebuilt")
    assert len(debate.datums) == AGENTS * ROUNDS
    in_order = [i for turns in debate.debate.turns_by_agent() for i in turns]
    for datum, i in zip(debate.datums, in_order, strict=True):
        (_, read), (_, tokens) = stretches(datum)
        assert read.tolist() == debate.sampled[i].prompt.tolist()
        assert tokens.tolist() == debate.sampled[i].tokens.tolist()
        assert datum.temperature == debate.sampled[i].temperature


def test_turns_cut_at_their_limit_are_failed_and_the_sequence_still_grows(rendering: Rendering) -> None:
    """Twelve tokens are never a whole response: every turn fails, all its tokens get -1, and the next message ends it first."""
    debate = played(rendering, max_tokens=12)
    assert all(turn.failed for turn in debate.debate.turns)
    assert len(debate.datums) == AGENTS
    for agent in range(AGENTS):
        (datum,) = debate.of(agent)
        parts = stretches(datum)
        assert [sampled for sampled, _ in parts] == [False, True] * ROUNDS
        assert [len(tokens) for sampled, tokens in parts if sampled] == [12] * ROUNDS
        assert datum.advantages[datum.mask == 1].tolist() == [-1.0] * (12 * ROUNDS)
        for sampled, tokens in parts[2:]:
            assert sampled or int(tokens[0]) == rendering.stop_ids[0]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("layout", ["growing", "rebuilt", "shared"])
def test_every_style_of_speaking_can_be_trained_on(rendering: Rendering, style: str, layout: str) -> None:
    engine = ScriptedEngine(style=style, tokenizer=rendering.tokenizer)  # type: ignore[arg-type]
    protocol = v2(layout=layout)

    async def one_step() -> tuple[list[PlayedDebate], list[Datum]]:
        done = await rollout([Debate(QUESTION, AGENTS, 2, protocol.rules)] * 6, engine, rendering, SamplingParams(1000))
        scored = [(each.debate, score(each.debate, protocol.scoring)) for each in done]
        found = advantages(scored, ESTIMATORS[protocol.scoring.estimator])
        batch = [
            datum
            for each, values in zip(done, found, strict=True)
            for datum in datums(each.debate, each.sampled, values)
        ]
        await engine.forward_backward(batch, "importance_sampling")
        await engine.optim_step(AdamParams())
        return done, batch

    done, batch = asyncio.run(one_step())
    assert [each.error for each in done] == [None] * 6
    assert len(batch) == 6 * AGENTS * (1 if layout == "growing" else 2)
    assert (engine.steps, engine.trained_tokens) == (1, sum(len(turn.tokens) for each in done for turn in each.sampled))


def test_a_special_token_in_the_script_ends_the_turn_as_it_ends_a_models(name: str, rendering: Rendering) -> None:
    """One of ten attacks of a hostile agent spells ChatML's <|im_end|> after its opening tag."""
    asked = "Round 1 of 3. Write <solution>, <evaluation> and <comparison>."
    prompt = rendering.prompt([Message("system", "You are Agent 0. 3 agents answer."), Message("user", asked)])
    params = SamplingParams(1000, stop=rendering.stops("three_tag"), scene=Scene(agent=0))

    async def turns() -> list[np.ndarray]:
        engines = [ScriptedEngine("hostile", seed, rendering.tokenizer) for seed in range(40)]
        return [(await engine.sample(prompt, params))[0].tokens for engine in engines]

    found = asyncio.run(turns())
    assert [turn.tolist() for turn in found if set(turn[:-1].tolist()) & set(rendering.stop_ids)] == []
    cut_short = [turn for turn in found if rendering.said(turn)[0] == "<solution>"]
    assert bool(cut_short) == (name in ("bytes", "smollm2", "qwen3"))
