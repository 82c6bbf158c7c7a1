"""Who won, by tables worked by hand: means, leaders, winner, and every vote as a pair of agents."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from moot.debate.outcome import AgentVote, Outcome, leaders_by, onlookers_votes
from moot.debate.parsing import BALLOT
from moot.debate.play import hear
from moot.debate.rewards import Scores, Stream, as_reward
from moot.debate.rewards import score as scored
from moot.debate.scoring import Scoring
from moot.debate.types import Observation, Said
from support.making import FAILED, Tabled, by_agent, by_step, debate, lines, near, reward, text, v1, v2


def outcome(played: Tabled, mix: float = 0.0) -> Outcome:
    return Outcome.of(played, reward(played, mix), played.scoring)


def heard(played: Tabled, *shorthand: str) -> Tabled:
    """With outside judges who say this."""

    def judge(said: str) -> object:
        async def speak(observation: Observation) -> Said:
            return Said(text(lines(said), contract=BALLOT))

        return speak

    return asyncio.run(hear(played, *map(judge, shorthand)))  # type: ignore[arg-type,return-value]


# rounds; each agent's mean reward; the leaders; the winner
BY_RESPONSES = {
    "one vote": ([["", "", ""], ["1 > 2", "", ""]], [0, 0.5, -0.5], (1,), 1),
    "no vote at all": ([["", "", ""], ["", "", ""]], [0, 0, 0], (0, 1, 2), None),
    "all turns failed": ([[FAILED] * 3] * 2, [-1, -1, -1], (0, 1, 2), None),
    "one turn of six could be read, and nobody voted": (
        [[FAILED, "", FAILED], [FAILED] * 3],
        [-1, -0.5, -1],
        (1,),
        None,
    ),
    "level at the top": ([["", "", ""], ["1 > 2", "0 > 2", ""]], [0.5, 0.5, -1 / 2], (0, 1), None),
    "a circle": ([["", "", ""], ["1 > 2", "2 > 0", "0 > 1"]], [0, 0, 0], (0, 1, 2), None),
    "only ties": ([["", "", ""], ["1 = 2", "", ""]], [0, 0, 0], (0, 1, 2), None),
    # Agent 1: +1 for the vote, -1 for the failed turn: level with agent 0, about whom nobody said anything.
    "a failure takes a win back": ([["", "", ""], ["1 > 2", FAILED, ""]], [0, 0, -0.5], (0, 1), None),
    # Agents 0 and 2 lose half a point for their failed turns; the vote is a tie, but it is a vote.
    "one leads by not failing": ([["", "", ""], ["", "0 = 2", ""], [FAILED, "", FAILED]], [-1 / 3, 0, -1 / 3], (1,), 1),
}


@pytest.mark.parametrize("name", BY_RESPONSES)
def test_one_agent_alone_at_the_top_wins_if_there_is_a_vote(name: str) -> None:
    rounds, means, leaders, winner = BY_RESPONSES[name]
    found = outcome(debate(v2(), rounds))
    near(found.means, means)
    assert (found.leaders, found.winner) == (leaders, winner)


def test_by_agent_the_reward_is_the_mean_and_a_failed_turn_does_not_change_who_won() -> None:
    """Agent 2 says 0 > 1: 1, 0, 0. Agent 0's failed turn lowers its return, not its reward."""
    found = outcome(debate(v1(on_parse_failure="continue"), [["", "", "0 > 1"], [FAILED, "", ""]]))
    assert (found.means, found.leaders, found.winner) == ((1.0, 0.0, 0.0), (0,), 0)
    level = outcome(debate(v1(), [["", "", "0 > 1"], ["1 > 2", "", ""]], num_agents=3))
    # Agent 0 won its one vote; agent 1 lost one and won one.
    assert (level.means, level.winner) == ((1.0, 0.5, 0.0), 0)
    assert outcome(debate(v1(), [["", "", ""]])).winner is None


def test_a_debate_that_broke_off_has_agents_without_a_mean() -> None:
    """Under abort the debate ends at agent 1's turn: agent 2 never spoke."""
    found = outcome(debate(v2(on_parse_failure="abort"), [["", FAILED]], num_agents=3))
    assert (found.means, found.leaders, found.winner) == ((0.0, -1.0, None), (0,), None)
    nobody = outcome(debate(v2(), [[]], num_agents=3))
    assert (nobody.means, nobody.leaders, nobody.winner, nobody.votes) == ((None, None, None), (), None, ())


def test_means_that_differ_by_rounding_alone_are_level() -> None:
    third = 1 / 3
    assert leaders_by([third + third + third - 1, 0.0, -1.0]) == (0, 1)
    assert leaders_by([0.1 + 0.2, 0.3, None]) == (0, 1)
    assert leaders_by([None, 0.5, 0.2]) == (1,)
    assert leaders_by([]) == leaders_by([None]) == ()


def test_a_ballot_is_no_answer_and_leaves_the_mean_alone() -> None:
    """One answer that won its vote and one ballot: 1, not 1/2."""
    table = ((1.0, 0.0), (0.5,), (0.0, 0.0))
    stream = Stream(table, table, ((0.0, 0.0), (0.0,), (0.0, 0.0)))
    scores = Scores({"generator": stream}, ballots=frozenset({(0, 1), (2, 1)}))
    assert Outcome.of(debate(v2(), [["", "", ""]]), scores, v2().scoring).means == (1.0, 0.5, 0.0)


# Rewards that are not made of votes


@pytest.mark.parametrize(
    ("choice", "answers", "winner"),
    [
        ("truth", ["7", "8", "9"], 0),
        ("truth", ["7", "7", "9"], None),
        ("truth", ["8", "8", "9"], None),
        ("majority", ["8", "8", "9"], None),
        ("majority", ["8", None, None], 0),
    ],
)
def test_truth_and_majority_need_no_vote_but_one_leader(
    choice: str, answers: list[str | None], winner: int | None
) -> None:
    assert outcome(debate(v2(reward=choice), [["", "", ""]], [answers], truth="7")).winner == winner


def test_a_users_own_reward_needs_no_vote_either() -> None:
    played = debate(v2(), [["", "", ""]])
    scoring = Scoring(reward="mine.py:f")
    for given, winner in (([0.0, 2.0, 1.0], 1), ([2.0, 2.0, 1.0], None), ([[0.0], [0.0], [0.5]], 2)):
        scores = scored(played, scoring, None, as_reward(lambda _, given=given: given, "mine.py:f"))  # type: ignore[misc]
        assert Outcome.of(played, scores, scoring).winner == winner


def test_truth_that_is_mixed_in_lets_nobody_win_without_a_vote() -> None:
    """Half truth, agent 0 right: 0.5 against -0.5 and -0.5. It leads alone, and nobody voted."""
    silent = outcome(debate(v2(), [["", "", ""]], [["7", "8", "8"]], truth="7"), mix=0.5)
    assert (silent.means, silent.leaders, silent.winner) == ((0.5, -0.5, -0.5), (0,), None)


# Votes as pairs of agents


def test_votes_about_responses_say_who_cast_them_where_and_whom_they_are_about() -> None:
    """In round 2 agent 0 says 1 > 2 about turns 1 and 2; agent 2 sets 0 and 1 level."""
    found = outcome(debate(v2(), [["", "", ""], ["1 > 2", "", "0 = 1"]]))
    assert found.votes == (
        AgentVote(author=0, left=1, right=2, verdict=">", turn=3, round=2, left_turn=1, right_turn=2),
        AgentVote(author=2, left=0, right=1, verdict="=", turn=5, round=2, left_turn=0, right_turn=1),
    )
    assert (found.won, found.lost, found.voted) == ((0, 1, 0), (0, 0, 1), True)


def test_votes_about_agents_have_a_round_and_no_response() -> None:
    found = outcome(debate(v1(), [["", "", "0 > 1"], ["1 > 2", "", ""]], num_agents=3))
    assert found.votes == (
        AgentVote(author=2, left=0, right=1, verdict=">", turn=2, round=1),
        AgentVote(author=0, left=1, right=2, verdict=">", turn=3, round=2),
    )


@pytest.mark.parametrize("protocol", [v1(), v2()])
def test_an_outside_judge_alone_makes_a_winner_and_its_vote_is_of_no_round(protocol: object) -> None:
    played = heard(debate(protocol, [["", "", ""]] * 2), "2 > 0", "1 = 0")  # type: ignore[arg-type]
    found = outcome(played)
    assert found.winner == 2
    assert [(vote.author, vote.judge, vote.turn, vote.round) for vote in found.votes] == [
        (3, 0, None, None),
        (4, 1, None, None),
    ]
    assert [(vote.left, vote.verdict, vote.right) for vote in found.votes] == [(2, ">", 0), (1, "=", 0)]


def test_a_judge_who_only_looks_on_makes_no_winner_and_is_heard_apart() -> None:
    played = heard(debate(v2(), [["", "", ""]]), "2 > 0")
    onlooking = replace(played, scoring=replace(played.scoring, voters="agents"))
    assert (outcome(onlooking).winner, outcome(onlooking).votes) == (None, ())
    (vote,) = onlookers_votes(onlooking, onlooking.scoring)
    assert vote == AgentVote(3, 2, 0, ">", None, None, 0, 2, 0, counts=False)
    assert onlookers_votes(played, played.scoring) == ()


def test_scores_of_either_kind_are_asked_the_same_way() -> None:
    played = debate(v2(), [["", "", ""], ["1 > 2", "", ""]])
    assert by_step(played)[0].per == "turn"
    assert isinstance(by_agent(debate(v1(), [["", "", "0 > 1"]]))[0], Scores)
    assert outcome(played).winner == 1
