"""Two advocates and a judge: what each is told, who is paid what, and what was believed. Every number can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import moot
from moot.debate.prompt_texts import DEFAULT
from moot.debate.protocols import PRESETS, V2
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.errors import ConfigError
from moot.page.debate import shown
from moot.rl.trust import panel
from moot.runs import Run
from moot.runs.prompt_of_turn import seen
from moot.runs.record import from_record, to_record, to_transcript
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import turn_in_text
from moot.tools.export.pages import page as as_page
from moot.tools.export.sets import LeftOut, best_and_worst, supervised
from moot.tools.transcripts import BadLine
from moot.tools.transcripts import score as score_lines

ADVOCATES = PRESETS["advocates"]
QUESTION = Question("What is 3 + 4 * 2?", "11", id="q", sides=("14", "11"))
"""Seat 1 has the right side."""


def judge(verdict: str, heard: list[str] | None = None) -> Callable[[Observation], str]:
    def speak(observation: Observation) -> str:
        if heard is not None:
            heard.append(observation.newest.content)
        return "I worked it out." if observation.section == "evaluation" else verdict

    return speak


def advocate(observation: Observation) -> str:
    return f"Agent {observation.agent} argues in round {observation.round}."


def played(*verdicts: str, failing: tuple[tuple[int, int], ...] = ()) -> Debate:
    """A debate of two rounds with a judge for each verdict; `failing` are (agent, round) of arguments that were cut at their limit."""

    def speak(observation: Observation) -> str | Said:
        cut = (observation.agent, observation.round) in failing
        return Said("Because", closed=False, cut=True) if cut else advocate(observation)

    return moot.play(QUESTION, speak, 2, 2, ADVOCATES, [judge(verdict) for verdict in verdicts])


# Who is told what


def test_an_advocate_reads_both_sides_and_argues_for_its_own() -> None:
    told = [Debate(QUESTION, 2, 2, ADVOCATES.rules).observe(agent) for agent in (0, 1)]
    assert [observation.section for observation in told] == ["solution", "solution"], "an argument, and nothing else"
    for observation, own, other in zip(told, ("14", "11"), ("11", "14"), strict=True):
        text = observation.newest.content
        assert text.startswith("What is 3 + 4 * 2?")
        assert (
            f"You are Agent {observation.agent}. A judge decides between two answers. You argue for this one: {own}\n"
            in text
        )
        assert f"Agent {1 - observation.agent} argues for this one: {other}\n" in text
        assert f'Begin with "The answer is {own}, because"' in text
        assert observation.eligible == (), "an advocate votes on nobody"


def test_the_second_round_shows_the_other_side_and_asks_for_a_reply() -> None:
    opening, argument, reply = seen(PlayedDebate(played("Agent 1 > Agent 0")), 2)
    assert (opening.role, argument.role, reply.role) == ("user", "assistant", "user")
    assert argument.content == "Agent 0 argues in round 1."
    assert reply.content.startswith("[Agent 1, round 1]\nAgent 1 argues in round 1.\n\nNow reply to Agent 1.")
    assert "Then say why the answer is 14." in reply.content and " 11" not in reply.content


@pytest.mark.parametrize("layout", ["rebuilt", "shared"])
def test_with_a_transcript_what_differs_between_seats_stands_last(layout: str) -> None:
    debate = moot.play(QUESTION, advocate, 2, 1, ADVOCATES.with_choices(layout=layout))
    texts = [replace(debate, max_rounds=2).observe(agent).newest.content for agent in (0, 1)]
    heads = [text.partition("You are Agent")[0] for text in texts]
    assert "[Agent 0" in heads[0] and "[Agent 1" in heads[0], "its own argument stands in the transcript"
    assert (heads[0] == heads[1]) is (layout == "shared")


def test_the_judge_reads_both_positions_and_every_argument_and_chooses_between_two_lines() -> None:
    heard: list[str] = []
    moot.play(QUESTION, advocate, 2, 2, ADVOCATES, [judge("Agent 1 > Agent 0", heard)])
    read, asked = heard
    assert "Agent 0: the answer is 14\nAgent 1: the answer is 11" in read
    places = [read.index(f"[Agent {agent}, round {round}]") for round in (1, 2) for agent in (0, 1)]
    assert places == sorted(places)
    assert asked.endswith(
        "If the answer is 14, write:\nAgent 0 > Agent 1\n\nIf the answer is 11, write:\nAgent 1 > Agent 0"
    )
    assert "=" not in asked, "a judge is offered no tie"


def test_the_judge_is_told_once_that_a_silent_side_does_not_argue() -> None:
    heard: list[str] = []
    half = lambda observation: "N/A" if observation.agent == 1 else advocate(observation)  # noqa: E731
    moot.play(QUESTION, half, 2, 2, ADVOCATES, [judge("Agent 0 > Agent 1", heard)])
    assert "Agent 1: the answer is 11" in heard[0], "it keeps its position"
    assert heard[0].count("gives no argument") == 1 and "[Agent 1]\n(gives no argument)" in heard[0]


def test_nobody_replies_to_a_side_that_does_not_argue() -> None:
    half = lambda observation: "N/A" if observation.agent == 1 else advocate(observation)  # noqa: E731
    (*_, asked) = seen(PlayedDebate(moot.play(QUESTION, half, 2, 2, ADVOCATES)), 2)
    assert asked.content.startswith(
        "[Agent 1, round 1]\n(gives no argument)\n\nConvince the judge that the answer is 14."
    )


def test_where_nobody_argues_the_judge_reads_the_positions_alone() -> None:
    heard: list[str] = []
    moot.play(QUESTION, lambda _: "N/A", 2, 1, ADVOCATES, [judge("Agent 1 > Agent 0", heard)])
    assert "Agent 1: the answer is 11\n\nCheck the positions of Agent 0, Agent 1" in heard[0]
    assert "gives no argument" not in heard[0]


def test_who_always_prefers_the_first_number_decides_nothing_in_both_orders() -> None:
    """The first time Agent 0 is seat 0, the second time seat 1."""
    protocol = ADVOCATES.with_choices(both_orders=True)
    always = [judge("Agent 0 > Agent 1")] * 2
    biased = moot.score(moot.play(QUESTION, advocate, 2, 1, protocol, always), protocol)
    assert (biased.believed, biased.winner, scores_of(biased).rewards) == (None, None, (0.0, 0.0))
    steady = [judge("Agent 1 > Agent 0"), judge("Agent 0 > Agent 1")]
    assert moot.score(moot.play(QUESTION, advocate, 2, 1, protocol, steady), protocol).believed == 1


# Who is paid what


def scores_of(scored: PlayedDebate) -> Any:
    return scored.scores


@pytest.mark.parametrize(
    ("verdicts", "failing", "rewards", "returns", "advantages", "believed"),
    [
        # One judge: the side it finds right has +1, the other -1. The mean is 0, so these are the advantages.
        (("Agent 1 > Agent 0",), (), (-1, 1), (-1, 1), (-1, 1), 1),
        (("Agent 0 > Agent 1 (the answer is 14)",), (), (1, -1), (1, -1), (1, -1), 0),
        # Nothing that can be read, or a tie: nobody is paid, and nothing is learned.
        (("Both are right.",), (), (0, 0), (0, 0), (0, 0), None),
        (("Agent 0 = Agent 1",), (), (0, 0), (0, 0), (0, 0), None),
        # Three judges, two for seat 1: (2 - 1) / 3 and (1 - 2) / 3.
        (
            ("Agent 1 > Agent 0", "Agent 1 > Agent 0", "Agent 0 > Agent 1"),
            (),
            (-1 / 3, 1 / 3),
            (-1 / 3, 1 / 3),
            (-1 / 3, 1 / 3),
            1,
        ),
        # Seat 1 wins, but its second argument was cut: 1 - 1 = 0 against -1, mean -1/2.
        (("Agent 1 > Agent 0",), ((1, 2),), (-1, 1), (-1, 0), (-0.5, 0.5), 1),
        # Seat 1 never argued, so no judge was asked: 0 against -2, mean -1.
        (("Agent 1 > Agent 0",), ((1, 1), (1, 2)), (0, 0), (0, -2), (1, -1), None),
    ],
)
def test_what_the_decision_gives_to_one_side_it_takes_from_the_other(
    verdicts: tuple[str, ...],
    failing: tuple[tuple[int, int], ...],
    rewards: tuple[float, ...],
    returns: tuple[float, ...],
    advantages: tuple[float, ...],
    believed: int | None,
) -> None:
    scored = moot.score(played(*verdicts, failing=failing), ADVOCATES)
    taught: Any = scored.advantages
    assert scores_of(scored).rewards == pytest.approx(rewards)
    assert scores_of(scored).returns == pytest.approx(returns)
    assert taught.values == pytest.approx(advantages)
    assert (sum(rewards), sum(advantages)) == (0, 0), "zero-sum"
    assert scored.believed == believed


def test_an_advocate_holds_its_side_whatever_it_writes() -> None:
    graded = grade(moot.play(QUESTION, lambda _: "I give up: \\boxed{11}", 2, 1, ADVOCATES))
    assert (graded.answers, graded.correct) == (("14", "11"), (False, True))


def test_the_panel_asks_the_judge_where_agents_do_not_vote() -> None:
    """Three debates: the judge finds the right side, the wrong one, and nothing. Of two verdicts one is right."""
    verdicts = ("Agent 1 > Agent 0", "Agent 0 > Agent 1", "I cannot tell.")
    measured = panel(moot.score([played(verdict) for verdict in verdicts], ADVOCATES))
    assert (measured["trust/judge_accuracy"], measured["trust/winner_correct"], measured["trust/mean_accuracy"]) == (
        0.5,
        0.5,
        0.5,
    )
    assert measured["trust/self_preference"] is None, "the judge holds no answer"
    assert measured["trust/position_bias"] == 0.0, "each number was preferred once"
    first = panel(moot.score([played("Agent 0 > Agent 1")] * 3 + [played("Agent 1 > Agent 0")], ADVOCATES))
    assert first["trust/position_bias"] == 0.25, "three of four verdicts are for Agent 0"
    assert "trust/outside_agreement" not in measured


# Written down and read again


def test_a_record_and_a_transcript_keep_the_sides() -> None:
    scored = moot.score(played("Agent 1 > Agent 0 (the answer is 11)"), ADVOCATES)
    record = json.loads(json.dumps(to_record(scored)))
    assert record["question"]["sides"] == ["14", "11"] and record["protocol"]["positions"] == "assigned"
    again = from_record(record)
    assert (again.debate.question, again.debate.turns, again.debate.jury) == (
        QUESTION,
        scored.debate.turns,
        scored.debate.jury,
    )
    assert (again.believed, again.winner) == (1, 1)
    assert to_transcript(scored.debate)["sides"] == ["14", "11"]


def test_a_transcript_from_anywhere_is_scored_by_its_judges() -> None:
    scored = moot.score(played("Agent 1 > Agent 0"), ADVOCATES)
    line = {**to_transcript(scored.debate), "jury": [{"text": turn.text} for turn in scored.debate.jury]}
    (found,) = score_lines([json.dumps(line)], ADVOCATES)
    assert isinstance(found, PlayedDebate) and scores_of(found).rewards == (-1, 1)
    del line["sides"]
    (bad,) = score_lines([json.dumps(line)], ADVOCATES)
    assert isinstance(bad, BadLine) and "got 2 agents and 0 sides" in bad.reason


def test_a_debate_without_positions_is_written_without_sides() -> None:
    debate = moot.play("What is 3 + 4?", advocate, 3, 1, V2)
    record = to_record(PlayedDebate(debate))
    assert "sides" not in record["question"] and record["protocol"]["positions"] == "none"
    assert "sides" not in to_transcript(debate)


def test_what_is_exported_of_an_advocate_answers_what_it_was_told() -> None:
    scored = moot.score(played("Agent 1 > Agent 0"), ADVOCATES)
    (row,) = supervised(scored)
    assert "You argue for this one: 11" in row["prompt"][0]["content"]
    assert row["completion"] == [{"role": "assistant", "content": "Agent 1 argues in round 2."}]
    with pytest.raises(LeftOut, match="different sides"):
        list(best_and_worst(scored))


def test_page_export_and_notebook_show_the_side_of_each_agent_and_whom_the_judge_believed(tmp_path: Path) -> None:
    scored = moot.score(played("Agent 1 > Agent 0"), ADVOCATES)
    run = Run.create(tmp_path / "run", {}, {})
    run.write_debates(1, [replace(scored, sampled=tuple(turn_in_text() for _ in scored.debate.turns))])
    page = shown(run.path, 1, 0)
    assert page is not None
    assert [seat["persona"] for seat in page["agents"]] == ["argues for: 14", "argues for: 11"]
    assert (page["winner"], page["won"], page["lost"]) == (1, (0, 1), (1, 0))
    assert [(turn["answer"], turn["correct"]) for turn in page["turns"][:2]] == [("14", False), ("11", True)]
    exported = "".join(as_page([scored], "debates"))
    assert (
        exported.count("argues for: 14") == exported.count("argues for: 11") == 2
        and "<strong>Agent 1 won</strong>" in exported
    )
    assert "Agent 0, for: 14" in scored.debate._repr_html_()


@pytest.mark.parametrize(("agents", "sides"), [(3, ("14", "11")), (2, ()), (2, ("14",))])
def test_positions_need_two_agents_and_two_sides(agents: int, sides: tuple[str, ...]) -> None:
    with pytest.raises(
        ConfigError, match=rf"two agents and a question with two sides, got {agents} agents and {len(sides)} sides"
    ):
        Debate(replace(QUESTION, sides=sides), agents, 2, ADVOCATES.rules)


def test_other_texts_have_another_digest() -> None:
    assert DEFAULT.with_texts({"advocates.argue": "Argue for {position}."}, "a test").digest != DEFAULT.digest
