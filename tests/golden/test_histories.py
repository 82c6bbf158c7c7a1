"""Which turns of an agent end up in which datum, by layout and history, played on the scripted engine.

`growing` without a window is one datum an agent. A window that drops a round starts a new one; so does every turn of `rebuilt`.
Whatever the split, every sampled token is trained on exactly once.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from moot.debate.protocols import Protocol
from moot.debate.state import Debate
from moot.debate.types import Question
from moot.engine.protocol import SamplingParams
from moot.engine.scripted import ScriptedEngine
from moot.rl.rollout import rollout
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.turn import Advantages
from support.making import v1, v2

AGENTS, ROUNDS = 3, 4
ENGINE = ScriptedEngine(style="well_formed", seed=3)
RENDERING = Rendering(ENGINE.tokenizer)


def played(protocol: Protocol) -> PlayedDebate:
    # A bare question: the script never agrees to end early in three_tag, and five_tag rounds that agree would change the counts.
    debate = Debate(Question("What is 3 + 4?"), AGENTS, ROUNDS, protocol.rules)
    (result,) = asyncio.run(rollout([debate], ENGINE, RENDERING, SamplingParams(max_tokens=2000), seed=1))
    assert result.error is None
    return result


# history_rounds: the rounds of one agent's datums, with four rounds
GROWING = {
    # Everything is always in sight.
    -1: [[1, 2, 3, 4]],
    # Nothing is ever in sight: each turn is a conversation of its own.
    0: [[1], [2], [3], [4]],
    # Round 2 sees round 1; round 3 has lost it; round 4 has lost round 2.
    1: [[1, 2], [3], [4]],
    # Round 3 still sees rounds 1 and 2; round 4 has lost round 1.
    2: [[1, 2, 3], [4]],
    # Four rounds never fill a window of three.
    3: [[1, 2, 3, 4]],
}


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("history", GROWING)
def test_growing(history: int, schedule: str) -> None:
    result = played(v2(history_rounds=history, schedule=schedule))
    check(result, GROWING[history])


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("history", GROWING)
def test_rebuilt_starts_a_new_datum_at_each_turn(history: int, schedule: str) -> None:
    result = played(v2(history_rounds=history, schedule=schedule, layout="rebuilt"))
    check(result, [[1], [2], [3], [4]])


def test_v1_as_it_stands_is_rebuilt() -> None:
    """Five tags: the script may agree early, so there are as many datums as turns."""
    result = played(v1())
    assert len(datums(result.debate, result.sampled, Advantages.per_agent((0.0,) * AGENTS))) == len(result.debate.turns)


def check(result: PlayedDebate, rounds: list[list[int]]) -> None:
    debate = result.debate
    assert [(turn.round, turn.agent) for turn in debate.turns] == [
        (r, a) for r in range(1, ROUNDS + 1) for a in range(AGENTS)
    ]
    made = datums(debate, result.sampled, Advantages.per_agent((1.0, 2.0, 3.0)))
    assert len(made) == AGENTS * len(rounds)
    for agent in range(AGENTS):
        own = made[agent * len(rounds) : (agent + 1) * len(rounds)]
        for datum, numbers in zip(own, rounds, strict=True):
            spoken = [result.sampled[(number - 1) * AGENTS + agent] for number in numbers]
            acted = datum.mask > 0
            assert np.array_equal(datum.targets[acted], np.concatenate([turn.tokens for turn in spoken]))
            assert np.array_equal(datum.logprobs[acted], np.concatenate([turn.logprobs for turn in spoken]))
            assert set(datum.advantages[acted]) == {agent + 1.0}
            assert not datum.logprobs[~acted].any()
            assert not datum.advantages[~acted].any()
    assert sum(int(datum.mask.sum()) for datum in made) == sum(len(turn.tokens) for turn in result.sampled)


def test_a_conversation_rendered_anew_holds_own_turns_as_they_were_sampled() -> None:
    """Window of one round, round 3: the prompt shows Agent 0's own tokens of round 2, those of round 1 are gone."""
    result = played(v2(history_rounds=1))
    first, second, third = (result.sampled[number * AGENTS] for number in range(3))
    assert [turn.extends for turn in (first, second, third)] == [False, True, False]
    assert holds(third.prompt, second.tokens)
    assert not holds(third.prompt, first.tokens)


def holds(whole: np.ndarray, part: np.ndarray) -> bool:
    windows = np.lib.stride_tricks.sliding_window_view(whole, len(part))
    return bool((windows == part).all(axis=1).any())


def test_a_growing_prompt_is_the_last_prompt_the_sampled_tokens_and_a_suffix() -> None:
    """The datum's own tokens read: prompt, turn, new, turn, new, turn, new, turn; nothing was tokenised twice."""
    result = played(v2())
    made = datums(result.debate, result.sampled, Advantages.per_agent((0.0,) * AGENTS))
    for agent, datum in enumerate(made):
        own = [result.sampled[number * AGENTS + agent] for number in range(ROUNDS)]
        whole = np.concatenate([piece for turn in own for piece in (turn.prompt, turn.tokens)])
        assert np.array_equal(datum.tokens, whole[:-1])
        assert np.array_equal(datum.targets, whole[1:])
