"""Whose votes count, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moot.debate.parsing import BALLOT
from moot.debate.types import Said
from moot.debate.votes import ballots
from moot.rl.trust import panel
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from support.making import Tabled, by_agent, by_step, debate, lines, near, reward, text, v1, v2, values

# Four agents, two rounds. Round 1 answers 7, 8, 7, 9. In round 2 they answer 7, 7, 8, 9 and vote about round 1:
#   Agent 0 (holds 7): 1 > 3 (8 over 9), 2 > 1 (7 over 8)
#   Agent 1 (holds 7): 0 > 3 (7 over 9)
#   Agent 2 (holds 8): 0 > 3 (7 over 9), 1 > 3 (8 over 9)
#   Agent 3 (holds 9): 1 > 0 (8 over 7)
ANSWERS = [["7", "8", "7", "9"], ["7", "7", "8", "9"]]
VOTES = [["", "", "", ""], ["1 > 3; 2 > 1", "0 > 3", "0 > 3; 1 > 3", "1 > 0"]]


def four(**choices: Any) -> Tabled:
    return debate(v2(**choices), VOTES, ANSWERS)


def heard(played: Tabled, *said: str) -> Tabled:
    return played.heard([Said(text(lines(each), contract=BALLOT)) for each in said])  # type: ignore[return-value]


def test_every_vote_counts_unless_it_is_said_otherwise() -> None:
    """0: 2 for, 1 against = 1/3. 1: 3 for, 1 against = 1/2. 2: 1 for = 1. 3: 4 against = -1."""
    scores, _ = by_step(four())
    near([row[0] for row in values(scores, "generator")], [1 / 3, 1 / 2, 1, -1])
    assert len(scores.votes) == 6


# Agents, judges, or both


def test_judges_alone() -> None:
    """A judge without a seat says 3 > 1 and 1 > 0 about the last answers; of the agents' six votes none counts, and nobody is fined."""
    scores, _ = by_step(heard(four(voters="judges"), "3 > 1; 1 > 0"))
    assert [vote.author for vote in scores.votes] == [4, 4]
    near([row[1] for row in values(scores, "generator")], [-1, 0, 0, 1])
    near(values(scores, "judge"), [[0, 0]] * 4)


def test_agents_alone_is_as_if_no_judge_had_been_asked() -> None:
    assert by_step(heard(four(voters="agents"), "3 > 1")) == by_step(four(voters="agents"))
    played = debate(v1(voters="agents"), [["", "", "0 > 1"]])
    assert by_agent(heard(played, "1 > 0")) == by_agent(played)


def test_judges_alone_in_win_rate() -> None:
    near(by_agent(heard(debate(v1(voters="judges"), [["", "", "0 > 1"]]), "1 > 0"))[0].rewards, [0, 1, 0])


def test_a_debate_without_a_vote_that_counts_has_no_winner() -> None:
    played = four(voters="judges")
    assert (
        PlayedDebate(played, scoring=played.scoring, scores=reward(played), grades=grade(played)).outcome.winner is None
    )  # type: ignore[union-attr]


# Both orders


def test_the_second_time_a_judge_knows_the_agents_the_other_way_round() -> None:
    played = four(both_orders=True)
    once, again = [0, 1, 2, 3], [3, 2, 1, 0]
    assert [list(played.labels(viewer)) for viewer in (0, 4, 5, 6, 7)] == [once, once, again, once, again]
    shown = played.observe_as_judge(1).newest.content
    places = [shown.index(f"solution: \\boxed{{{answer}}}") for answer in ("9", "8")]
    assert places == sorted(places)  # Agent 3's answer 9 comes first now, as Agent 0's
    shuffled = four(both_orders=True, shuffle_labels=True)
    assert [a + b for a, b in zip(shuffled.labels(4), shuffled.labels(5), strict=True)] == [3, 3, 3, 3]


def test_only_what_survives_the_swap_counts() -> None:
    """By seats: first 0 > 1, 2 > 3, 0 = 2; the other way round 0 > 1 (said 3 > 2), 3 > 2 (said 0 > 1), 0 = 2 (said 1 = 3). 2 and 3 flip."""
    played = heard(four(both_orders=True, voters="judges"), "0 > 1; 2 > 3; 0 = 2", "3 > 2; 0 > 1; 1 = 3")
    scores, _ = by_step(played)
    agent = [turn.agent for turn in played.turns]
    assert [(agent[vote.left], agent[vote.right], vote.verdict) for vote in scores.votes] == [(0, 1, ">"), (0, 2, "=")]
    near([row[1] for row in values(scores, "generator")], [1, -1, 0, 0])
    found = panel([PlayedDebate(played, scoring=played.scoring, scores=scores, grades=grade(played))])
    assert found["trust/order_flips"] == pytest.approx(1 / 3)


def test_a_pair_that_was_judged_in_one_order_only_says_nothing() -> None:
    played = heard(four(both_orders=True), "0 > 1; 2 > 3", "3 > 2")
    assert len(ballots(played, played.scoring).outside) == 1
    found = panel([PlayedDebate(played, scoring=played.scoring, scores=reward(played), grades=grade(played))])
    assert found["trust/order_flips"] == 0
    alone = heard(four(both_orders=True), "0 > 1")
    assert ballots(alone, replace(alone.scoring)).outside == ()


def test_a_preference_that_becomes_a_tie_has_changed() -> None:
    played = heard(four(both_orders=True), "0 > 1", "2 = 3")
    assert ballots(played, played.scoring).outside == ()
    found = panel([PlayedDebate(played, scoring=played.scoring, scores=reward(played), grades=grade(played))])
    assert found["trust/order_flips"] == 1
