"""Seed 1's two rewards, `win_rate` and `win_minus_loss`, worked by hand.

An agent's win rate is W/V (votes won, ties half, over votes about it), its win minus loss S/M (won less lost, over votes about it).
Returns add -1 for each failed turn; advantages are returns less their mean over the agents.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.making import FAILED, by_agent, debate, near, v1, v2

NOBODY = ["", "", ""]

# name: rounds; valid, malformed; W/V and S/M of each agent
TABLE: dict[str, tuple[list[list[str]], int, int, list[float], list[float]]] = {
    "no votes at all": ([NOBODY], 0, 0, [0, 0, 0], [0, 0, 0]),
    # Agent 2 says 0 beats 1. 0: 1/1. 1: 0/1. Nobody spoke about 2.
    "one vote": ([["", "", "0 > 1"]], 1, 0, [1, 0, 0], [1, -1, 0]),
    # A tie is half a win for both, and no step either way.
    "one tie": ([["", "", "0 = 1"]], 1, 0, [1 / 2, 1 / 2, 0], [0, 0, 0]),
    # Votes: 0>1 (by 2), 1=2 (by 0), 0>2 (by 1), 1>0 (by 2).
    # 0: won, won, lost = 2/3 and (2-1)/3.  1: lost, tie, won = 1.5/3 and 0/3.  2: tie, lost = 0.5/2 and -1/2.
    "ties and wins over two rounds": (
        [["", "", "0 > 1"], ["1 = 2", "0 > 2", "1 > 0"]],
        4,
        0,
        [2 / 3, 1 / 2, 1 / 4],
        [1 / 3, 0, -1 / 2],
    ),
    # Agent 2 praises and blames itself three times; only 0 > 1 is left.
    "votes that name their author are dropped": ([["", "", "2 > 0; 1 > 2; 2 = 2; 0 > 1"]], 1, 0, [1, 0, 0], [1, -1, 0]),
    # The same line twice and its contrary once: three votes. 0: 2/3 and (2-1)/3.
    "repeated lines count each time": ([["", "", "0 > 1; 0 > 1; 1 > 0"]], 3, 0, [2 / 3, 1 / 3, 0], [1 / 3, -1 / 3, 0]),
    # Agent 3 is not there, agent 1 cannot beat itself. Agent 2 naming itself beside Agent 9 is dropped before anyone looks at the 9.
    "malformed lines": ([["", "", "0 > 3; 1 > 1; 2 > 9; 99999999999999999999 = 0"]], 0, 3, [0, 0, 0], [0, 0, 0]),
    # 0 and 1 each have an opinion on the two others; 2's reward comes from both: won 1 of 2.
    "every vote is about others": ([["1 > 2", "2 > 0", ""]], 2, 0, [0, 1, 1 / 2], [-1, 1, 0]),
    # In round 1 of a sequential debate Agent 0 has seen nobody; these rewards count its vote all the same.
    "eligibility is not asked for": ([["1 > 2", "", ""]], 1, 0, [0, 1, 0], [0, 1, -1]),
}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("reward", ["win_rate", "win_minus_loss"])
def test_rewards_as_worked_by_hand(name: str, reward: str) -> None:
    rounds, valid, malformed, win_rate, win_minus_loss = TABLE[name]
    expected = win_rate if reward == "win_rate" else win_minus_loss
    scores, advantages = by_agent(debate(v1(reward=reward), rounds))
    assert (len(scores.votes), scores.lines_invalid) == (valid, malformed)
    near(scores.rewards, expected)
    near(scores.returns, expected)
    near(advantages, [value - sum(expected) / 3 for value in expected])


@pytest.mark.parametrize(
    "choices", [{"schedule": "parallel"}, {"one_ballot_per_pair": True}, {"contract": "three_tag"}]
)
def test_the_other_choices_do_not_change_these_rewards(choices: dict[str, Any]) -> None:
    """One ballot per pair is a rule of generator_judge: here 0 > 1 counts twice and 1 > 0 once, 2/3 and 1/3."""
    scores, _ = by_agent(debate(v1(**choices), [["", "", "0 > 1; 0 > 1; 1 > 0"]]))
    near(scores.rewards, [2 / 3, 1 / 3, 0])


@pytest.mark.parametrize("author", range(3))
@pytest.mark.parametrize("reward", ["win_rate", "win_minus_loss"])
def test_nobody_moves_its_own_reward(author: int, reward: str) -> None:
    """Leave-one-out: whatever an author writes, what it gets is the same as if it had written nothing."""
    said = ["2 > 1", "0 > 2; 2 = 0", "1 > 0; 0 = 1"]
    silent = [*said]
    silent[author] = ""
    stuffed = [*said]
    stuffed[author] = "; ".join([said[author]] * 7 + [f"{author} > {(author + 1) % 3}"] * 5)
    rewards = [by_agent(debate(v1(reward=reward), [NOBODY, row]))[0].rewards for row in (said, silent, stuffed)]
    assert rewards[0][author] == rewards[1][author] == rewards[2][author]
    assert rewards[0] != rewards[1], "the others' rewards do depend on it"


# Failures: -1 in the return of whoever failed, for each time.
# name: protocol choices, rounds; rewards; returns; advantages (win_rate)
FAILURES: dict[str, tuple[dict[str, Any], list[list[str]], list[float], list[float], list[float]]] = {
    # One parse error, all else equal: returns 0, -1, 0 with mean -1/3, so nobody's advantage is 0.
    "one parse error": ({}, [["", FAILED]], [0, 0, 0], [0, -1, 0], [1 / 3, -2 / 3, 1 / 3]),
    "one parse error, the debate goes on": (
        {"on_parse_failure": "continue"},
        [["", FAILED, ""], ["", "", ""]],
        [0, 0, 0],
        [0, -1, 0],
        [1 / 3, -2 / 3, 1 / 3],
    ),
    "each failed turn counts": (
        {"on_parse_failure": "continue"},
        [["", FAILED, ""], ["", FAILED, ""]],
        [0, 0, 0],
        [0, -2, 0],
        [2 / 3, -4 / 3, 2 / 3],
    ),
    # 1 > 0 was said before Agent 0 failed and still counts: returns 0 - 1, 1, 0 with mean 0.
    "what was said before an abort counts": ({}, [["", "", "1 > 0"], [FAILED]], [0, 1, 0], [-1, 1, 0], [-1, 1, 0]),
    # 0 won its only vote and failed once: 1 - 1 = 0, and all returns are the same.
    "a failure can cancel a win": ({}, [["", "", "0 > 1"], [FAILED]], [1, 0, 0], [0, 0, 0], [0, 0, 0]),
    "all returns identical: everyone fails": (
        {"on_parse_failure": "continue"},
        [[FAILED, FAILED, FAILED]],
        [0, 0, 0],
        [-1, -1, -1],
        [0, 0, 0],
    ),
    "all returns identical: everyone ties": ({}, [["1 = 2", "0 = 2", "0 = 1"]], [1 / 2] * 3, [1 / 2] * 3, [0, 0, 0]),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_in_returns_and_advantages(name: str) -> None:
    choices, rounds, rewards, returns, expected = FAILURES[name]
    scores, advantages = by_agent(debate(v1(**choices), rounds, num_agents=3))
    near(scores.rewards, rewards)
    near(scores.returns, returns)
    near(advantages, expected)


def test_win_rate_under_v2s_other_choices() -> None:
    """`reward` is a choice of its own: v2's debate with win_rate. 0 wins both votes about it, 1 one of two, 2 none of two."""
    scores, advantages = by_agent(debate(v2(reward="win_rate"), [NOBODY, ["1 > 2", "0 > 2", "0 > 1"]]))
    near(scores.rewards, [1, 1 / 2, 0])
    near(advantages, [1 / 2, 0, -1 / 2])


def test_one_agent_alone_can_be_scored() -> None:
    """Nobody can vote: 0, and centring one number gives 0."""
    scores, advantages = by_agent(debate(v1(), [["0 > 1"]]))
    assert (len(scores.votes), scores.lines_invalid) == (0, 0)
    near((scores.rewards, advantages), ([0], [0]))
