"""Seed 2's two reward streams, worked by hand, as `v2` reads them and to the letter.

Tables are per agent and step. In a parallel debate nobody has seen anything in round 1, so votes of round 2 are about responses of
round 1, and so on; the responses of the last round are judged by nobody.
"""

from __future__ import annotations

from typing import Any

import pytest

from moot.debate.protocols import PRESETS
from support.making import FAILED, by_step, debate, near, v2, values

LITERAL = PRESETS["v2_literal"]
NOBODY = ["", "", ""]
FULL = [NOBODY, ["1 > 2", "0 > 2", "0 > 1"]]
"""Three agents, everyone votes on the two others. 0 is preferred twice, 1 once and rejected once, 2 rejected twice."""


# The generator: 2 * for / (for + against) - 1


def test_three_agents_v2() -> None:
    scores, advantages = by_step(debate(v2(), FULL))
    assert (len(scores.votes), scores.lines_invalid, scores.missing_comparisons) == (3, 0, 0)
    # 2*2/2-1, 2*1/2-1, 2*0/2-1; nobody judged round 2, which is no judgement: 0.
    near(values(scores, "generator"), [[1, 0], [0, 0], [-1, 0]])
    # Each pair has one judge, who agrees with itself.
    near(values(scores, "judge"), [[0, 1], [0, 1], [0, 1]])
    # The three judged responses have mean 0; the three others take no part.
    near(advantages["generator"], [[1, 0], [0, 0], [-1, 0]])
    # Three judges, all 1, less their mean 1.
    near(advantages["judge"], [[0, 0], [0, 0], [0, 0]])


def test_three_agents_to_the_letter() -> None:
    scores, advantages = by_step(debate(LITERAL, FULL))
    # An unvoted step is 2 * 0 / max(1, 0) - 1 = -1. The third turn of the debate has no vote and is not exempt: -0.5.
    near(values(scores, "generator"), [[1, -1], [0, -1], [-1, -1]])
    near(values(scores, "judge"), [[0, 1], [0, 1], [-1 / 2, 1]])
    assert scores.missing_comparisons == 1
    # Means over all six steps: -3/6 and 2.5/6.
    near(advantages["generator"], [[3 / 2, -1 / 2], [1 / 2, -1 / 2], [-1 / 2, -1 / 2]])
    near(advantages["judge"], [[-5 / 12, 7 / 12], [-5 / 12, 7 / 12], [-11 / 12, 7 / 12]])


FIVE = [[""] * 5, ["2 > 3", "2 = 3", "0 > 1", "0 > 1", "1 > 0"]]
"""Five agents. On 0 and 1: two for 0, one for 1. On 2 and 3: one for 2, one tie. Nobody judges 4."""


def test_soft_ratio_and_consensus_with_five_agents() -> None:
    scores, advantages = by_step(debate(v2(), FIVE))
    assert len(scores.votes) == 5
    # 0: 2 for, 1 against = 2*2/3-1 = 1/3. 1: the contrary. 2: 1 for, the tie counts in neither = 1. 3: -1. 4: unjudged.
    near(values(scores, "generator"), [[1 / 3, 0], [-1 / 3, 0], [1, 0], [-1, 0], [0, 0]])
    # Consensus is 0 over 1, and 2 over 3 (one `>` against no `>` the other way). Agent 1's `=` disagrees with a clear consensus,
    # Agent 4 with the two others.
    near(values(scores, "judge"), [[0, 1], [0, -1], [0, 1], [0, 1], [0, -1]])
    near(advantages["generator"], [[1 / 3, 0], [-1 / 3, 0], [1, 0], [-1, 0], [0, 0]])
    # Mean of 1, -1, 1, 1, -1 is 1/5.
    near(advantages["judge"], [[0, 4 / 5], [0, -6 / 5], [0, 4 / 5], [0, 4 / 5], [0, -6 / 5]])


def test_leave_one_out_asks_the_other_judges_only() -> None:
    scores, advantages = by_step(debate(v2(judge_consensus="leave_one_out"), FIVE))
    # On (0, 1): Agent 2 is measured by 3 and 4, who disagree: a tie, no signal; so is 3 by 2 and 4. Agent 4 by 2 and 3: -1.
    # On (2, 3): Agent 0 is measured by 1's tie: no signal. Agent 1's tie by 0's `>`: -1.
    near(values(scores, "judge"), [[0, 0], [0, -1], [0, 0], [0, 0], [0, -1]])
    # Two steps with a signal, both -1, less their mean -1.
    near(advantages["judge"], [[0, 0]] * 5)
    near(values(scores, "generator"), [[1 / 3, 0], [-1 / 3, 0], [1, 0], [-1, 0], [0, 0]])


def test_leave_one_out_leaves_out_the_judges_votes_of_other_rounds_too() -> None:
    """0 and 2 fail in rounds 2 and 3, so Agent 3's two votes are both about their first responses. Left out, nobody remains."""
    rounds = [[""] * 4, [FAILED, "", FAILED, "0 > 2"], [FAILED, "", FAILED, "0 > 2"]]
    scores, _ = by_step(debate(v2(judge_consensus="leave_one_out", enable_format_penalty=False), rounds))
    assert len(scores.votes) == 2
    near(values(scores, "judge")[3], [0, 0, 0])
    scores, _ = by_step(debate(v2(enable_format_penalty=False), rounds))
    near(values(scores, "judge")[3], [0, 1, 1])


def test_the_lambdas_weigh_the_advantages_and_not_the_rewards() -> None:
    plain, _ = by_step(debate(v2(), FIVE))
    scores, advantages = by_step(debate(v2(lambda_gen=0.5, lambda_judge=1.5), FIVE))
    assert values(scores, "generator") == values(plain, "generator")
    assert values(scores, "judge") == values(plain, "judge")
    near(advantages["generator"], [[1 / 6, 0], [-1 / 6, 0], [1 / 2, 0], [-1 / 2, 0], [0, 0]])
    near(advantages["judge"], [[0, 6 / 5], [0, -9 / 5], [0, 6 / 5], [0, 6 / 5], [0, -9 / 5]])


def test_the_lambdas_weigh_penalties_too() -> None:
    """A failed turn is -1 * lambda_gen, an abstention -0.5 * lambda_judge."""
    _, advantages = by_step(debate(v2(lambda_gen=0.5, lambda_judge=3), [[""] * 4, ["", FAILED, "", ""]]))
    near(advantages["generator"][1], [0, -1 / 2])
    near(advantages["judge"], [[0, -3 / 2], [0, 0], [0, -3 / 2], [0, -3 / 2]])


# Ties


def test_a_pair_that_is_tied_by_votes_gives_judges_no_signal_and_generators_a_zero_that_counts() -> None:
    """Four agents: 2 says 0 > 1, 3 says 1 > 0. Both responses have 1 for and 1 against: 0, and they take part in the mean.

    0 and 1 both say 2 > 3: +1 and -1. The mean of 0, 0, 1, -1 is 0.
    """
    scores, advantages = by_step(debate(v2(), [[""] * 4, ["2 > 3", "2 > 3", "0 > 1", "1 > 0"]]))
    near(values(scores, "generator"), [[0, 0], [0, 0], [1, 0], [-1, 0]])
    assert scores.streams["generator"].to_center == ((0.0, None), (0.0, None), (1.0, None), (-1.0, None))
    near(values(scores, "judge"), [[0, 1], [0, 1], [0, 0], [0, 0]])
    assert scores.streams["judge"].to_center == ((None, 1.0), (None, 1.0), (None, None), (None, None))
    near(advantages["judge"], [[0, 0]] * 4)


def test_only_ties_say_nothing_about_anyone() -> None:
    scores, advantages = by_step(debate(v2(), [NOBODY, ["1 = 2", "0 = 2", "0 = 1"]]))
    assert (len(scores.votes), scores.missing_comparisons) == (3, 0), "a tie is a vote: no penalty"
    near((values(scores, "generator"), values(scores, "judge")), ([[0, 0]] * 3, [[0, 0]] * 3))
    near((advantages["generator"], advantages["judge"]), ([[0, 0]] * 3, [[0, 0]] * 3))


def test_alignment_is_the_mean_over_votes_with_a_clear_consensus() -> None:
    """Five agents. 4 votes on three pairs: agrees on (0,1), disagrees on (0,2), and (1,3) is tied by 0 and 2: (1 - 1) / 2 = 0.

    (0, 1): 2 and 4 say 0. (0, 2): 1 and 3 say 0, 4 says 2. (1, 3): 4 says 1, 0 says 3: a tie.
    Agent 3 votes on (0, 2) and, alone, on (1, 2): both agree: 1.
    """
    scores, _ = by_step(debate(v2(), [[""] * 5, ["3 > 1", "0 > 2", "0 > 1", "0 > 2; 1 > 2", "0 > 1; 2 > 0; 1 > 3"]]))
    near([row[1] for row in values(scores, "judge")], [0, 1, 1, 1, 0])
    assert [row[1] for row in scores.streams["judge"].to_center] == [None, 1.0, 1.0, 1.0, 0.0]


# The format penalty


def penalised(played_choices: dict[str, Any], rounds: list[list[str]]) -> tuple[list[list[float]], int]:
    scores, _ = by_step(debate(v2(**played_choices), rounds))
    return [list(row) for row in values(scores, "judge")], scores.missing_comparisons


def test_everyone_abstains() -> None:
    scores, advantages = by_step(debate(v2(), [NOBODY, NOBODY]))
    near(values(scores, "judge"), [[0, -1 / 2]] * 3)
    assert scores.missing_comparisons == 3, "round 1 is exempt: nobody had seen anyone"
    # Added after centring, so that it teaches something.
    near(advantages["judge"], [[0, -1 / 2]] * 3)
    near(advantages["generator"], [[0, 0]] * 3)


def test_everyone_abstains_to_the_letter() -> None:
    scores, advantages = by_step(debate(LITERAL, [NOBODY, NOBODY]))
    # Only the debate's first two turns are exempt: four penalties, mean -2/6.
    near(values(scores, "judge"), [[0, -1 / 2], [0, -1 / 2], [-1 / 2, -1 / 2]])
    assert scores.missing_comparisons == 4
    near(advantages["judge"], [[1 / 3, -1 / 6], [1 / 3, -1 / 6], [-1 / 6, -1 / 6]])
    # All -1, less their mean: nothing.
    near(values(scores, "generator"), [[-1, -1]] * 3)
    near(advantages["generator"], [[0, 0]] * 3)


PENALTIES: dict[str, tuple[dict[str, Any], list[list[str]], list[list[float]]]] = {
    # A vote for nobody present, and one that names its author, are not votes.
    "no vote that counts": ({}, [NOBODY, ["1 > 7", "0 > 1", "0 > 1"]], [[0, -1 / 2], [0, -1 / 2], [0, 1]]),
    "switched off": ({"enable_format_penalty": False}, [NOBODY, NOBODY], [[0, 0]] * 3),
    # With two agents there is only ever one other: nothing to compare, no penalty.
    "two agents": ({}, [["", ""], ["", ""]], [[0, 0]] * 2),
    # Agent 1 failed, so 0 and 2 have seen one parsed answer each; Agent 1 has seen two and is silent.
    "one eligible agent is not enough": ({}, [["", FAILED, ""], NOBODY], [[0, 0], [0, -1 / 2], [0, 0]]),
    # A failed turn has its own penalty.
    "a failed turn has no format penalty": ({}, [NOBODY, [FAILED, "", ""]], [[0, 0], [0, -1 / 2], [0, -1 / 2]]),
    # Sequential: 0 has seen nobody, 1 has seen one, 2 has seen two. Seed 2's exemptions, from the one rule.
    "sequential, round 1": ({"schedule": "sequential"}, [NOBODY], [[0], [0], [-1 / 2]]),
    "sequential, round 2": ({"schedule": "sequential"}, [NOBODY, NOBODY], [[0, -1 / 2], [0, -1 / 2], [-1 / 2, -1 / 2]]),
    "no history, nobody to compare": ({"history_rounds": 0}, [NOBODY, NOBODY], [[0, 0]] * 3),
    # With a window of one round Agent 0 in round 3 sees round 2, where 2 failed: one eligible agent, no penalty; so does Agent 1.
    # Agent 2 sees two.
    "a window": (
        {"history_rounds": 1},
        [NOBODY, ["1 > 2", "0 > 2", FAILED], NOBODY],
        [[0, 1, 0], [0, 1, 0], [0, 0, -1 / 2]],
    ),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_format_penalty(name: str) -> None:
    choices, rounds, judge = PENALTIES[name]
    found, missing = penalised(choices, rounds)
    near(found, judge)
    assert missing == sum(cell == -1 / 2 for row in judge for cell in row)


def test_to_the_letter_a_failed_turn_after_the_first_two_gets_the_penalty_too() -> None:
    scores, _ = by_step(debate(LITERAL, [[FAILED, FAILED, FAILED]]))
    near(values(scores, "judge"), [[0], [0], [-1 / 2]])
    assert scores.missing_comparisons == 1


def test_to_the_letter_the_penalty_can_be_switched_off() -> None:
    scores, _ = by_step(debate(PRESETS["v2_literal"].with_choices({"enable_format_penalty": False}), [NOBODY, NOBODY]))
    near(values(scores, "judge"), [[0, 0]] * 3)
    assert scores.missing_comparisons == 0


# Failures


def test_one_lone_failure_and_no_votes() -> None:
    """v2: the failed turn is -1 and nobody else is touched. To the letter all three are -1, and centring makes nothing of it."""
    one = [["", FAILED, ""]]
    scores, advantages = by_step(debate(v2(), one))
    near(values(scores, "generator"), [[0], [-1], [0]])
    near(advantages["generator"], [[0], [-1], [0]])
    scores, advantages = by_step(debate(LITERAL, one))
    near(values(scores, "generator"), [[-1], [-1], [-1]])
    near(advantages["generator"], [[0], [0], [0]])


def test_everyone_fails() -> None:
    everyone = [[FAILED] * 3, [FAILED] * 3]
    scores, advantages = by_step(debate(v2(), everyone))
    near(values(scores, "generator"), [[-1, -1]] * 3)
    near(advantages["generator"], [[-1, -1]] * 3)
    near(advantages["judge"], [[0, 0]] * 3)
    _, advantages = by_step(debate(LITERAL, everyone))
    near(advantages["generator"], [[0, 0]] * 3)


def test_a_failure_beside_votes_takes_no_part_in_the_mean() -> None:
    """Agent 1 fails in round 1, and in round 2 judges 0 > 2. The others have seen one answer and can compare nothing.

    Judged: 0 with +1, 2 with -1, mean 0. The failure stays at -1.
    """
    scores, advantages = by_step(debate(v2(), [["", FAILED, ""], ["", "0 > 2", ""]]))
    near(values(scores, "generator"), [[1, 0], [-1, 0], [-1, 0]])
    near(advantages["generator"], [[1, 0], [-1, 0], [-1, 0]])
    assert len(scores.votes) == 1


def test_no_vote_can_be_about_a_failed_turn() -> None:
    """Agent 1 fails in round 1: `1 > 2` of Agent 0 and `0 > 1` of Agent 2 are lines that give no vote, not penalties (one eligible)."""
    scores, _ = by_step(debate(v2(), [["", FAILED, ""], ["1 > 2", "", "0 > 1"]]))
    assert (len(scores.votes), scores.lines_invalid, scores.missing_comparisons) == (0, 2, 1)


def test_a_vote_is_about_the_newest_parsed_response_its_author_was_shown() -> None:
    """Agent 1 fails in round 2, so in round 3 `1 > 2` is about Agent 1's step 0 and Agent 2's step 1.

    Votes: round 2, Agent 0: 2 > 1 (steps 0 and 0). Round 3, Agent 0: 1 > 2 (steps 0 and 1).
    1, step 0: one for, one against: 0. 2, step 0: +1; 2, step 1: -1.
    """
    played = debate(v2(enable_format_penalty=False), [NOBODY, ["2 > 1", FAILED, ""], ["1 > 2", "", ""]])
    scores, advantages = by_step(played)
    near(values(scores, "generator"), [[0, 0, 0], [0, -1, 0], [1, -1, 0]])
    near(advantages["generator"], [[0, 0, 0], [0, -1, 0], [1, -1, 0]])


def test_a_window_decides_which_response_a_vote_is_about() -> None:
    """As before with history_rounds 1: in round 3 Agent 1's first response is out of sight and its second failed, so `1 > 2` is no vote."""
    played = debate(v2(history_rounds=1), [NOBODY, ["2 > 1", FAILED, ""], ["1 > 2", "", ""]])
    scores, _ = by_step(played)
    assert (len(scores.votes), scores.lines_invalid) == (1, 1)
    near(values(scores, "generator")[2], [1, 0, 0])


def test_sequential_votes_are_about_this_round_where_someone_has_spoken() -> None:
    """Round 1: Agent 2 says 0 > 1. Round 2: Agent 0 says 1 > 2 (round 1); Agent 1 says 0 > 2: 0 of round 2, 2 of round 1."""
    scores, _ = by_step(debate(v2(schedule="sequential"), [["", "", "0 > 1"], ["1 > 2", "0 > 2", "1 > 0"]]))
    # Agent 2 in round 2: 1 > 0, both of round 2.
    # 0: step 0 preferred; step 1 preferred by 1, rejected by 2: 0. 1: step 0 rejected by 2, preferred by 0: 0; step 1 preferred.
    # 2: step 0 rejected twice.
    near(values(scores, "generator"), [[1, 0], [0, 1], [-1, 0]])


# Ballots


def test_a_stuffed_ballot_changes_nothing_in_v2() -> None:
    stuffed = [NOBODY, ["; ".join(["1 > 2"] * 50), "0 > 2", "0 > 1"]]
    once, one = by_step(debate(v2(), FULL))
    many, all_ = by_step(debate(v2(), stuffed))
    assert (len(many.votes), many.lines_invalid) == (3, 0), "superseded lines are not invalid"
    assert {name: stream.values for name, stream in many.streams.items()} == {
        name: stream.values for name, stream in once.streams.items()
    }
    assert all_ == one


def test_a_stuffed_ballot_without_the_rule() -> None:
    """50 votes for 1 against 1: 2*50/51-1 = 49/51, and 51 judgements against 2."""
    scores, _ = by_step(debate(v2(one_ballot_per_pair=False), [NOBODY, ["; ".join(["1 > 2"] * 50), "0 > 2", "0 > 1"]]))
    assert len(scores.votes) == 52
    near(values(scores, "generator"), [[1, 0], [49 / 51, 0], [-1, 0]])


@pytest.mark.parametrize(
    ("said", "one", "two"),
    [
        ("1 > 2; 2 > 1", -1, 1),
        ("2 > 1; 1 > 2", 1, -1),
        ("1 > 2; 2 = 1", 0, 0),
        ("1 = 2; 1 > 2; 2 > 1; 1 > 2", 1, -1),
    ],
)
def test_an_authors_last_word_on_a_pair_counts(said: str, one: float, two: float) -> None:
    scores, _ = by_step(debate(v2(), [NOBODY, [said, "", ""]]))
    assert len(scores.votes) == 1
    near(values(scores, "generator"), [[0, 0], [one, 0], [two, 0]])


def test_ballots_are_per_turn() -> None:
    """With history_rounds -1 an agent may judge the same responses again in a later round: two turns, two ballots."""
    rounds = [NOBODY, ["1 > 2", FAILED, FAILED], ["1 > 2", "", ""]]
    scores, _ = by_step(debate(v2(), rounds))
    assert len(scores.votes) == 2


# Lines


def test_lines_that_gave_no_vote() -> None:
    """Two votes; invalid are the chain, the sentence, the author's own, the absent agent and the pair with itself: five."""
    said = "1 > 2; ; 1 > 2 > 1; I like 1; 0 > 1; 1 > 8; 2 > 2; ```; n/a.; 2 > 1"
    scores, _ = by_step(debate(v2(one_ballot_per_pair=False), [NOBODY, [said, "", ""]]))
    assert (len(scores.votes), scores.lines_invalid) == (2, 5)


def test_a_vote_about_someone_not_yet_heard_is_an_invalid_line_and_an_abstention() -> None:
    """Sequential, four agents, round 1: Agent 2 has seen 0 and 1 and compares 0 with 3."""
    scores, _ = by_step(debate(v2(schedule="sequential"), [["", "", "0 > 3", "0 > 1"]]))
    assert (len(scores.votes), scores.lines_invalid, scores.missing_comparisons) == (1, 1, 1)


def test_a_debate_without_turns() -> None:
    scores, advantages = by_step(debate(v2(), [[]], num_agents=3))
    assert advantages == {"generator": ((), (), ()), "judge": ((), (), ())}
    assert (len(scores.votes), scores.missing_comparisons) == (0, 0)
