"""Who is called what must not matter: renaming the agents permutes their rewards and advantages, and does nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.making import FAILED, by_agent, by_step, debate, near, v2

Table = list[list[str]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Table, list[int]]:
    """Who said what, and a permutation: agent i is to be called names[i]."""
    num_agents = draw(st.integers(3, 5))
    number = st.integers(0, num_agents)  # one too many: malformed lines are renamed too, and stay malformed
    line = st.tuples(number, st.sampled_from(">>="), number).map(lambda parts: "{} {} {}".format(*parts))
    cell = st.one_of(st.just(FAILED), *[st.lists(line, max_size=5).map("; ".join)] * 5)
    rows = draw(st.lists(st.lists(cell, min_size=num_agents, max_size=num_agents), min_size=1, max_size=3))
    return rows, draw(st.permutations(range(num_agents)))


def renamed(rows: Table, names: list[int]) -> Table:
    """The same debate with agent i in seat names[i], called so by everyone. A number nobody has stays what it is."""
    known = dict(enumerate(names))
    result = []
    for row in rows:
        seats = [""] * len(names)
        for agent, said in enumerate(row):
            change = re.sub(r"\d+", lambda number: str(known.get(int(number[0]), int(number[0]))), said)
            seats[names[agent]] = said if said == FAILED else change
        result.append(seats)
    return result


def reseated(values: Any, names: list[int]) -> list[Any]:
    seats: list[Any] = [None] * len(names)
    for agent, value in enumerate(values):
        seats[names[agent]] = value
    return seats


@pytest.mark.parametrize("reward", ["win_rate", "win_minus_loss"])
@settings(max_examples=150)
@given(given_table=tables())
def test_rewards_by_agent(reward: str, given_table: tuple[Table, list[int]]) -> None:
    rows, names = given_table
    before, advantages_before = by_agent(debate(v2(reward=reward), rows))
    after, advantages_after = by_agent(debate(v2(reward=reward), renamed(rows, names)))
    assert (len(before.votes), before.lines_invalid) == (len(after.votes), after.lines_invalid)
    near(after.rewards, reseated(before.rewards, names))
    near(after.returns, reseated(before.returns, names))
    near(advantages_after, reseated(advantages_before, names))


@pytest.mark.parametrize("consensus", ["all", "leave_one_out"])
@pytest.mark.parametrize("ballots", [True, False])
@settings(max_examples=100)
@given(given_table=tables(), estimator=st.sampled_from(["center_group", "center_round", "normalize_batch"]))
def test_generator_judge_in_parallel(
    consensus: str, ballots: bool, given_table: tuple[Table, list[int]], estimator: str
) -> None:
    """Not to the letter: there the first two turns in speaking order are exempt, so seats do matter."""
    rows, names = given_table
    protocol = v2(judge_consensus=consensus, one_ballot_per_pair=ballots, advantage=estimator)
    before, advantages_before = by_step(debate(protocol, rows))
    after, advantages_after = by_step(debate(protocol, renamed(rows, names)))
    assert len(before.votes) == len(after.votes)
    assert (before.lines_invalid, before.missing_comparisons) == (after.lines_invalid, after.missing_comparisons)
    for stream in ("generator", "judge"):
        near(after.streams[stream].values, reseated(before.streams[stream].values, names))
        close(advantages_after[stream], reseated(advantages_before[stream], names))


def close(found: Any, expected: Any) -> None:
    """Normalising divides by a small number, which makes the last digits larger."""
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, abs=1e-9)
