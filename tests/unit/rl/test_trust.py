"""Can the vote be trusted? The panel worked by hand."""

from __future__ import annotations

import pytest

from moot.rl.trust import panel
from moot.util.intervals import wilson
from support.making import FAILED, debate, judged, near, v1, v2

# One debate of four agents, worked by hand. Truth 7. Round 1: 0 and 2 are right, 1 and 3 wrong.
# Votes of round 2 (about round 1):
#   Agent 0: 1 > 2 (wrong over right)   1 > 3 (both wrong, lower number wins)
#   Agent 1: 0 > 3 (right over wrong)   0 > 2 (both right, lower wins)   and 0 > 3 once more
#   Agent 2: 0 > 1 (right over wrong)   3 > 1 (both wrong, higher wins)
#   Agent 3: 0 > 2 (both right, lower wins)   0 = 1
SOLUTIONS = [
    ["\\boxed{7}", "Well, \\boxed{8}", "So \\boxed{7}", "Hmm!! \\boxed{9}"],  # 9, 15, 12 and 15 characters
    ["7", "7", "8", None],
]
FOUR = debate(
    v2(), [[""] * 4, ["1 > 2; 1 > 3", "0 > 3; 0 > 2; 0 > 3", "0 > 1; 3 > 1", "0 > 2; 0 = 1"]], SOLUTIONS, truth="7"
)


def test_the_panel_by_hand() -> None:
    assert [len(solution) for solution in SOLUTIONS[0] if solution] == [9, 15, 12, 15]
    assert panel([judged(FOUR)]) == {
        # Right against wrong: 1 > 2 no, 0 > 3 yes, 0 > 1 yes.
        "trust/judge_accuracy": pytest.approx(2 / 3),
        # 0: 4 for, 0 against = 1; 1: 2 for, 2 against = 0; 2: 0 for, 3 against = -1; 3: 1 for, 2 against = -1/3.
        # Right ones (0, 2): mean 0. Wrong ones (1, 3): mean -1/6.
        "trust/vote_truth_agreement": pytest.approx(1 / 6),
        # Agent 0 has the highest mean, and its last answer is 7; 2 of 4 last answers are right.
        "trust/winner_correct": 1.0,
        "trust/mean_accuracy": 0.5,
        # Pairs alike: 1 > 3 lower, 0 > 2 lower, 3 > 1 higher, 0 > 2 lower: 3/4 - 1/2.
        "trust/position_bias": pytest.approx(0.25),
        # (1, 3) are equally long; 0 (9) beats 2 (12) twice: 0/2 - 1/2.
        "trust/length_bias": pytest.approx(-0.5),
        # Clear on 0-1, 0-2, 0-3 and 1-2; 1-3 is tied, 2-3 unjudged. Only 0, 1, 2 are clear on all three: 0 > 1 > 2, 0 > 2: no cycle.
        "trust/vote_cycles": 0.0,
        # Last round: 7, 7, 8, none.
        "trust/answer_diversity": 0.75,
        # Last answers: 7, 7, 8 and, from round 1, 9.
        "trust/plurality_share": 0.5,
        # In round 2 they hold 7, 7, 8 and none. 0's 1 > 2 is 8 over its own 7; 1's 0 > 3 is its own 7 over 9; 2's 0 > 1 and 3 > 1 are 7 and
        # 9 over its own 8. 1 > 3 has no 7 in it, 0 > 2 two of them, and 3 holds nothing.
        "trust/self_preference": pytest.approx(1 / 4),
        # Nobody was asked in both orders.
        "trust/order_flips": None,
        # 8 votes on the 5 pairs 1-2, 1-3, 0-3, 0-2, 0-1.
        "trust/judges_per_pair": pytest.approx(8 / 5),
        # 9 votes before ballots, one of them Agent 1's 0 > 3 again.
        "trust/duplicate_votes": pytest.approx(1 / 9),
    }


def test_nothing_measured_is_none_and_not_zero() -> None:
    """Right answers are known, but nobody voted."""
    silent = judged(debate(v2(), [["", "", ""]], answers=[["7", "8", "7"]], truth="7"))
    found = panel([silent])
    assert {name for name, value in found.items() if value is not None} == {
        "trust/mean_accuracy",
        "trust/answer_diversity",
        "trust/plurality_share",
    }
    near([found["trust/mean_accuracy"], found["trust/answer_diversity"]], [2 / 3, 2 / 3])
    assert set(panel([]).values()) == {None}


def test_without_answers_what_needs_them_is_none() -> None:
    found = panel([judged(debate(v2(), [["", "", ""], ["1 > 2", "0 > 2", "0 > 1"]], answers=[["7", "8", "9"]] * 2))])
    needs = (
        "judge_accuracy",
        "vote_truth_agreement",
        "winner_correct",
        "mean_accuracy",
        "position_bias",
        "length_bias",
    )
    assert [found[f"trust/{name}"] for name in needs] == [None] * len(needs)
    assert (found["trust/vote_cycles"], found["trust/judges_per_pair"], found["trust/duplicate_votes"]) == (
        0.0,
        1.0,
        0.0,
    )


def test_a_cycle() -> None:
    """Agent 0 says 1 > 2, Agent 1 says 2 > 0, Agent 2 says 0 > 1: one triple, one cycle."""
    assert panel([judged(debate(v2(), [["", "", ""], ["1 > 2", "2 > 0", "0 > 1"]]))])["trust/vote_cycles"] == 1.0


def test_half_of_the_triples_are_cycles() -> None:
    one = judged(debate(v2(), [["", "", ""], ["1 > 2", "2 > 0", "0 > 1"]]))
    two = judged(debate(v2(), [["", "", ""], ["1 > 2", "0 > 2", "0 > 1"]]))
    ties = judged(debate(v2(), [["", "", ""], ["1 = 2", "2 = 0", "0 = 1"]]))
    assert panel([one, two, ties])["trust/vote_cycles"] == 0.5


def test_triples_are_of_responses_not_of_agents() -> None:
    """0 > 1 and 1 > 2 about round 1, 2 > 0 about round 2: three responses of round 1 never have three clear pairs."""
    played = debate(v2(), [["", "", ""], ["1 > 2", "", "0 > 1"], ["", "2 > 0", ""]])
    assert panel([judged(played)])["trust/vote_cycles"] is None


def test_position_and_length_bias_are_signed() -> None:
    """Two wrong answers; the higher number and longer solution wins its only vote: -1/2 and +1/2."""
    played = debate(
        v2(), [["", "", ""], ["2 > 1", "", ""]], answers=[["7", "8", "Longer: \\boxed{9}"], ["7", "7", "7"]], truth="7"
    )
    found = panel([judged(played)])
    assert (found["trust/position_bias"], found["trust/length_bias"]) == (-0.5, 0.5)
    assert found["trust/judge_accuracy"] is None


def test_equally_long_solutions_are_left_out_of_length_bias() -> None:
    """All wrong. The longer one wins its vote; 0 > 1 is between two of 9 characters: 1/1 - 1/2, not 1/2 - 1/2."""
    played = debate(
        v2(),
        [["", "", ""], ["2 > 1", "", "0 > 1"]],
        answers=[["8", "9", "Longer: \\boxed{8}"], ["8", "8", "8"]],
        truth="7",
    )
    found = panel([judged(played)])
    assert (found["trust/position_bias"], found["trust/length_bias"]) == (0.0, 0.5)


def test_vote_truth_agreement_is_a_mean_over_debates_that_have_both() -> None:
    """Debate 1: right +1, wrong -1: 2. Debate 2: the contrary: -2. Debate 3 has only right ones, debate 4 no votes. Mean 0 of two."""
    rounds = [["", "", ""], ["1 > 2", "", ""]]
    right = judged(debate(v2(), rounds, answers=[["7", "7", "8"]] * 2, truth="7"))
    wrong = judged(debate(v2(), rounds, answers=[["7", "8", "7"]] * 2, truth="7"))
    same = judged(debate(v2(), rounds, answers=[["7", "7", "7"]] * 2, truth="7"))
    silent = judged(debate(v2(), [["", "", ""]], answers=[["7", "8", "7"]], truth="7"))
    assert panel([right])["trust/vote_truth_agreement"] == 2.0
    assert panel([right, wrong, same, silent])["trust/vote_truth_agreement"] == 0.0
    assert panel([right, right, wrong])["trust/vote_truth_agreement"] == pytest.approx(2 / 3)
    assert panel([same])["trust/vote_truth_agreement"] is None


def test_the_panel_is_the_same_whatever_the_run_trains_on() -> None:
    """v1 under win_rate: the same votes, read as votes about responses."""
    played = debate(v1(), [["", "", "0 > 1"]], answers=[["7", "8", "8"]], truth="7")
    found = panel([judged(played)])
    assert (found["trust/judge_accuracy"], found["trust/vote_truth_agreement"]) == (1.0, 2.0)
    assert (found["trust/winner_correct"], found["trust/mean_accuracy"]) == (1.0, pytest.approx(1 / 3))


def test_winners_are_counted_over_the_debates_that_have_one() -> None:
    """Right: 1 > 2 by agent 0 alone, and 1 is right. Level: 1 and 2 beat each other once. Silent: no vote. Wrong: 2 > 1."""
    answers = [["8", "7", "8"]] * 2
    right, level, silent, wrong = (
        judged(debate(v2(), [["", "", ""], votes], answers=answers, truth="7"))
        for votes in (["1 > 2", "", ""], ["1 > 2", "2 > 0", "0 > 1"], ["", "", ""], ["2 > 1", "", ""])
    )
    assert [each.outcome.winner for each in (right, level, silent, wrong)] == [1, None, None, 2]
    for debates, share in (([right], 1.0), ([level], None), ([silent], None), ([right, level, silent, wrong], 0.5)):
        assert panel(debates)["trust/winner_correct"] == share


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["7", "7.0", "7"], 1 / 3),
        (["7", "8", "9"], 1),
        ([None, None, None], 1 / 3),
        ([None, None, "7"], 2 / 3),
        (["7", "7", None], 2 / 3),
    ],
)
def test_answer_diversity(answers: list[str | None], expected: float) -> None:
    played = debate(v2(), [["", "", ""], ["", "", ""]], answers=[["1", "2", "3"], answers], truth="7")
    assert panel([judged(played)])["trust/answer_diversity"] == pytest.approx(expected)


def test_a_failed_last_turn_is_a_missing_answer_for_diversity() -> None:
    played = debate(v2(), [["", "", ""], ["", FAILED, FAILED]], answers=[["1", "2", "3"], ["7", "7", "7"]], truth="7")
    assert panel([judged(played)])["trust/answer_diversity"] == pytest.approx(2 / 3)


def test_duplicates_are_counted_before_ballots_and_judges_after() -> None:
    """Agent 0 says 1 > 2 four times: with ballots one judge, 3 of 4 repeated; without them four votes on the pair."""
    rounds = [["", "", ""], ["1 > 2; 1 > 2; 2 > 1; 1 = 2", "", ""]]
    for ballots, per_pair in ((True, 1.0), (False, 4.0)):
        found = panel([judged(debate(v2(one_ballot_per_pair=ballots), rounds))])
        assert (found["trust/duplicate_votes"], found["trust/judges_per_pair"]) == (0.75, per_pair)


# The interval


def test_wilsons_interval() -> None:
    """50 of 100: centre 1/2, half width 1.96 * sqrt(0.25/100 + 1.96^2/40000) / (1 + 1.96^2/100) = 0.0962."""
    low, high = wilson(50, 100)
    assert (low, high) == (pytest.approx(0.40383, abs=1e-4), pytest.approx(0.59617, abs=1e-4))
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 10)[0] == pytest.approx(0, abs=1e-12)
    assert wilson(10, 10)[1] == pytest.approx(1, abs=1e-12)
