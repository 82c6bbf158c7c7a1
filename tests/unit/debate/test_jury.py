"""Judges without a seat: what they are shown, what their votes are about, and for whom they count."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.debate.parsing import BALLOT
from moot.debate.play import Speak, hear
from moot.debate.protocols import V2
from moot.debate.rewards import ballots
from moot.debate.types import Observation, Said
from moot.rl.trust import panel
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tools.transcripts import BadLine, as_json, score
from support.making import FAILED, Tabled, by_agent, by_step, debate, lines, near, text, v1, v2, values


def says(shorthand: str, seen: list[Observation] | None = None) -> Speak:
    async def speak(observation: Observation) -> Said:
        if seen is not None:
            seen.append(observation)
        return Said(FAILED if shorthand == FAILED else text(lines(shorthand), contract=BALLOT))

    return speak


def judged(played: Tabled, *shorthand: str) -> Tabled:
    return asyncio.run(hear(played, *map(says, shorthand)))  # type: ignore[return-value]


def counting(played: Tabled, counts: bool) -> Tabled:
    return replace(played, scoring=replace(played.scoring, voters="both" if counts else "agents"))


# What a judge is shown


def test_a_judge_sees_the_question_and_everybodys_newest_answer() -> None:
    """Agent 1's second turn failed, so its first stands. The window of the agents is not the judge's."""
    played = debate(v2(history_rounds=1), [[""] * 3, ["", FAILED, ""]], answers=[["1", "2", "3"], ["4", "5", "6"]])
    seen: list[Observation] = []
    heard = asyncio.run(hear(played, says("0 > 1", seen)))
    (observation,) = seen
    system, user = observation.conversation()
    assert system.content.startswith(
        "You are a judge. 3 agents (Agent 0 to Agent 2) answered a question, and you are none of them."
    )
    assert "solution" not in system.content
    assert user == observation.newest
    blocks = user.content.split("\n\n")
    assert blocks[0] == "Question:\nWhat is 3 + 4?"
    assert [block.split("\n")[:2] for block in blocks[1:4]] == [
        ["[Agent 0, round 2]", "solution: \\boxed{4}"],
        ["[Agent 1, round 1]", "solution: \\boxed{2}"],
        ["[Agent 2, round 2]", "solution: \\boxed{6}"],
    ]
    assert blocks[4] == (
        "Round 3, the judges' ballot. Write <evaluation> about each of Agent 0, Agent 1, Agent 2 </evaluation> and <comparison> with one "
        "line per pair, in exactly these names: Agent 0 and Agent 1; Agent 0 and Agent 2; Agent 1 and Agent 2 </comparison>. "
        "Begin with <evaluation>."
    )
    assert (observation.agent, observation.round, observation.eligible, observation.contract) == (
        3,
        3,
        (0, 1, 2),
        BALLOT,
    )
    assert not observation.extends
    (ballot,) = heard.jury
    assert (ballot.agent, ballot.round, ballot.ballot, ballot.failed) == (3, 3, True, False)
    assert heard.turns == played.turns
    assert [(vote.author, vote.left, vote.right, vote.turn) for vote in ballots(heard, heard.scoring).outside] == [
        (3, 3, 1, -1)
    ]


def test_judges_are_asked_at_once_and_none_sees_anothers_ballot() -> None:
    played = debate(v2(), [[""] * 3])
    heard = judged(judged(played, "0 > 1", "1 > 2"), "2 > 0")
    assert [turn.agent for turn in heard.jury] == [3, 4, 5]
    assert heard.observe_as_judge(3).newest == played.observe_as_judge(0).newest


@pytest.mark.parametrize("row", [[FAILED] * 3, ["", FAILED, FAILED]])
def test_where_there_is_nothing_to_compare_nobody_is_asked(row: list[str]) -> None:
    async def never(observation: Observation) -> Said:
        raise AssertionError("asked")

    played = debate(v2(), [row])
    assert asyncio.run(hear(played, never)) == played


def test_a_judge_who_raises_comes_out_as_it_is() -> None:
    ours = RuntimeError("the line is dead")

    async def dead(observation: Observation) -> Said:
        raise ours

    with pytest.raises(RuntimeError) as error:
        asyncio.run(hear(debate(v2(), [[""] * 3]), dead, says("0 > 1")))
    assert error.value is ours


def test_a_judge_has_labels_of_its_own() -> None:
    """What it says by its labels is about seats; whatever it calls them, it prefers the same answer."""
    played = debate(v2(shuffle_labels=True), [[""] * 4], answers=[["1", "2", "3", "4"]])
    observation = played.observe_as_judge(0)
    known = list(observation.labels)
    assert sorted(known) == [0, 1, 2, 3]
    for seat in range(4):
        assert f"[Agent {known[seat]}, round 1]\nsolution: \\boxed{{{seat + 1}}}" in observation.newest.content
    heard = judged(played, f"{known[2]} > {known[1]}")
    assert [(vote.left, vote.right) for vote in ballots(heard, heard.scoring).outside] == [(2, 1)]


# What their votes come to

ROUNDS = [["", "", "", ""], ["1 > 2", "", "", ""]]
CLOSING = ["1 > 2", "", "", "1 > 2"]


def closed(**choices: Any) -> Tabled:
    """Four agents, one round and a closing ballot in which 0 and 3 prefer 1 to 2."""
    played = debate(v2(closing_ballot=True, **choices), ROUNDS[:1])
    cast = [played.read(2, a, Said(text(lines(said), contract=BALLOT)), ballot=True) for a, said in enumerate(CLOSING)]
    return replace(played, turns=played.turns + tuple(cast))


def test_outside_votes_reward_answers_and_weigh_in_the_consensus() -> None:
    """Peers: 1 > 2 twice. Two judges: 2 > 1, and 2 > 0. So 1 has 2 for, 1 against (1/3); 2 has 1 + 1 for, 2 against (0); 0 has 0 of 1.

    The consensus on 1 and 2 is still 1 (two to one): both peers agree with it.
    """
    heard = judged(closed(), "2 > 1", "2 > 0")
    scores, _ = by_step(heard)
    near(values(scores, "generator"), [[-1, 0], [1 / 3, 0], [0, 0], [0, 0]])
    near(values(scores, "judge"), [[0, 1], [0, -0.5], [0, -0.5], [0, 1]])
    assert len(scores.votes) == 4
    assert scores.missing_comparisons == 2, "a judge without a seat is not fined, nor are its lines counted"


def test_three_judges_turn_the_consensus_and_the_peers_disagree_with_it() -> None:
    for consensus, judge in (("all", -1.0), ("leave_one_out", -1.0)):
        scores, _ = by_step(judged(closed(judge_consensus=consensus), "2 > 1", "2 > 1", "2 > 1"))
        near(values(scores, "judge"), [[0, judge], [0, -0.5], [0, -0.5], [0, judge]])
        near(values(scores, "generator"), [[0, 0], [-1 / 5, 0], [1 / 5, 0], [0, 0]])


def test_an_onlooker_changes_no_reward() -> None:
    plain = closed()
    heard = judged(counting(plain, False), "2 > 1", "2 > 1", "2 > 1")
    assert by_step(heard) == by_step(plain)
    assert len(ballots(heard, heard.scoring).outside) == 3
    wins = debate(v1(), [["", "", "0 > 1"]])
    assert by_agent(judged(counting(wins, False), "1 > 0")) == by_agent(wins)


def test_win_rate_counts_them_too() -> None:
    """Agent 2 says 0 > 1; judges say 1 > 0, and 1 = 2. Agent 0 won 1 of 2; Agent 1 lost, won and tied: 1.5 of 3; Agent 2 half of 1."""
    scores, _ = by_agent(judged(debate(v1(), [["", "", "0 > 1"]]), "1 > 0", "1 = 2"))
    near(scores.rewards, [1 / 2, 1.5 / 3, 1 / 2])
    near(scores.returns, [1 / 2, 1.5 / 3, 1 / 2])
    assert (len(scores.votes), scores.lines_invalid) == (3, 0)


def test_only_answers_can_be_voted_about_and_a_failed_ballot_says_nothing() -> None:
    """Agent 1 has no answer; 7 is nobody; a pair's last word counts once."""
    heard = judged(debate(v2(), [["", FAILED, ""]]), "0 > 1; 7 > 0; 0 > 0; 0 > 2; 2 > 0", FAILED)
    assert [(vote.author, vote.left, vote.right) for vote in ballots(heard, heard.scoring).outside] == [(3, 2, 0)]
    assert [turn.failed for turn in heard.jury] == [False, True]
    several = judged(debate(v2(one_ballot_per_pair=False), [[""] * 3]), "0 > 2; 2 > 0")
    assert len(ballots(several, several.scoring).outside) == 2


cell = st.sampled_from(["", "1 > 2", "0 = 1", "2 > 0; 0 > 1", FAILED])


@settings(max_examples=100)
@given(
    st.lists(st.lists(cell, min_size=3, max_size=3), min_size=1, max_size=3), st.lists(cell, max_size=3), st.booleans()
)
def test_what_the_agents_did_is_counted_without_the_jury(
    rounds: list[list[str]], cast: list[str], counts: bool
) -> None:
    plain = debate(v2(), rounds)
    heard = judged(counting(plain, counts), *cast)
    before, after = ballots(plain, plain.scoring), ballots(heard, heard.scoring)
    assert replace(after, votes=before.votes, outside=()) == before
    assert after.votes == before.votes + (after.outside if counts else ())
    assert all(vote.turn == -1 and vote.author >= 3 for vote in after.outside)
    assert (heard.turns_by_agent(), heard.done, heard.next_speakers) == (
        plain.turns_by_agent(),
        plain.done,
        plain.next_speakers,
    )
    assert [len(row) for row in values(by_step(heard)[0], "judge")] == [len(row) for row in plain.turns_by_agent()]


# The trust panel


def trust(*played: Tabled) -> dict[str, float | None]:
    return panel(
        [PlayedDebate(each, scoring=each.scoring, scores=by_step(each)[0], grades=grade(each)) for each in played]
    )


def test_outside_agreement_and_accuracy_by_hand() -> None:
    """Truth 7. Agents 0, 1, 2 say 7, 8, 7. The closing ballot: 0 says 1 > 2, 1 says 0 = 2, 2 says 0 > 1.

    Peers are clear on 1-2 (for 1) and on 0-1 (for 0). One judge says 2 > 1 and 0 > 1 and 0 > 2: on the clear pairs it agrees once of
    twice; of its two votes between right and wrong, both are right. Another says 1 > 0 and 1 = 2: no and no vote. 1/3 and 2/3 in all.
    Peers alone: 1 > 2 wrong, 0 > 1 right.
    """
    played = debate(v2(closing_ballot=True), [[""] * 3], answers=[["7", "8", "7"]], truth="7")
    cast = [
        played.read(2, a, Said(text(lines(said), contract=BALLOT)), ballot=True)
        for a, said in enumerate(["1 > 2", "0 = 2", "0 > 1"])
    ]
    plain = replace(played, turns=played.turns + tuple(cast))
    heard = judged(plain, "2 > 1; 0 > 1; 0 > 2", "1 > 0; 1 = 2")
    found, alone = trust(heard), trust(plain)
    assert found["trust/outside_agreement"] == pytest.approx(1 / 3)
    assert found["trust/outside_accuracy"] == pytest.approx(2 / 3)
    assert found["trust/judge_accuracy"] == 0.5
    same = set(alone) - {"trust/winner_correct"}  # the winner is who was rewarded most, and these votes count
    assert {key: found[key] for key in same} == {key: alone[key] for key in same}
    onlooking = trust(counting(heard, False))
    assert onlooking == {
        **alone,
        "trust/outside_agreement": pytest.approx(1 / 3),
        "trust/outside_accuracy": pytest.approx(2 / 3),
    }


def test_outside_numbers_are_null_where_undefined_and_missing_where_nobody_was_asked() -> None:
    """In a parallel debate without a closing ballot nobody but the judge has judged the last answers: there is nothing to agree with."""
    plain = debate(v2(), [[""] * 3, ["1 > 2", "", ""]])
    assert not [key for key in trust(plain) if "outside" in key]
    found = trust(judged(plain, "1 > 2"), plain)
    assert (found["trust/outside_agreement"], found["trust/outside_accuracy"]) == (None, None)
    assert trust(judged(plain, FAILED))["trust/outside_agreement"] is None


# A transcript


def test_a_transcript_may_have_a_jury() -> None:
    turns = [{"round": 1, "agent": a, "text": text()} for a in range(3)]
    line = {"question": "q", "num_agents": 3, "turns": turns, "jury": [{"text": text(lines("2 > 0"), contract=BALLOT)}]}
    (found,) = score([json.dumps(line)], V2)
    assert isinstance(found, PlayedDebate)
    assert as_json(found)["generator"] == ((-1.0,), (0.0,), (1.0,))
    (found,) = score([json.dumps({**line, "protocol": {**line.get("protocol", {}), "voters": "agents"}})], V2)
    assert isinstance(found, PlayedDebate)
    assert as_json(found)["votes"] == 0
    for change, reason in (
        ({"jury": {}}, "jury must be a list, got an object"),
        ({"jury": [{}]}, "jury[0] must be an object with text"),
        ({"jury": [{"text": 3}]}, "jury[0].text must be a string, got an integer"),
    ):
        (bad,) = score([json.dumps({**line, **change})], V2)
        assert isinstance(bad, BadLine)
        assert bad.reason == reason
