"""Each viewer knows the agents by numbers of its own, and nothing but the numbers changes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.debate.labels import agents_behind, labels_for, relabelled
from moot.debate.protocols import V2, Protocol
from moot.debate.state import Debate
from moot.debate.types import Line, Parsed, Question, Said
from moot.rl.trust import panel
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tools.transcripts import score
from support.making import FAILED, Tabled, by_agent, by_step, lines, near, text, v1, v2

QUESTION = Question("What is 3 + 4?", "7")
KNOWN = {0: (3, 1, 2, 0), 1: (3, 0, 2, 1), 2: (3, 0, 1, 2), 3: (0, 1, 3, 2)}
"""How four agents know each other in that question. Records depend on these never changing."""


def test_labels_follow_from_the_question_and_the_viewer() -> None:
    assert {viewer: labels_for(QUESTION, viewer, 4) for viewer in range(4)} == KNOWN
    assert labels_for(Question("What is 3 + 4?", "8"), 0, 4) == KNOWN[0], "the truth plays no part"
    assert labels_for(Question("What is 3 + 4?", id="sum-1"), 0, 4) == (0, 3, 2, 1)


@given(st.text(), st.text(), st.integers(0, 9), st.integers(1, 12))
def test_everybody_has_one_label_and_every_label_is_had(id: str, said: str, viewer: int, num_agents: int) -> None:
    found = labels_for(Question(said, id=id), viewer, num_agents)
    assert sorted(found) == list(range(num_agents))
    assert [found[agent] for agent in agents_behind(found)] == list(range(num_agents))


def test_all_orders_come_about_equally_often() -> None:
    """600 questions, 6 orders of three: 100 each, within five standard deviations (9.1)."""
    found = Counter(labels_for(Question(f"q{i}"), 1, 3) for i in range(600))
    assert len(found) == 6
    assert all(abs(count - 100) < 46 for count in found.values())


# Names in text


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Agent 2 is wrong.", "Agent 1 is wrong."),
        ("agent0's idea, **Agent 1**, Agent #2, AGENT 02", "agent2's idea, **Agent 0**, Agent #1, AGENT 1"),
        ("_Agent 1_ and `Agent **2**`", "_Agent 0_ and `Agent **1**`"),
        ("Agent 0 > Agent 1\nAgent 1 = Agent 2", "Agent 2 > Agent 0\nAgent 0 = Agent 1"),
        ("Agents 0, 1 and 2 agree", "Agents 2, 0 and 1 agree"),
        ("agents 0, and 1 & 2; Agents 1 vs. 2, 7 times", "agents 2, and 0 & 1; Agents 0 vs. 1, 7 times"),
        # What is no name of an agent stays: a number nobody has, a list after a single agent, other words, other numbers.
        ("Agent 3, Agent 99999999999999999999", "Agent 3, Agent 99999999999999999999"),
        ("Agent 0, 1 time", "Agent 2, 1 time"),
        ("reagent 0, agents of 0, 0 agents, Agent zero", "reagent 0, agents of 0, 0 agents, Agent zero"),
        ("", ""),
    ],
)
def test_names_are_rewritten_and_nothing_else(written: str, read: str) -> None:
    """The author's 0, 1, 2 are the viewer's 2, 0, 1."""
    assert relabelled(written, (0, 1, 2), (2, 0, 1)) == read


words = st.lists(
    st.sampled_from(
        ["Agent ", "agents", " 0", "1", "2", " 12", ", ", " and ", "**", "#", "\n", "is right", "s", "/", "_"]
    ),
    max_size=30,
)


@settings(max_examples=300)
@given(words.map("".join), st.permutations(range(4)), st.permutations(range(4)))
def test_there_and_back_is_where_one_was(said: str, author: list[int], viewer: list[int]) -> None:
    there = relabelled(said, author, viewer)
    assert relabelled(there, viewer, author) == said
    assert re.sub(r"[0-9]+", "", there) == re.sub(r"[0-9]+", "", said)


@settings(max_examples=200)
@given(st.text(), st.permutations(range(3)))
def test_any_text_can_be_read(said: str, viewer: list[int]) -> None:
    assert isinstance(relabelled(said, (0, 1, 2), viewer), str)
    assert relabelled(said, (0, 1, 2), (0, 1, 2)) == said


@pytest.mark.parametrize(
    "piece",
    ["Agent", "agents ", "Agent 1", "Agents 1, ", " ", "Agents" + " " * 50, "agents 1 and ", "9", "Agent _*", ","],
)
def test_a_million_characters_are_read_in_steps_not_squares(piece: str) -> None:
    """Squares would not end within the time limit of a test. What comes out repeats as what went in: each piece as in a short text."""
    count = 1_000_000 // len(piece)
    for start in ("", "Agents 1"):
        short = relabelled(start + piece * 20, (0, 1, 2), (2, 0, 1))
        middle, end = len(start) + 10 * len(piece), len(start) + 11 * len(piece)
        expected = short[:middle] + short[middle:end] * (count - 20) + short[middle:]
        assert relabelled(start + piece * count, (0, 1, 2), (2, 0, 1)) == expected


# What is seen


def four(**choices: Any) -> Protocol:
    return v2(shuffle_labels=True, **choices)


def start(protocol: Protocol, num_agents: int = 4, rounds: int = 3) -> Debate:
    return Debate(QUESTION, num_agents, rounds, protocol.rules)


def names_everybody(labels: Sequence[int]) -> str:
    """Remarks about everybody by the author's labels, with a mark that tells who is meant."""
    return " ".join(f"Agent {labels[other]} is seat-{other}." for other in range(len(labels)))


@pytest.mark.parametrize("layout", ["growing", "rebuilt"])
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_a_viewer_reads_all_names_in_its_own_numbers(layout: str, schedule: str) -> None:
    state = start(four(layout=layout, schedule=schedule))
    while len(state.turns) < 8:
        said = {
            a: Said(text(solution=f"By seat-{a}.", evaluation=names_everybody(state.labels(a))))
            for a in state.next_speakers
        }
        state = state.advance(said)
    for viewer in state.next_speakers:
        observation = state.observe(viewer)
        own = KNOWN[viewer]
        assert tuple(observation.labels) == own
        system, *messages = observation.conversation()
        assert f"You are Agent {own[viewer]}. 4 agents" in system.content
        assert f"a line that names Agent {own[viewer]} is thrown away" in system.content
        page = "\n".join(message.content for message in messages)
        meant = re.findall(r"Agent (\d) is seat-(\d)", page)
        assert len(meant) >= 4 * 7
        assert all(own[int(seat)] == int(label) for label, seat in meant)
        heads = re.findall(r"\[Agent (\d)(?: \(you\))?, round \d\]\nsolution: By seat-(\d)", page)
        assert len(heads) >= 6
        assert all(own[int(seat)] == int(label) for label, seat in heads)
        others = [label for label in range(4) if label != own[viewer]]
        pairs = "; ".join(f"Agent {a} and Agent {b}" for a, b in combinations(others, 2))
        last = observation.newest.content.split("\n\n")[-1]
        assert f"in exactly these names: {pairs} </comparison>" in last
        assert f"Agent {own[viewer]}" not in last
        assert observation.eligible == tuple(other for other in range(4) if other != viewer), "the seats themselves"


def test_where_all_spoke_at_once_the_page_is_in_the_viewers_order() -> None:
    """Agent 0 knows 1, 2, 3 as 1, 2, 0. One at a time, the order of speaking says who had read whom, and stays."""
    for schedule, order in (("parallel", ["0", "1", "2"]), ("sequential", ["1", "2", "0"])):
        state = start(four(schedule=schedule))
        while len(state.turns) < 4:
            state = state.advance({a: Said(text()) for a in state.next_speakers})
        assert re.findall(r"\[Agent (\d), round 1\]", state.observe(0).newest.content) == order


def test_own_turns_stay_as_sampled_and_the_limit_holds_after_rewriting() -> None:
    state = start(four(max_chars_per_field=9), num_agents=12)
    state = state.advance({a: Said(text(evaluation="Agent 1, Agent 2, Agent 3")) for a in range(12)})
    for viewer in range(12):
        own = state.observe(viewer).conversation()[4]
        assert own.content == text(evaluation="Agent 1, Agent 2, Agent 3")
        shown = re.findall(r"evaluation: (.*)", state.observe(viewer).newest.content)
        assert len(shown) == 11
        assert all(len(each) <= 9 for each in shown)


@pytest.mark.parametrize("protocol", [v1(), v2(), v2(layout="rebuilt", schedule="sequential")])
def test_off_means_the_seats_own_numbers(protocol: Protocol) -> None:
    state = start(protocol)
    assert list(state.observe(0).labels) == [0, 1, 2, 3]
    assert protocol.as_dict()["shuffle_labels"] is False
    assert Protocol().with_choices({**protocol.as_dict(), "shuffle_labels": True}).as_dict()["shuffle_labels"] is True


# What is voted


def test_lines_are_about_seats_and_the_text_keeps_the_labels() -> None:
    """Agent 1 knows 0, 1, 2, 3 as 3, 0, 2, 1. A number nobody has stays, and its own label is still its own."""
    said = text("Agent 3 > Agent 2\nAgent 1 = Agent 0\nAgent 4 > Agent 1\nN/A")
    turn = start(four()).read(2, 1, Said(said))
    assert turn.text == said
    assert isinstance(turn.parsed, Parsed)
    assert turn.parsed.fields["comparison"].startswith("Agent 3 > Agent 2")
    assert turn.parsed.lines == (
        Line("comparison", 0, 2, ">"),
        Line("comparison", 3, 1, "="),
        Line("comparison", 4, 3, ">"),
        Line("silent"),
    )


Table = list[list[str]]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    num_agents = draw(st.integers(3, 5))
    number = st.integers(0, num_agents)
    line = st.tuples(number, st.sampled_from(">>="), number).map(lambda parts: "{} {} {}".format(*parts))
    cell = st.one_of(st.just(FAILED), *[st.lists(line, max_size=5).map("; ".join)] * 5)
    return draw(st.lists(st.lists(cell, min_size=num_agents, max_size=num_agents), min_size=1, max_size=3))


def said_in_labels(rows: Table, protocol: Protocol) -> Tabled:
    """The table tells seats; everybody says it in the labels it knows them by."""
    state = Debate(QUESTION, len(rows[0]), len(rows), protocol.rules)
    turns = []
    for round, row in enumerate(rows, 1):
        for agent, cell in enumerate(row):
            known = dict(enumerate(state.labels(agent)))
            said = re.sub(r"\d+", lambda n, known=known: str(known.get(int(n[0]), int(n[0]))), cell)  # type: ignore[misc]
            turns.append(
                state.read(
                    round,
                    agent,
                    Said(FAILED if cell == FAILED else text(lines(said), contract=protocol.rules.contract)),
                )
            )
    return Tabled(QUESTION, len(rows[0]), len(rows), protocol.rules, tuple(turns), scoring=protocol.scoring)


def as_line(debate: Debate, **choices: Any) -> str:
    turns = [{"round": turn.round, "agent": turn.agent, "text": turn.text} for turn in debate.turns]
    return json.dumps(
        {"question": debate.question.text, "num_agents": debate.num_agents, "turns": turns, "protocol": choices}
    )


@settings(max_examples=100)
@given(tables(), st.sampled_from(["parallel", "sequential"]))
def test_no_score_changes_when_the_text_is_permuted_too(rows: Table, schedule: str) -> None:
    off, on = (said_in_labels(rows, v2(schedule=schedule, shuffle_labels=on)) for on in (False, True))
    (plain, plain_streams), (shuffled, streams) = by_step(off), by_step(on)
    assert shuffled == plain
    near([streams[name] for name in sorted(streams)], [plain_streams[name] for name in sorted(streams)])
    (again,) = score([as_line(on, shuffle_labels=True, schedule=schedule)], V2)
    assert isinstance(again, PlayedDebate)
    assert again.scores == plain
    off, on = (said_in_labels(rows, v2(reward="win_rate", shuffle_labels=on)) for on in (False, True))
    assert by_agent(on) == by_agent(off)


def test_the_id_of_a_question_is_told_when_a_record_is_scored_again() -> None:
    """With id sum-1, Agent 0 knows 0, 1, 2, 3 as 0, 3, 2, 1: its `3 > 2` prefers Agent 1 to 2. Without the id 3 is its own label."""
    turns = [{"round": 1, "agent": a, "text": text()} for a in range(4)] + [
        {"round": 2, "agent": 0, "text": text(lines("3 > 2"))}
    ]
    line = {"question": QUESTION.text, "num_agents": 4, "turns": turns, "protocol": {"shuffle_labels": True}}
    found = {}
    for id in ("sum-1", ""):
        (scored,) = score([json.dumps({**line, "id": id})], V2)
        assert isinstance(scored, PlayedDebate)
        found[id] = [(vote.left, vote.right) for vote in scored.scores.votes]  # type: ignore[union-attr]
    assert found == {"sum-1": [(1, 2)], "": []}
    (bad,) = score([json.dumps({**line, "id": 3})], V2)
    assert not isinstance(bad, PlayedDebate)
    assert bad.reason == "id must be a string, got an integer"


# Position bias


def test_position_bias_is_about_the_numbers_the_voter_was_shown() -> None:
    """All wrong. Agent 0 knows 1, 2, 3 as 1, 2, 0 and prefers the lowest number it sees, Agent 3 (label 0), to 1 and 2.

    By seats the higher number won both (-1/2); by labels the lower did (+1/2), and that is the leaning.
    """
    for on, bias in ((False, -0.5), (True, 0.5)):
        played = said_in_labels([[""] * 4, ["3 > 1; 3 > 2", "", "", ""]], v2(shuffle_labels=on))
        played = replace(played, question=Question(QUESTION.text, "9"))
        (scores, _) = by_step(played)
        assert (
            panel([PlayedDebate(played, scoring=played.scoring, scores=scores, grades=grade(played))])[
                "trust/position_bias"
            ]
            == bias
        )
