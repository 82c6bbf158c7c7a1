"""Ballots, margins, rewards and measures of judges, worked out by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import log

import pytest

from moot.debate.checks import Pair, approval, drawn_pairs, generator_reward, is_vote, scores_in_pairs
from moot.judges.ballots import share_in_top, share_of_first, spellings, word_said
from moot.judges.measures import Judged, difference, measure

YES_NO, A_B = ("Yes", "No"), ("A", "B")


def test_the_spellings_of_a_word_are_its_single_tokens_or_all_where_it_has_none() -> None:
    known = {"Yes": [1], "yes": [2], " Yes": [3], " yes": [4, 5]}
    assert spellings("Yes", lambda text: known[text]) == [(1,), (3,), (2,)]
    assert spellings("No", lambda text: list(text.encode())) == [
        tuple(b"No"),
        tuple(b" No"),
        tuple(b"no"),
        tuple(b" no"),
    ]
    assert spellings("A", lambda text: [7]) == [(7,)], "a tokenizer that knows neither case nor spaces has one"


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [
        ([log(0.3)], [log(0.1)], 0.75),
        ([log(0.2), log(0.1)], [log(0.05), log(0.05)], 0.75),
        ([-900.0], [-900.0 + log(3)], 0.25),  # too small for a float, each by itself
        ([float("-inf")], [-5.0], 0.0),
        ([float("-inf")], [float("-inf")], 0.5),
    ],
)
def test_the_value_of_a_check_is_the_first_words_share_of_both(
    first: list[float], second: list[float], share: float
) -> None:
    assert share_of_first(first, second) == pytest.approx(share, abs=1e-12)


def test_a_servers_likeliest_tokens_are_read_in_every_spelling() -> None:
    top = {"Yes": log(0.5), " yes": log(0.1), "NO": log(0.2), "Maybe": log(0.1), "Yesterday": log(0.05)}
    assert share_in_top(top, YES_NO) == pytest.approx(0.75)
    assert share_in_top({"Yes": log(0.9)}, YES_NO) == 1.0
    assert share_in_top({"Well": log(0.9)}, YES_NO) is None


@pytest.mark.parametrize(
    ("reply", "words", "value"),
    [
        ("Yes", YES_NO, 1.0),
        ("**no.**", YES_NO, 0.0),
        ("The final answer is right: yes", YES_NO, 1.0),
        ("Nothing to add", YES_NO, 0.5),
        ("", YES_NO, 0.5),
        ("a", A_B, 1.0),
        ("Answer B is a better one", A_B, 0.0),
        ("It is a tie", A_B, 0.5),
        ("No doubt: Yes", YES_NO, 0.5),
        ("Yes and no", YES_NO, 0.5),
        ("<think>\nOkay, the user wants one word. No other text", YES_NO, 0.5),
        ("<think>Not a Yes? No.</think>\n\nYes.", YES_NO, 1.0),
        ("Is it B? Is it A?</think>B", A_B, 0.0),
        ("<think>A</think>B<think>", A_B, 0.5),
    ],
)
def test_a_word_counts_where_there_are_no_probabilities(reply: str, words: tuple[str, str], value: float) -> None:
    assert word_said(reply, words) == value


def test_approval_is_the_mean_of_the_checks() -> None:
    assert approval([0.9, 0.5, 0.1, 0.9]) == pytest.approx(0.6)
    assert approval([]) is None


@pytest.mark.parametrize(
    ("one_first", "other_first", "score", "flips"),
    [
        (0.9, 0.2, 0.85, False),  # the same one, whatever the order
        (0.9, 0.8, 0.55, True),  # the first one, whatever it is
        (0.2, 0.4, 0.4, True),  # the second one, whatever it is
        (0.5, 0.5, 0.5, False),
        (0.5, 0.2, 0.65, True),  # nobody, and then somebody
    ],
)
def test_a_pair_counts_both_orders(one_first: float, other_first: float, score: float, flips: bool) -> None:
    pair = Pair(0, 1, one_first, other_first)
    assert pair.score == pytest.approx(score) and pair.flips is flips
    assert pair.score_of(1) == pytest.approx(1 - score)


def test_an_answer_has_a_score_for_each_of_its_pairs() -> None:
    pairs = [Pair(0, 1, 0.9, 0.2), Pair(0, 2, 0.5, 0.5), Pair(1, 2, 0.2, 0.4)]
    assert scores_in_pairs(pairs, 0) == pytest.approx([0.85, 0.5])
    assert scores_in_pairs(pairs, 2) == pytest.approx([0.5, 0.6])
    assert scores_in_pairs(pairs, 3) == []


def test_opponents_are_drawn_by_the_seed_among_different_answers() -> None:
    classes, shown = [0, 0, 1, 1, None, None, 2], [True] * 6 + [False]
    pairs = drawn_pairs(classes, shown, 2, "seed")
    assert pairs == drawn_pairs(classes, shown, 2, "seed") == sorted(set(pairs))
    assert all(i < j and classes[i] != classes[j] and 6 not in (i, j) for i, j in pairs)
    assert all(sum(i in pair for pair in pairs) == 2 for i in range(6))
    assert any(drawn_pairs(classes, shown, 1, seed) != drawn_pairs(classes, shown, 1, 0) for seed in range(1, 9))
    assert drawn_pairs(classes, shown, 9, 0) == [
        (i, j) for i in range(6) for j in range(i + 1, 6) if classes[i] != classes[j]
    ]
    assert drawn_pairs([0, 0, 0], [True] * 3, 2, 0) == [], "all the same: nobody to meet"


@pytest.mark.parametrize("opponents", [1, 2, 3, 7])
def test_nobody_meets_more_than_so_many_others(opponents: int) -> None:
    """Of eight different answers each can have as many as are wanted; of seven that are the same the last has some."""
    for seed in range(50):
        met = Counter(i for pair in drawn_pairs(range(8), [True] * 8, opponents, seed) for i in pair)
        assert max(met.values()) == opponents and sum(met.values()) >= 8 * opponents - 2
        assert len(met) == 8, "nobody is left over"
        lone = drawn_pairs([*[0] * 7, 1], [True] * 8, opponents, seed)
        assert len(lone) == opponents and all(pair[1] == 7 for pair in lone)


@pytest.mark.parametrize(
    ("scores", "margin", "reward"),
    [
        ([0.75], 0.0, 0.5),
        ([0.5], 0.0, 0.0),  # a vote for nobody, but a vote
        ([0.75], 0.5, 0.5),  # |2s - 1| is the margin itself
        ([0.7], 0.5, None),
        ([0.25], 0.5, -0.5),
        ([1.0, 0.5, 0.0], 0.0, 0.0),
        ([1.0, 0.6, 0.25], 0.5, 0.25),
        ([], 0.0, None),
    ],
)
def test_scores_become_rewards(scores: list[float], margin: float, reward: float | None) -> None:
    assert generator_reward(scores, margin) == (None if reward is None else pytest.approx(reward))
    assert generator_reward(scores, margin, failed=True) == -1.0


def test_what_rounding_makes_different_is_the_same() -> None:
    """0.1 + 0.2 is not 0.3 to a computer, and 2 · 0.95 − 1 is less than 0.9."""
    one, other = approval([0.1, 0.2, 0.3]), approval([0.3, 0.2, 0.1])
    assert one != other
    measures = measure([Judged((True, False), (one, other), (1, 2), False)])
    assert measures.pair_accuracy is not None and measures.pair_accuracy.value == 0.5
    assert Pair(0, 1, 0.9, 0.9).score == 0.5 and is_vote(0.95, 0.9) and 2 * 0.95 - 1 < 0.9


def test_a_vote_is_as_sure_as_the_margin() -> None:
    assert is_vote(0.5) and is_vote(0.75, 0.5) and not is_vote(0.74, 0.5) and not is_vote(0.26, 0.5)


# Measures. Two questions with right and wrong answers, one without, one whose answers were not all judged.

ONE = Judged((True, True, False), (0.9, 0.4, 0.6), (10, 20, 30), False, tokens=30)
TWO = Judged((True, False, False, False), (0.5, 0.5, 0.1, None), (5, 5, 8, 9), True, tokens=60)
ALL_RIGHT = Judged((True, True), (0.0, 0.0), (1, 2), False, tokens=1000)
ONLY_WRONG_JUDGED = Judged((True, False), (None, 0.9), (1, 2), False, tokens=1000)


def test_two_ways_are_compared_on_the_answers_that_both_have_scored() -> None:
    """Of ONE they share a right and a wrong answer, lost by both; of TWO a right and two wrong ones: half and won here,
    lost and won there."""
    theirs = [
        replace(ONE, scores=(None, 0.2, 0.7)),
        replace(TWO, scores=(0.3, 0.6, 0.2, 0.1)),
        ALL_RIGHT,
        replace(ONLY_WRONG_JUDGED, scores=(0.9, 0.1)),
    ]
    found = difference([ONE, TWO, ALL_RIGHT, ONLY_WRONG_JUDGED], theirs)
    assert found is not None and (found.questions, found.pairs) == (2, 3)
    assert found.interval.value == pytest.approx(1.5 / 3 - 1 / 3)
    assert (found.interval.low, found.interval.high) == (-1, 1), "two questions say nothing"
    assert difference([ALL_RIGHT, ONLY_WRONG_JUDGED], [ALL_RIGHT, ONLY_WRONG_JUDGED]) is None


def test_what_two_intervals_leave_open_their_paired_difference_can_tell() -> None:
    """One is right in 15 of 30 questions, the other in these and in 8 more."""

    def right_in(count: int) -> list[Judged]:
        return [Judged((True, False), (float(i < count), float(i >= count)), (1, 1), False) for i in range(30)]

    less, more = measure(right_in(15)).pair_accuracy, measure(right_in(23)).pair_accuracy
    assert less is not None and more is not None and less.high > more.low
    found = difference(right_in(23), right_in(15))
    assert found is not None and found.interval.value == pytest.approx(8 / 30)
    assert 0.05 < found.interval.low < 0.167 < 0.367 < found.interval.high < 0.5
    same = difference(right_in(15), right_in(15))
    assert same is not None and same.as_dict() == pytest.approx(
        {"value": 0, "low": -0.1, "high": 0.1, "questions": 30, "pairs": 30}
    ), "3 of 30 may still differ"


def test_a_table_of_measures_by_hand() -> None:
    measures = measure([ONE, TWO, ALL_RIGHT, ONLY_WRONG_JUDGED])
    assert (measures.questions, measures.pairs) == (2, 4)

    def value(name: str) -> float:
        return float(getattr(measures, name).value)

    # ONE: 0.9 > 0.6 is won, 0.4 < 0.6 is lost. TWO: 0.5 = 0.5 is half, 0.5 > 0.1 is won.
    assert value("pair_accuracy") == pytest.approx(2.5 / 4)
    # Approved: one of three right ones (0.9; a half is not), one of three wrong ones (0.6).
    assert value("j") == pytest.approx(1 / 3 - 1 / 3)
    # By difference: TWO's 0.4 won, ONE's 0.3 won, 0.2 lost, 0 half.
    assert value("precision_20") == 1.0 and value("precision_50") == 1.0
    assert value("precision_100") == pytest.approx(2.5 / 4)
    assert value("counting_fails") == pytest.approx(1.5 / 2)
    assert value("cost") == pytest.approx(90 / 6)
    # Scores minus their mean: 4/15, -7/30, -1/30 at -10, 0, 10; and 2/15, 2/15, -4/15 at -1, -1, 2.
    both = -8 / 3 - 1 / 3 - 4 / 15 - 8 / 15
    scores = (16 + 49 / 4 + 1 / 4) / 225 + 24 / 225
    assert value("length") == pytest.approx(both / (scores * 206) ** 0.5)
    assert measures.one_order is None and measures.order_flips is None


def test_a_half_is_no_approval() -> None:
    """A right answer has exactly ½ and a wrong one less: nobody is approved, and J is 0, not 1."""
    measures = measure([Judged((True, False), (0.5, 0.1), (1, 1), False)])
    assert measures.j is not None and measures.j.value == 0.0


def test_precision_counts_level_pairs_at_the_border_alike() -> None:
    # Of five pairs one is wanted at 20%: two are level, one won and one lost.
    judged = [Judged((True, False), (0.9, 0.1), (1, 1), False), Judged((True, False), (0.1, 0.9), (1, 1), False)]
    judged += [Judged((True, False), (0.6, 0.5), (1, 1), False)] * 3
    measures = measure(judged)
    assert measures.precision_20 is not None and measures.precision_20.value == 0.5
    # Of the three at 50% all of these, and one of the other three, which are won.
    assert measures.precision_50 is not None and measures.precision_50.value == pytest.approx(2 / 3)
    assert measures.length is None, "lengths never move"
    assert measures.cost is None, "nobody counted"


def test_pairs_have_measures_of_their_own_and_no_j() -> None:
    pairs = (Pair(0, 1, 0.9, 0.2), Pair(0, 2, 0.9, 0.8), Pair(1, 2, 0.5, 0.2))
    measures = measure([Judged((True, False, False), (0.7, 0.2, 0.4), (1, 2, 3), False, 12, pairs)], "pairs")
    assert measures.j is None
    # A right one against a wrong one, order by order: won, won; won, lost. The pair of two wrong ones says nothing.
    assert measures.one_order is not None and measures.one_order.value == pytest.approx(3 / 4)
    sure = measure([Judged((True, False), (0.85, 0.15), (1, 2), False, 12, pairs[:1])], "pairs")
    assert sure.one_order is not None and sure.one_order.value == 1.0, "preferred in the second place too"
    # The last one prefers nobody in one order and the first in the other: a change, too.
    assert measures.order_flips is not None and measures.order_flips.value == pytest.approx(2 / 3)
    assert measures.cost is not None and measures.cost.value == 4


def test_one_question_makes_no_interval_without_width() -> None:
    """A bootstrap of one question draws the same numbers each time; that is no certainty."""
    question = Judged((True, True, False, False), (0.9, 0.8, 0.1, 0.2), (1, 2, 3, 5), True, tokens=8)
    told = measure([question]).as_dict()
    for name in ("pair_accuracy", "j", "precision_20", "precision_50", "counting_fails", "length"):
        low, value, high = (told[name][end] for end in ("low", "value", "high"))  # type: ignore[index]
        assert low <= value <= high and high - low > 0.4, name
    # By hand: two of two are approved, none of two: Wilson's ends are 0.342 and 0.658 away from both.
    assert told["j"]["low"] == pytest.approx(1 - 2**0.5 * 0.6576, abs=1e-4)  # type: ignore[index]
    assert told["j"]["high"] == 1.0  # type: ignore[index]


def test_nothing_to_measure_is_nothing_and_not_zero() -> None:
    for questions in ([], [ALL_RIGHT, ONLY_WRONG_JUDGED]):
        told = measure(questions).as_dict()
        assert told.pop("questions") == told.pop("pairs") == 0
        assert set(told.values()) == {None}
    assert measure([ONE]).counting_fails is None
