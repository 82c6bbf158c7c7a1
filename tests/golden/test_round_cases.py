"""Who is asked to do what in which round: seed 1's round-1 cases and seed 2's parallel case, from the one rule of eligibility."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest

from moot.debate.protocols import Protocol
from moot.debate.state import Debate
from moot.debate.types import Question
from support.making import FAILED, debate, v1, v2

NOTHING = "<evaluation>N/A</evaluation> and <comparison>N/A</comparison>"
ONLY_ONE = "<comparison>N/A</comparison>"


def pairs(agents: Sequence[int]) -> str:
    """Whom to compare, as a message names them."""
    return f"in exactly these names: {'; '.join(f'Agent {a} and Agent {b}' for a, b in combinations(agents, 2))} </comparison>"


def before(protocol: Protocol, rounds: list[list[str]], num_agents: int, max_rounds: int = 3) -> Debate:
    """The debate up to here, in which somebody is about to speak."""
    turns = debate(protocol, rounds, num_agents=num_agents).turns if rounds else ()
    return Debate(Question("What is 3 + 4?"), num_agents, max_rounds, protocol.rules, turns)


def asked(state: Debate, agent: int) -> tuple[tuple[int, ...], str]:
    observation = state.observe(agent)
    assert state.next_speakers.count(agent) == 1
    return observation.eligible, observation.newest.content.split("\n\n")[-1]


@pytest.mark.parametrize("spoken", range(4))
def test_seed_1_round_1(spoken: int) -> None:
    """Agent 0 has nothing to evaluate or compare, Agent 1 evaluates Agent 0, Agent 2 and 3 compare those before them."""
    eligible, said = asked(before(v1(), [[""] * spoken] if spoken else [], 4), spoken)
    assert eligible == tuple(range(spoken))
    assert said.startswith("Round 1 of 3.")
    if spoken == 0:
        assert NOTHING in said
        assert "Agent" not in said and "pair" not in said, "nothing about comparisons where there is nobody to compare"
    elif spoken == 1:
        assert "<evaluation> about Agent 0 </evaluation>" in said
        assert ONLY_ONE in said
        assert "pair" not in said
    else:
        assert f"<evaluation> about each of {', '.join(f'Agent {i}' for i in range(spoken))} </evaluation>" in said
        assert pairs(range(spoken)) in said
        assert f"Agent {spoken}" not in said, "nobody is asked about itself"


@pytest.mark.parametrize("agent", range(3))
def test_seed_1_from_round_2_on_everyone_compares_all_others(agent: int) -> None:
    eligible, said = asked(before(v1(), [[""] * 3, [""] * agent], 3), agent)
    others = [other for other in range(3) if other != agent]
    assert eligible == tuple(others)
    assert said.startswith("Round 2 of 3.")
    assert pairs(others) in said


@pytest.mark.parametrize("agent", range(4))
def test_seed_2_in_parallel(agent: int) -> None:
    """In round 1 nobody has seen anybody; in round 2 everybody has seen all others of round 1."""
    eligible, said = asked(before(v2(), [], 4), agent)
    assert eligible == ()
    assert NOTHING in said
    eligible, said = asked(before(v2(), [[""] * 4], 4), agent)
    others = [other for other in range(4) if other != agent]
    assert eligible == tuple(others)
    assert pairs(others) in said


def test_a_failed_turn_makes_nobody_eligible() -> None:
    """Agent 1 failed: Agents 0 and 2 have one answer to evaluate, Agent 1 has two to compare."""
    state = before(v2(), [["", FAILED, ""]], 3)
    assert [asked(state, agent)[0] for agent in range(3)] == [(2,), (0, 2), (0,)]
    assert "<evaluation> about Agent 2 </evaluation>" in asked(state, 0)[1]
    assert ONLY_ONE in asked(state, 0)[1]
    assert pairs((0, 2)) in asked(state, 1)[1]


def test_without_history_nobody_is_ever_asked_to_compare() -> None:
    for protocol in (v1(history_rounds=0), v2(history_rounds=0)):
        state = before(protocol, [[""] * 3], 3)
        eligible, said = asked(state, state.next_speakers[0])
        assert eligible == ()
        assert NOTHING in said


def test_a_window_forgets_who_failed_within_it() -> None:
    """Agent 1 spoke in round 1 and failed in round 2. With a window of one round it is out of sight in round 3, with two it is not."""
    rounds = [[""] * 3, ["", FAILED, ""]]
    assert asked(before(v2(history_rounds=1), rounds, 3), 0)[0] == (2,)
    assert asked(before(v2(history_rounds=2), rounds, 3), 0)[0] == (1, 2)
