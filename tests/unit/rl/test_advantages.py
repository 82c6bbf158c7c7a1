"""What holds for advantages whatever was said: centred values sum to nothing, silence gets nothing, penalties stay penalties."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.debate.protocols import PRESETS, Protocol
from moot.debate.rewards import Scores
from support.making import FAILED, by_agent, by_step, debate, v2

Table = list[list[str]]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    num_agents = draw(st.integers(2, 5))
    number = st.integers(0, num_agents - 1)
    line = st.tuples(number, st.sampled_from(">>="), number).map(lambda parts: "{} {} {}".format(*parts))
    cell = st.one_of(st.just(FAILED), *[st.lists(line, max_size=5).map("; ".join)] * 6)
    return draw(st.lists(st.lists(cell, min_size=num_agents, max_size=num_agents), min_size=1, max_size=4))


protocols = st.builds(
    lambda schedule, consensus, history, penalty: v2(
        schedule=schedule, judge_consensus=consensus, history_rounds=history, enable_format_penalty=penalty
    ),
    st.sampled_from(["parallel", "sequential"]),
    st.sampled_from(["all", "leave_one_out"]),
    st.sampled_from([-1, 0, 1, 2]),
    st.booleans(),
)


def with_signal(scores: Scores, stream: str, advantages: tuple[tuple[float, ...], ...]) -> list[float]:
    """The centred part of the advantages, penalties taken off again."""
    found = scores.streams[stream]
    return [
        advantage - added
        for row, values, penalties in zip(advantages, found.to_center, found.added, strict=True)
        for advantage, value, added in zip(row, values, penalties, strict=True)
        if value is not None
    ]


@settings(max_examples=100)
@given(tables(), protocols)
def test_centred_advantages_sum_to_nothing_over_the_steps_with_a_signal(rows: Table, protocol: Protocol) -> None:
    scores, advantages = by_step(debate(protocol, rows))
    for stream in ("generator", "judge"):
        assert math.fsum(with_signal(scores, stream, advantages[stream])) == pytest.approx(0, abs=1e-9)


@settings(max_examples=100)
@given(tables(), protocols)
def test_a_step_without_a_signal_gets_its_penalty_and_nothing_else(rows: Table, protocol: Protocol) -> None:
    played = debate(protocol, rows)
    scores, advantages = by_step(played)
    for agent, turns in enumerate(played.turns_by_agent()):
        for step, i in enumerate(turns):
            failed = played.turns[i].failed
            if scores.streams["generator"].to_center[agent][step] is None:
                assert advantages["generator"][agent][step] == (-1.0 if failed else 0.0)
            else:
                assert not failed
            if scores.streams["judge"].to_center[agent][step] is None:
                assert advantages["judge"][agent][step] in (0.0, -0.5)


@settings(max_examples=75)
@given(tables())
def test_to_the_letter_everything_sums_to_nothing(rows: Table) -> None:
    _, advantages = by_step(debate(PRESETS["v2_literal"], rows))
    for stream in advantages.values():
        assert math.fsum(value for row in stream for value in row) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("reward", ["win_rate", "win_minus_loss"])
@settings(max_examples=75)
@given(rows=tables())
def test_rewards_by_agent_sum_to_nothing_and_keep_their_order(reward: str, rows: Table) -> None:
    scores, advantages = by_agent(debate(v2(reward=reward), rows))
    assert math.fsum(advantages) == pytest.approx(0, abs=1e-9)
    for a in range(len(advantages)):
        for b in range(len(advantages)):
            assert advantages[a] - advantages[b] == pytest.approx(scores.returns[a] - scores.returns[b], abs=1e-9)


@settings(max_examples=75)
@given(tables())
def test_rewards_stay_in_their_range(rows: Table) -> None:
    """[0, 1], [-1, 1] and [-1, 1]; a judge may be at -1 + 0 or 0 - 0.5, never below -1."""
    rate, _ = by_agent(debate(v2(reward="win_rate"), rows))
    margin, _ = by_agent(debate(v2(reward="win_minus_loss"), rows))
    assert all(0 <= value <= 1 for value in rate.rewards)
    assert all(-1 <= value <= 1 for value in margin.rewards)
    scores, _ = by_step(debate(v2(), rows))
    assert all(-1 <= value <= 1 for stream in scores.streams.values() for row in stream.values for value in row)


@settings(max_examples=75)
@given(tables())
def test_win_minus_loss_is_twice_the_win_rate_less_one_where_anyone_voted(rows: Table) -> None:
    """W = wins + ties/2, so 2W/V - 1 = (wins - losses)/V."""
    rate, _ = by_agent(debate(v2(reward="win_rate"), rows))
    margin, _ = by_agent(debate(v2(reward="win_minus_loss"), rows))
    mentioned = {
        int(name)
        for row in rows
        for author, said in enumerate(row)
        if said != FAILED
        for line in said.split("; ")
        if line and str(author) not in (names := re.findall(r"\d+", line)) and names[0] != names[1]
        for name in names
    }
    for agent, (a, b) in enumerate(zip(rate.rewards, margin.rewards, strict=True)):
        assert b == pytest.approx(2 * a - 1 if agent in mentioned else 0, abs=1e-12)
