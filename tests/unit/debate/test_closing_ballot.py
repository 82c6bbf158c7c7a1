"""The closing ballot: one more turn each, in which everybody judges and nobody answers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.debate.outcome import mean_rewards
from moot.debate.parsing import BALLOT
from moot.debate.play import play
from moot.debate.protocols import V2, Protocol
from moot.debate.rewards import Scores, Stream, ballots, last_parsed
from moot.debate.rules import candidates
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said, Turn
from moot.rl.metrics import answer_metrics, reward_metrics
from moot.rl.trust import panel
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import Advantages
from moot.tools.transcripts import BadLine, score
from support.making import FAILED, Tabled, by_agent, by_step, debate, lines, near, text, v1, v2, values


def vote(shorthand: str) -> str:
    return FAILED if shorthand == FAILED else text(lines(shorthand), contract=BALLOT)


def closed(
    rounds: list[list[str]], cast: list[str], answers: Any = None, truth: str | None = None, **choices: Any
) -> Tabled:
    """A debate of these rounds and this closing ballot. No entry is a turn that an abort cut off."""
    played = debate(v2(closing_ballot=True, **choices), rounds, answers, truth)
    turns = [played.read(len(rounds) + 1, agent, Said(vote(said)), ballot=True) for agent, said in enumerate(cast)]
    return replace(played, turns=played.turns + tuple(turns))


def run(protocol: Protocol, max_rounds: int = 2, said: Any = None) -> tuple[Debate, list[Observation]]:
    seen: list[Observation] = []

    async def speak(observation: Observation) -> Said:
        seen.append(observation)
        return Said(said(observation) if said else text(contract=observation.contract))

    return asyncio.run(play(Debate(Question("q"), 3, max_rounds, protocol.rules), speak)), seen


# Who votes, and when


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("contract", ["three_tag", "five_tag"])
def test_everybody_votes_at_once_after_the_last_round(schedule: str, contract: str) -> None:
    together: list[tuple[int, ...]] = []
    state = Debate(Question("q"), 3, 2, v2(schedule=schedule, contract=contract, closing_ballot=True).rules)
    while not state.done:
        together.append(state.next_speakers)
        state = state.advance({a: Said(text(contract=state.observe(a).contract)) for a in state.next_speakers})
    assert together[-1] == (0, 1, 2), "a ballot is secret under either schedule"
    assert [(turn.round, turn.agent, turn.ballot) for turn in state.turns] == [
        *((round, agent, False) for round in (1, 2) for agent in range(3)),
        *((3, agent, True) for agent in range(3)),
    ]
    assert [turn.failed for turn in state.turns] == [False] * 9
    assert state.next_speakers == ()
    assert state.turns_by_agent() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_the_observation_says_what_is_asked_for() -> None:
    _, seen = run(v1(closing_ballot=True, on_parse_failure="continue"))
    assert [observation.contract for observation in seen] == ["five_tag"] * 6 + [BALLOT] * 3
    newest = seen[-1].newest.content.split("\n\n")[-1]
    assert newest == (
        "Round 3, the closing ballot. The answers are final. Write no solution, only <evaluation> about each of Agent 0, Agent 1 "
        "</evaluation> and <comparison> with one line per pair, in exactly these names: Agent 0 and Agent 1 </comparison>. "
        "Begin with <evaluation>."
    )
    assert seen[-1].eligible == (0, 1)


def test_with_one_other_answer_or_none_the_ballot_asks_for_no_comparison() -> None:
    for failing, end in (
        (
            {1},
            "only <evaluation> about Agent 2 </evaluation> and <comparison>N/A</comparison>. Begin with <evaluation>.",
        ),
        ({1, 2}, "There is nobody to judge: write <evaluation>N/A</evaluation> and <comparison>N/A</comparison>."),
    ):
        _, seen = run(
            v2(closing_ballot=True), 1, lambda seen, failing=failing: FAILED if seen.agent in failing else text()
        )
        assert seen[3].agent == 0
        assert seen[3].newest.content.endswith(end)


@pytest.mark.parametrize("layout", ["growing", "rebuilt"])
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_until_the_ballot_nothing_but_one_sentence_of_the_system_text_is_different(layout: str, schedule: str) -> None:
    (_, off), (_, on) = (run(v2(layout=layout, schedule=schedule, closing_ballot=ballot)) for ballot in (False, True))
    assert (len(off), len(on)) == (6, 9)
    for before, after in zip(off, on, strict=False):
        (system, *rest), (told, *same) = before.conversation(), after.conversation()
        assert rest == same
        sentence = (
            "\nAfter the last round comes a closing ballot: a reply with the evaluation and the comparison alone."
        )
        assert told.content.count(sentence) == 1
        assert told.content.replace(sentence, "") == system.content
        assert (before.eligible, before.extends, before.own_turns) == (after.eligible, after.extends, after.own_turns)


def test_a_growing_conversation_goes_on_into_the_ballot() -> None:
    _, seen = run(v2(closing_ballot=True))
    assert seen[-1].extends
    example = ["user", "assistant"]
    assert [message.role for message in seen[-1].conversation()] == ["system"] + example + ["user", "assistant"] * 2 + [
        "user"
    ]
    before = seen[5]
    assert (before.agent, before.round) == (2, 2)
    assert seen[-1].conversation()[:-2] == before.conversation(), "what was said before stands as it was"
    assert "[Agent 0, round 2]" in seen[-1].newest.content


def test_a_solution_written_all_the_same_is_not_read() -> None:
    state = Debate(Question("q"), 3, 1, v2(closing_ballot=True).rules).advance({a: Said(text()) for a in range(3)})
    after = state.advance({a: Said(text(solution="\\boxed{8}")) for a in range(3)})
    assert [turn.failed for turn in after.turns] == [False] * 6
    assert set(after.turns[-1].parsed.fields) == {"evaluation", "comparison"}  # type: ignore[union-attr]
    assert last_parsed(after) == [0, 1, 2]


def test_consensus_comes_before_the_ballot_and_an_abort_instead_of_it() -> None:
    agreed, _ = run(v1(closing_ballot=True), 3, lambda seen: text(contract=seen.contract, consensus="YES"))
    assert [turn.round for turn in agreed.turns] == [1, 1, 1, 2, 2, 2]
    assert [turn.ballot for turn in agreed.turns] == [False] * 3 + [True] * 3
    assert agreed.agreed
    aborted, _ = run(
        v1(closing_ballot=True), 1, lambda seen: FAILED if seen.agent == 1 else text(contract=seen.contract)
    )
    assert [turn.ballot for turn in aborted.turns] == [False, False]
    halfway, _ = run(
        v1(closing_ballot=True),
        1,
        lambda seen: FAILED if seen.contract == BALLOT and seen.agent == 1 else text(contract=seen.contract),
    )
    assert [turn.ballot for turn in halfway.turns] == [False] * 3 + [True] * 2
    assert halfway.done


# What the votes come to


def test_the_last_answers_are_judged() -> None:
    """One round, then 0 says 1 > 2, 1 says 0 > 2, 2 says 0 > 1: 0 wins both votes about it, 1 one of two, 2 none of two.

    Each pair has one judge, who agrees with itself. Nothing is generated in a ballot, so its generator reward is 0 and takes no part.
    """
    played = closed([[""] * 3], ["1 > 2", "0 > 2", "0 > 1"])
    scores, streams = by_step(played)
    near(values(scores, "generator"), [[1, 0], [0, 0], [-1, 0]])
    near(values(scores, "judge"), [[0, 1], [0, 1], [0, 1]])
    near(scores.streams["generator"].to_center, [[1, None], [0, None], [-1, None]])
    near(streams["generator"], [[1, 0], [0, 0], [-1, 0]])
    near(streams["judge"], [[0, 0], [0, 0], [0, 0]])
    assert [(vote.author, vote.left, vote.right, vote.turn) for vote in scores.votes] == [
        (0, 1, 2, 3),
        (1, 0, 2, 4),
        (2, 0, 1, 5),
    ]
    assert (scores.lines_invalid, scores.missing_comparisons) == (0, 0)
    without, _ = by_step(debate(v2(), [[""] * 3]))
    assert without.votes == ()


def test_a_silent_ballot_is_fined_and_a_failed_one_is_a_failed_turn() -> None:
    """0 votes, 1 abstains (-0.5), 2 fails (-1 as a generator, as any failed turn)."""
    scores, streams = by_step(closed([[""] * 3], ["1 > 2", "", FAILED]))
    near(values(scores, "generator"), [[0, 0], [1, 0], [-1, -1]])
    near(values(scores, "judge"), [[0, 1], [0, -0.5], [0, 0]])
    near(streams["generator"], [[0, 0], [1, 0], [-1, -1]])
    near(streams["judge"], [[0, 0], [0, -0.5], [0, 0]])
    returned, _ = by_agent(closed([[""] * 3], ["1 > 2", "", FAILED], reward="win_rate"))
    near(returned.rewards, [0, 1, 0])
    near(returned.returns, [0, 1, -1])


def test_to_the_letter_a_ballot_is_no_answer_that_nobody_voted_for() -> None:
    """An unvoted answer is -1 there; a ballot is none. Agent 0 is unvoted, 1 beats 2."""
    scores, streams = by_step(closed([[""] * 3], ["1 > 2", "", ""], literal=True, one_ballot_per_pair=False))
    near(values(scores, "generator"), [[-1, 0], [1, 0], [-1, 0]])
    near(streams["generator"], [[-2 / 3, 0], [4 / 3, 0], [-2 / 3, 0]])


def test_means_of_generator_rewards_leave_ballots_out() -> None:
    """0 beats 1 and 2: answers 1, -1, -1, whose mean is -1/3; with three ballots of 0 among them it would be -1/6."""
    played = closed([[""] * 3], ["", "0 > 2", "0 > 1"])
    scores, streams = by_step(played)
    near(values(scores, "generator"), [[1, 0], [-1, 0], [-1, 0]])
    found = reward_metrics([PlayedDebate(played, scores=scores, advantages=Advantages(streams))])
    assert found["reward/gen/mean"] == pytest.approx(-1 / 3)
    assert scores.ballots == {(0, 1), (1, 1), (2, 1)}


def test_the_winner_is_not_the_one_whose_ballots_were_cut_off() -> None:
    """0.5 and a ballot against 0.4 and none: 0.5 is more. A failed ballot does count, as any failed turn."""
    table = ((0.5, 0.0), (0.4,))
    stream = Stream(table, table, ((0.0, 0.0), (0.0,)))
    near(mean_rewards(Scores({"generator": stream}, ballots=frozenset({(0, 1)}))), [0.5, 0.4])
    near(mean_rewards(Scores({"generator": stream})), [0.25, 0.4])
    scores, _ = by_step(closed([[""] * 3], [FAILED], on_parse_failure="abort"))
    near(values(scores, "generator"), [[0, -1], [0], [0]])
    near(mean_rewards(scores), [-0.5, 0, 0])
    assert scores.ballots == frozenset()


def test_truth_is_mixed_into_answers_alone() -> None:
    """Half truth: 0 is right and unvoted (0.5), 1 wrong and preferred (0), 2 wrong and not (-1). Ballots stay 0 without a signal."""
    played = closed([[""] * 3], ["1 > 2", "", ""], answers=[["7", "8", "8"]], truth="7", enable_format_penalty=False)
    scores, streams = by_step(played, mix=0.5)
    near(values(scores, "generator"), [[0.5, 0], [0, 0], [-1, 0]])
    near(scores.streams["generator"].to_center, [[0.5, None], [0, None], [-1, None]])
    near(streams["generator"], [[2 / 3, 0], [1 / 6, 0], [-5 / 6, 0]])


# No ballot changes an answer

cell = st.sampled_from(["", "1 > 2", "0 = 1", "2 > 0; 0 > 1", FAILED])
row = st.lists(cell, min_size=3, max_size=3)


@settings(max_examples=150)
@given(
    st.lists(row, min_size=1, max_size=3),
    row,
    st.lists(st.sampled_from(["7", "8", None]), min_size=9, max_size=9),
    st.booleans(),
)
def test_a_ballot_changes_no_answer(
    rounds: list[list[str]], cast: list[str], said: list[str | None], sequential: bool
) -> None:
    answers = [said[i : i + 3] for i in range(0, 9, 3)]
    schedule = "sequential" if sequential else "parallel"
    voted = closed(rounds, cast, answers, "7", schedule=schedule)
    plain = debate(v2(schedule=schedule), rounds, answers, "7")
    assert last_parsed(voted) == last_parsed(plain)
    assert list(candidates(voted.rules, voted.turns))[: len(plain.turns)] == list(candidates(plain.rules, plain.turns))
    before, after = grade(plain), grade(voted)
    assert after.answers == (*before.answers, None, None, None)
    assert after.correct == (*before.correct, False, False, False)
    assert answer_metrics([voted], [after], "sums") == answer_metrics([plain], [before], "sums")
    (scores, _), (old, _) = by_step(voted), by_step(plain)
    voted_debate = PlayedDebate(voted, scoring=voted.scoring, scores=scores, grades=after)
    found, known = panel([voted_debate]), panel([PlayedDebate(plain, scoring=plain.scoring, scores=old, grades=before)])
    assert found["trust/answer_diversity"] == known["trust/answer_diversity"]
    assert found["trust/mean_accuracy"] == known["trust/mean_accuracy"]
    # Earlier votes stand; what is new is about each agent's newest answer.
    votes, earlier = ballots(voted, voted.scoring).votes, ballots(plain, plain.scoring).votes
    assert votes[: len(earlier)] == earlier
    assert {i for vote in votes[len(earlier) :] for i in (vote.left, vote.right)} <= set(voted.answers().values())


# A transcript


def as_line(played: Debate, **more: Any) -> str:
    turns = [
        {"round": turn.round, "agent": turn.agent, "text": turn.text, **({"ballot": True} if turn.ballot else {})}
        for turn in played.turns
    ]
    return json.dumps({"question": "q", "num_agents": 3, "turns": turns, "protocol": {"closing_ballot": True}, **more})


def test_a_transcript_says_which_turns_are_ballots() -> None:
    played = closed([[""] * 3], ["1 > 2", "0 > 2", "0 > 1"])
    (found,) = score([as_line(played)], V2)
    assert isinstance(found, PlayedDebate)
    assert found.scores == by_step(played)[0]
    for line, says in (
        (as_line(played, protocol={}), "turns[3].ballot needs the protocol's closing_ballot; set that to true, or leave ballot out"),
        (as_line(played).replace('"ballot": true', '"ballot": 1'), "turns[3].ballot must be true or false, got an integer"),
        (as_line(Debate(played.question, 3, 1, played.rules, (*played.turns, Turn(4, 0, "x", played.turns[0].parsed)))),
         "turns[6] answers after a ballot; ballots come last"),
    ):  # fmt: skip
        (bad,) = score([line], V2)
        assert isinstance(bad, BadLine)
        assert bad.reason == says
