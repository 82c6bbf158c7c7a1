"""The rules as data: what is refused and how, what presets say, and whom one may judge."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.debate.parsing import parse
from moot.debate.protocols import PRESETS, V1, V2, Protocol, preset
from moot.debate.rules import Rules, candidates, eligible, shown
from moot.debate.scoring import Scoring
from moot.debate.types import Turn
from moot.errors import ConfigError
from support.making import FAILED, text, v1, v2

# The specification's table of choices, column by column.
TABLE: dict[str, tuple[Any, Any]] = {
    "schedule": ("sequential", "parallel"),
    "contract": ("five_tag", "three_tag"),
    "visible": (("solution", "evaluation", "comparison", "consensus_reason"), ("solution", "evaluation")),
    "layout": ("rebuilt", "growing"),
    "history_rounds": (-1, -1),
    "max_chars_per_field": (2000, 2000),
    "on_parse_failure": ("abort", "continue"),
    "reward": ("win_rate", "generator_judge"),
    "one_ballot_per_pair": (False, True),
    "judge_consensus": ("all", "all"),
    "enable_format_penalty": (True, True),
    "lambda_gen": (1, 1),
    "lambda_judge": (1, 1),
    # What belongs to the reward: center_group for both columns.
    "advantage": ("auto", "auto"),
    "evaluation_credit": ("generator", "generator"),
    "personas": (False, True),
    "literal": (False, False),
    # Not in the table: off unless named.
    "shuffle_labels": (False, False),
    "closing_ballot": (False, False),
    "sections": ("sampled", "sampled"),
    "temperature": (1, 1),
    "reward_mix": (0, 0),
    "correct_bonus": (0, 0),
    "voters": ("both", "both"),
    "both_orders": (False, False),
}


def test_the_presets_are_the_columns_of_the_table() -> None:
    first, second = ({**vars(each.rules), **vars(each.scoring)} for each in (V1, V2))
    assert {name: (first[name], second[name]) for name in TABLE} == TABLE
    rules, scoring = ({field.name for field in fields(kind)} for kind in (Rules, Scoring))
    assert rules | scoring == set(TABLE) and not rules & scoring
    assert (V1.scoring.estimator, V2.scoring.estimator) == ("center_group", "center_group")
    literal = {**V2.as_dict(), "literal": True, "one_ballot_per_pair": False}
    assert PRESETS["v2_literal"].as_dict() == literal
    assert (preset("v1"), preset("v2")) == (V1, V2)
    advocates = {"positions": "assigned", "sections": "asked", "personas": False, "reward": "win_minus_loss"}
    assert PRESETS["advocates"].as_dict() == {**V2.as_dict(), **advocates}


def test_choices_go_to_json_and_back() -> None:
    for each in PRESETS.values():
        assert V2.with_choices(each.as_dict()) == each


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"colour": 1}, ["'colour'", "schedule"]),
        ({"schedule": "random"}, ["schedule", "'random'", "sequential", "parallel"]),
        ({"schedule": None}, ["schedule", "None", "sequential", "parallel"]),
        ({"schedule": ["parallel"]}, ["schedule", "['parallel']", "sequential"]),
        ({"contract": 5}, ["contract", "5", "three_tag", "five_tag"]),
        ({"layout": True}, ["layout", "True", "growing", "rebuilt"]),
        ({"layout": "shared", "shuffle_labels": True}, ["shuffle_labels", "'shared'", "layout rebuilt"]),
        ({"positions": "both"}, ["positions", "'both'", "none", "assigned"]),
        ({"positions": "assigned"}, ["positions assigned", "sections asked", "the protocol advocates"]),
        (
            {"positions": "assigned", "sections": "asked", "closing_ballot": True},
            ["positions assigned", "no closing_ballot"],
        ),
        ({"on_parse_failure": "stop"}, ["on_parse_failure", "'stop'", "continue", "abort"]),
        ({"judge_consensus": "some"}, ["judge_consensus", "'some'", "leave_one_out"]),
        ({"visible": "solution"}, ["visible", "'solution'", "list"]),
        ({"visible": [3]}, ["visible", "3", "list"]),
        ({"visible": ["solution", "answer"]}, ["visible", "'answer'", "consensus_reason"]),
        ({"history_rounds": -2}, ["history_rounds", "-2", "-1"]),
        ({"history_rounds": True}, ["history_rounds", "True"]),
        ({"history_rounds": "1"}, ["history_rounds", "'1'"]),
        ({"history_rounds": 1.0}, ["history_rounds", "1.0"]),
        ({"max_chars_per_field": -1}, ["max_chars_per_field", "-1", "2000"]),
        ({"lambda_gen": -0.5}, ["lambda_gen", "-0.5", "usual weight is 1"]),
        ({"lambda_judge": float("nan")}, ["lambda_judge", "nan"]),
        ({"lambda_judge": float("inf")}, ["lambda_judge", "inf"]),
        ({"lambda_gen": "1"}, ["lambda_gen", "'1'", "number"]),
        ({"lambda_gen": True}, ["lambda_gen", "True", "number"]),
        ({"literal": 1}, ["literal", "1", "true or false"]),
        ({"personas": "yes"}, ["personas", "'yes'", "true or false"]),
        ({"one_ballot_per_pair": None}, ["one_ballot_per_pair", "None", "true or false"]),
        ({"reward": ""}, ["reward", "''", "win_rate"]),
        ({"reward": 1}, ["reward", "1"]),
        ({"advantage": ["center_group"]}, ["advantage", "['center_group']"]),
    ],
)
def test_a_wrong_choice_is_refused_with_field_value_and_fix(choices: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        V2.with_choices(choices)
    assert [word for word in says if word not in str(error.value)] == []
    assert "\n" not in str(error.value)


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=f"{', '.join(PRESETS)}, got 'v3'"):
        preset("v3")


def test_whole_numbers_do_for_weights() -> None:
    assert V2.with_choices({"lambda_gen": 2, "lambda_judge": 0}).scoring.lambda_gen == 2


# Whom one may judge, against the words of the specification read one by one

GOOD = parse(text(), "three_tag")
BAD = parse(FAILED, "three_tag")


@st.composite
def debates(draw: st.DrawFn) -> tuple[Protocol, list[Turn], int]:
    protocol = v2(
        schedule=draw(st.sampled_from(["sequential", "parallel"])),
        history_rounds=draw(st.sampled_from([-1, 0, 1, 2, 3])),
        layout=draw(st.sampled_from(["growing", "rebuilt", "shared"])),
    )
    num_agents = draw(st.integers(1, 5))
    turns = []
    for round in range(1, draw(st.integers(1, 5)) + 1):
        for agent in range(num_agents):
            if draw(st.integers(0, 9)) > 0:  # transcripts from elsewhere may leave turns out
                turns.append(Turn(round, agent, "", draw(st.sampled_from([GOOD, GOOD, GOOD, BAD]))))
    return protocol, turns, num_agents


def may_see(protocol: Protocol, earlier: Turn, round: int) -> bool:
    if protocol.rules.history_rounds == 0:
        return False
    if earlier.round == round:
        return protocol.rules.schedule == "sequential"
    return protocol.rules.history_rounds == -1 or earlier.round >= round - protocol.rules.history_rounds


@settings(max_examples=300)
@given(debates())
def test_candidates_are_the_newest_parsed_responses_shown(given_debate: tuple[Protocol, list[Turn], int]) -> None:
    protocol, turns, _ = given_debate
    for i, found in enumerate(candidates(protocol.rules, turns)):
        expected: dict[int, int] = {}
        for j, earlier in enumerate(turns[:i]):
            if earlier.agent != turns[i].agent and not earlier.failed and may_see(protocol, earlier, turns[i].round):
                expected[earlier.agent] = j
        assert found == expected


@settings(max_examples=300)
@given(debates())
def test_the_eligible_agents_are_those_with_a_candidate(given_debate: tuple[Protocol, list[Turn], int]) -> None:
    protocol, turns, _ = given_debate
    for i, found in enumerate(candidates(protocol.rules, turns)):
        # What the author was told before it spoke: nothing but the turns before its own.
        assert eligible(protocol.rules, turns[:i], turns[i].agent, turns[i].round) == tuple(sorted(found))


@settings(max_examples=200)
@given(debates(), st.integers(1, 6))
def test_what_is_shown(given_debate: tuple[Protocol, list[Turn], int], round: int) -> None:
    protocol, turns, _ = given_debate
    spoken = [turn for turn in turns if turn.round <= round]
    assert shown(protocol.rules, spoken, round) == [
        i for i, turn in enumerate(spoken) if may_see(protocol, turn, round)
    ]


def test_v1_protocol_sees_the_turns_of_its_own_round_within_any_window() -> None:
    """K counts finished rounds: in round 3 with K = 1, the second speaker sees round 2 and the first speaker of round 3."""
    turns = [Turn(round, agent, "", GOOD) for round in (1, 2, 3) for agent in range(3)][:7]
    assert shown(v1(history_rounds=1).rules, turns, 3) == [3, 4, 5, 6]
    assert shown(v1(history_rounds=0).rules, turns, 3) == []
    assert shown(v2(history_rounds=1).rules, turns[:6], 3) == [3, 4, 5]
