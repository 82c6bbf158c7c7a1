"""Reading transcripts: what a line must be, what is said of one that is not, and that the others are scored."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from moot.cli.score import show
from moot.debate.protocols import PRESETS, V1, V2, Protocol
from moot.debate.rewards import Grades
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tools.transcripts import BadLine, as_json, failures, read_debate, score
from support.counted_work import lines_run
from support.making import lines, text

TURNS = [{"round": 1, "agent": agent, "text": text()} for agent in range(3)]
VOTES = [
    {"round": 2, "agent": agent, "text": text(lines(said))} for agent, said in enumerate(["1 > 2", "0 > 2", "0 > 1"])
]
GOOD: dict[str, Any] = {"question": "q", "num_agents": 3, "turns": TURNS + VOTES}
LINE = json.dumps(GOOD)


VOTING = [preset for name, preset in PRESETS.items() if name != "advocates"]
"""The presets in which agents vote, any number of them."""


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != key}


def turn(**change: Any) -> dict[str, Any]:
    return {**GOOD, "turns": [{**TURNS[0], **change}]}


BAD: list[tuple[Any, str]] = [
    ("not json", "not JSON"),
    ("{", "not JSON"),
    ("{} {}", "not JSON"),
    ('{"question": NaN}', "not JSON: NaN"),
    ('{"num_agents": Infinity}', "not JSON: Infinity"),
    ("[" * 100_000, "not JSON"),
    ('{"num_agents": ' + "9" * 5000 + "}", "not JSON"),
    ([], "must be an object, got a list"),
    (3, "must be an object, got an integer"),
    (None, "must be an object, got null"),
    ("text", "must be an object, got a string"),
    ({}, "missing key num_agents, question, turns"),
    (without("question"), "missing key question"),
    (without("num_agents"), "missing key num_agents"),
    (without("turns"), "missing key turns"),
    ({**GOOD, "extra": 1}, "unknown key extra"),
    ({**GOOD, "question": 3}, "question must be a string, got an integer"),
    ({**GOOD, "question": None}, "question must be a string, got null"),
    ({**GOOD, "num_agents": "3"}, "num_agents must be an integer, got a string"),
    ({**GOOD, "num_agents": 2.5}, "num_agents must be an integer, got a number"),
    ({**GOOD, "num_agents": 3.0}, "num_agents must be an integer"),
    ({**GOOD, "num_agents": True}, "num_agents must be an integer, got true or false"),
    ({**GOOD, "num_agents": 0}, "num_agents must be at least 1, got 0"),
    ({**GOOD, "num_agents": 2}, "turns[2].agent must be below num_agents 2, got 2"),
    ({**GOOD, "turns": {}}, "turns must be a list, got an object"),
    ({**GOOD, "turns": ["x"]}, "turns[0] must be an object with round, agent and text"),
    ({**GOOD, "turns": [{"round": 1, "agent": 0}]}, "turns[0] must be an object with round, agent and text"),
    (turn(extra=1), "turns[0] must be an object with round, agent and text"),
    (turn(round=0), "turns[0].round must be at least 1, got 0"),
    (turn(round="1"), "turns[0].round must be an integer, got a string"),
    (turn(round=1.0), "turns[0].round must be an integer"),
    (turn(agent=-1), "turns[0].agent must be at least 0, got -1"),
    (turn(agent=3), "turns[0].agent must be below num_agents 3, got 3"),
    (turn(agent=True), "turns[0].agent must be an integer"),
    (turn(text=None), "turns[0].text must be a string, got null"),
    (turn(text=["x"]), "turns[0].text must be a string, got a list"),
    ({**GOOD, "turns": VOTES + TURNS}, "turns[3].round must not decrease, got 1 after 2"),
    ({**GOOD, "turns": [TURNS[0], TURNS[0]]}, "turns[1]: agent 0 speaks twice in round 1"),
    ({**GOOD, "answer": None}, "answer must be a string or a number, got null"),
    ({**GOOD, "answer": True}, "answer must be a string or a number"),
    ({**GOOD, "answer": [4]}, "answer must be a string or a number, got a list"),
    ({**GOOD, "protocol": "v1"}, "protocol must be an object, got a string"),
    ({**GOOD, "protocol": None}, "protocol must be an object, got null"),
    ({**GOOD, "protocol": {"colour": 1}}, "no choice 'colour'"),
    ({**GOOD, "protocol": {"schedule": "random"}}, "schedule must be sequential or parallel, got 'random'"),
    ({**GOOD, "protocol": {"history_rounds": True}}, "history_rounds must be"),
    ({**GOOD, "protocol": {"reward": "best"}}, "reward must be one of win_rate"),
    ({**GOOD, "protocol": {"advantage": "best"}}, "advantage must be one of center_group"),
    ({**GOOD, "protocol": {"reward": "truth"}}, "reward truth needs a question with a known answer"),
    ({**GOOD, "protocol": {"reward": "folder/evil.py:f"}}, "may not name a Python file"),
    ({**GOOD, "protocol": {"advantage": "evil.py:f"}}, "may not name a Python file"),
]


@pytest.mark.parametrize(("line", "says"), BAD, ids=[says for _, says in BAD])
def test_a_bad_line_is_reported_and_the_others_are_scored(line: Any, says: str) -> None:
    raw = line if isinstance(line, str) and line != "text" else json.dumps(line)
    first, bad, last = score([LINE, raw, LINE], V2)
    assert isinstance(first, PlayedDebate)
    assert isinstance(last, PlayedDebate)
    assert (first.number, last.number) == (1, 3)
    assert isinstance(bad, BadLine)
    assert bad.line == 2
    assert says in bad.reason


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": {"lambda_gen": 10**400}},
        {"protocol": {"lambda_judge": 10**400}},
    ],
    ids=["lambda_gen", "lambda_judge"],
)
def test_weights_past_floating_point_are_bad_lines_too(change: dict[str, Any]) -> None:
    """They are JSON, and of the right sign. One such line must not take the others with it."""
    found = list(score([LINE, json.dumps({**GOOD, **change}), LINE], V2))
    assert [type(each) for each in found] == [PlayedDebate, BadLine, PlayedDebate]


def test_an_infinite_answer_is_no_number() -> None:
    """1e999 is read as infinity, which JSON has no word for."""
    (found,) = score([json.dumps(GOOD)[:-1] + ', "answer": 1e999}'], V2)
    assert isinstance(found, BadLine)


def test_a_debate_of_very_many_agents_is_scored() -> None:
    (found,) = score([json.dumps({**GOOD, "num_agents": 10_000})], V2)
    assert isinstance(found, PlayedDebate)
    assert len(as_json(found)["generator"]) == 10_000


def test_blank_lines_are_skipped_and_numbered() -> None:
    found = list(score(["", LINE, "  \t\r", LINE, "x", ""], V2))
    assert [each.line if isinstance(each, BadLine) else each.number for each in found] == [2, 4, 5]
    assert [type(each) for each in found] == [PlayedDebate, PlayedDebate, BadLine]


def test_a_bad_line_takes_no_part_in_a_batch() -> None:
    """A running mean goes from good line to good line."""
    line = json.dumps({**GOOD, "protocol": {"advantage": "center_seat"}})
    alone = [
        as_json(each)["generator_advantages"] for each in score([line, line], V2) if isinstance(each, PlayedDebate)
    ]
    mixed = [
        as_json(each)["generator_advantages"]
        for each in score([line, "x", "", line], V2)
        if isinstance(each, PlayedDebate)
    ]
    assert alone == mixed
    assert alone[0] != alone[1]


def test_the_reward_asked_for_wins_over_the_lines_own() -> None:
    line = json.dumps({**GOOD, "protocol": {"reward": "win_minus_loss"}})
    (own,) = score([line], V2)
    (asked,) = score([line], V2, "win_rate")
    assert isinstance(own, PlayedDebate)
    assert isinstance(asked, PlayedDebate)
    # 0 wins both votes about it, 1 one of two, 2 none of two.
    assert as_json(own)["rewards"] == (1.0, 0.0, -1.0)
    assert as_json(asked)["rewards"] == (1.0, 0.5, 0.0)


def test_a_lines_protocol_goes_over_the_preset() -> None:
    line = json.dumps({**GOOD, "protocol": {"history_rounds": 1, "visible": ["solution"]}})
    for preset in VOTING:
        debate, scoring = read_debate(line, preset)
        assert Protocol(debate.rules, scoring) == preset.with_choices({"history_rounds": 1, "visible": ["solution"]})


def test_with_abort_turns_after_a_failed_one_are_not_read_but_checked() -> None:
    turns = [{**TURNS[0]}, {**TURNS[1], "text": "no"}, {**TURNS[2], "text": text(lines("0 > 1"))}]
    line = {**GOOD, "turns": turns, "protocol": {"contract": "three_tag"}}
    (found,) = score([json.dumps(line)], V1)
    assert isinstance(found, PlayedDebate)
    assert as_json(found)["valid"] == 0
    assert [failure[:2] for failure in as_json(found)["failures"]] == [(1, 1)]
    (bad,) = score([json.dumps({**line, "turns": [*turns, {"round": 1, "agent": 7, "text": ""}]})], V1)
    assert isinstance(bad, BadLine)


def test_consensus_does_not_end_a_transcript() -> None:
    """It scores the turns it is given: round 2 after a round of YES still votes."""
    yes = [{"round": 1, "agent": agent, "text": text(contract="five_tag", consensus="YES")} for agent in range(3)]
    vote = {"round": 2, "agent": 0, "text": text(lines("1 > 2"), contract="five_tag")}
    (found,) = score([json.dumps({**GOOD, "turns": [*yes, vote]})], V1)
    assert isinstance(found, PlayedDebate)
    assert as_json(found)["valid"] == 1


def test_a_missing_last_tag_is_accepted_because_nobody_can_know() -> None:
    cut = {"round": 1, "agent": 0, "text": text().removesuffix("</comparison>")}
    (found,) = score([json.dumps({**GOOD, "turns": [cut]})], V2)
    assert isinstance(found, PlayedDebate)
    assert failures(found.debate) == []


@pytest.mark.parametrize(
    ("answer", "rewards"), [("7", (1.0, 0.0, 1.0)), (7, (1.0, 0.0, 1.0)), (8.0, (0.0, 1.0, 0.0)), ("", (0.0, 0.0, 0.0))]
)
def test_answers_may_be_strings_or_numbers(answer: Any, rewards: tuple[float, ...]) -> None:
    turns = [
        {"round": 1, "agent": agent, "text": text(solution=f"\\boxed{{{said}}}")} for agent, said in enumerate("787")
    ]
    (found,) = score([json.dumps({**GOOD, "turns": turns, "answer": answer})], V2, "truth_last")
    assert isinstance(found, PlayedDebate)
    assert as_json(found)["rewards"] == rewards
    (found,) = score([json.dumps({**GOOD, "turns": turns, "answer": answer})], V2, "truth")
    assert isinstance(found, PlayedDebate)
    assert as_json(found)["generator"] == tuple((reward,) for reward in rewards)


@pytest.mark.parametrize("num_agents", [1, 2, 3, 7])
def test_one_agent_and_more_are_scored(num_agents: int) -> None:
    turns = [{"round": 1, "agent": agent, "text": text()} for agent in range(num_agents)]
    for preset in VOTING:
        (found,) = score([json.dumps({**GOOD, "num_agents": num_agents, "turns": turns})], preset)
        assert isinstance(found, PlayedDebate)


def test_read_debate_raises_what_score_reports() -> None:
    with pytest.raises(ConfigError, match="missing key"):
        read_debate("{}", V2)
    assert read_debate(LINE, V2)[0].max_rounds == 2
    assert read_debate(json.dumps({**GOOD, "turns": []}), V2)[0].max_rounds == 1


@pytest.mark.parametrize(("reward", "graded"), [("win_rate", 0), ("generator_judge", 0), ("majority", 1), ("truth", 1)])
def test_answers_are_graded_only_for_a_reward_that_looks_at_them(
    monkeypatch: pytest.MonkeyPatch, reward: str, graded: int
) -> None:
    calls = []

    def counted(debate: Debate) -> Grades:
        calls.append(debate)
        return grade(debate)

    monkeypatch.setattr("moot.tools.transcripts.grade", counted)
    (result,) = score([json.dumps({**GOOD, "answer": "7"})], V2 if reward == "generator_judge" else V1, reward)
    assert isinstance(result, PlayedDebate)
    assert len(calls) == graded


def test_a_table_takes_less_work_than_the_scores_in_it() -> None:
    """By lines of Python. A table that lays itself out took about ten times as many."""
    (result,) = score([LINE], V2)
    assert isinstance(result, PlayedDebate)
    drawing = lines_run(lambda: show(result, Console(file=StringIO())))
    assert drawing < lines_run(lambda: list(score([LINE], V2)))


def test_a_table_on_a_terminal_says_the_same() -> None:
    (result,) = score([LINE], V2)
    assert isinstance(result, PlayedDebate)
    plain, styled = StringIO(), StringIO()
    show(result, Console(file=plain))
    show(result, Console(file=styled, force_terminal=True, width=40))
    assert "\x1b[" in styled.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", styled.getvalue()) == plain.getvalue()
    assert plain.getvalue().splitlines()[:4] == [
        "",
        "Line 1: q",
        "                                    Agent 0  Agent 1  Agent 2",
        "round 1, votes won–lost                 2–0      1–1      0–2",
    ]
