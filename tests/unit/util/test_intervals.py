"""Our intervals and tests beside scipy's, on the same numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from moot.util.intervals import (
    cautious_interval,
    interval,
    intervals,
    paired_interval,
    seeds_interval,
    sign_flip_p,
    statistic_interval,
    wilson,
)

CHANCE = np.random.default_rng(20)
RIGHT = CHANCE.random(60) < 0.4
SHARES = CHANCE.integers(0, 6, 60) / 5
OTHERS = np.clip(SHARES + CHANCE.integers(-2, 3, 60) / 5, 0, 1)
VOTES = CHANCE.integers(0, 4, 60)
GOOD_VOTES = CHANCE.binomial(VOTES, 0.6)


def scipys(data: tuple[Any, ...], statistic: Any, seed: int, paired: bool = False) -> tuple[float, float]:
    found = stats.bootstrap(
        data,
        statistic,
        method="percentile",
        n_resamples=10_000,
        paired=paired,
        vectorized=False,
        rng=np.random.default_rng(seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


# The bootstrap


@pytest.mark.parametrize("values", [RIGHT, SHARES], ids=["right or wrong", "averages of five"])
@pytest.mark.parametrize("seed", [0, 7])
def test_the_interval_of_a_mean_is_scipys_percentile_bootstrap(values: np.ndarray, seed: int) -> None:
    ours = interval(values.astype(float), seed=seed)
    assert ours is not None
    assert ours.value == pytest.approx(float(values.mean()), abs=1e-12)
    assert (ours.low, ours.high) == pytest.approx(scipys((values.astype(float),), np.mean, seed), abs=1e-12)


def test_the_interval_of_a_share_of_votes_resamples_questions_not_votes() -> None:
    ours = interval(GOOD_VOTES, VOTES, seed=3)
    assert ours is not None
    theirs = scipys((GOOD_VOTES, VOTES), lambda good, all_: good.sum() / all_.sum(), 3, paired=True)
    assert (ours.low, ours.high) == pytest.approx(theirs, abs=1e-12)
    apart = np.repeat([1.0, 0.0], [GOOD_VOTES.sum(), VOTES.sum() - GOOD_VOTES.sum()])
    by_vote = interval(apart, seed=3)
    assert by_vote is not None and by_vote.value == pytest.approx(ours.value) and by_vote.low != ours.low


def test_the_interval_of_a_difference_is_scipys_paired_bootstrap() -> None:
    ones = np.ones(60)
    ours = paired_interval((SHARES, ones), (OTHERS, ones), seed=5)
    assert ours is not None
    assert ours.value == pytest.approx(float((SHARES - OTHERS).mean()), abs=1e-12)
    theirs = scipys((SHARES, OTHERS), lambda a, b: a.mean() - b.mean(), 5, paired=True)
    assert (ours.low, ours.high) == pytest.approx(theirs, abs=1e-12)


def test_pairing_narrows_what_two_rows_share() -> None:
    ones = np.ones(60)
    paired = paired_interval((SHARES, ones), (OTHERS, ones))
    ours, theirs = interval(SHARES), interval(OTHERS)
    assert paired is not None and ours is not None and theirs is not None
    assert paired.high - paired.low < 0.7 * ((ours.high - ours.low) + (theirs.high - theirs.low))


def test_draws_in_pieces_are_the_draws_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = interval(SHARES, seed=1)
    monkeypatch.setattr("moot.util.intervals._CHUNK", 1000)
    assert interval(SHARES, seed=1) == whole


def test_the_same_seed_gives_the_same_interval_and_several_shares_one_draw() -> None:
    together = intervals([(SHARES, np.ones(60)), (GOOD_VOTES, VOTES)], seed=4)
    assert together == [interval(SHARES, seed=4), interval(GOOD_VOTES, VOTES, seed=4)]
    assert together[0] != interval(SHARES, seed=5)


def test_what_is_no_share_is_drawn_as_shares_are() -> None:
    """A mean, as a statistic of how often each question was drawn: the same draws, so the same interval."""
    values = np.random.default_rng(3).normal(size=30)
    drawn = statistic_interval(lambda times: times @ values / times.sum(axis=1), 30, seed=5, resamples=1950)
    shared = interval(values, seed=5, resamples=1950)
    assert drawn is not None and shared is not None
    # Draws come in pieces of another size, so they are others of the same kind.
    assert drawn.value == pytest.approx(shared.value)
    assert (drawn.low, drawn.high) == pytest.approx((shared.low, shared.high), abs=0.05)
    assert statistic_interval(lambda times: times.sum(axis=1) * np.nan, 30) is None


def test_nothing_counted_is_none_and_not_zero() -> None:
    assert interval([0.0, 0.0], [0.0, 0.0]) is None
    assert paired_interval(([1.0], [1.0]), ([0.0], [0.0])) is None
    # A draw without any vote says nothing; the others still make an interval.
    few = interval([1.0, 0.0, 0.0], [2.0, 0.0, 0.0])
    assert few is not None and (few.value, few.low, few.high) == (0.5, 0.5, 0.5)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_an_interval_holds_its_value_and_stays_between_0_and_1(values: list[bool]) -> None:
    found = interval([float(v) for v in values], resamples=500)
    assert found is not None
    assert 0 <= found.low <= found.value + 1e-12 and found.value - 1e-12 <= found.high <= 1


# Wilson


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (17, 40), (399, 1000)])
def test_wilson_is_scipys(hits: int, trials: int) -> None:
    theirs = stats.binomtest(hits, trials).proportion_ci(method="wilson")
    assert wilson(hits, trials) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_wilson_of_none_or_all_reaches_the_share_itself() -> None:
    for trials in range(1, 100):
        low, high = wilson(0, trials)[0], wilson(trials, trials)[1]
        assert (low, high) == (0.0, 1.0), f"{trials} trials: a share outside its interval cannot be drawn"


def test_the_cautious_interval_is_the_wider_on_each_side() -> None:
    nothing = cautious_interval([0.0] * 10, [1.0] * 10)
    assert nothing is not None and nothing.low == 0.0
    assert nothing.high == pytest.approx(wilson(0, 10)[1]), "a bootstrap of ten zeros has no width"
    most = cautious_interval([1.0] * 9 + [0.0], [1.0] * 10)
    assert most is not None and most.low == pytest.approx(wilson(9, 10)[0]), "the bootstrap would begin at 70%"
    assert most.high == 1.0, "and Wilson would end below 1"
    # Ten questions of eight votes each that all agree: Wilson takes them for eighty, the bootstrap for ten.
    clustered = cautious_interval([8.0] * 5 + [0.0] * 5, [8.0] * 10)
    assert clustered is not None
    drawn = interval([8.0] * 5 + [0.0] * 5, [8.0] * 10)
    assert drawn is not None and (clustered.low, clustered.high) == (drawn.low, drawn.high)
    assert clustered.low < wilson(40, 80)[0] and clustered.high > wilson(40, 80)[1]


# The paired test


@pytest.mark.parametrize(("gained", "lost", "same"), [(1, 0, 5), (8, 2, 40), (5, 5, 3), (30, 12, 158), (120, 60, 20)])
def test_on_right_or_wrong_answers_it_is_mcnemars_exact_test(gained: int, lost: int, same: int) -> None:
    differences = [1.0] * gained + [-1.0] * lost + [0.0] * same
    assert sign_flip_p(differences) == pytest.approx(stats.binomtest(gained, gained + lost, 0.5).pvalue, abs=1e-12)


def test_on_averages_it_is_scipys_exact_permutation_test() -> None:
    ours, theirs = SHARES[:12], OTHERS[:12]
    found = stats.permutation_test(
        (ours, theirs), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf, vectorized=False
    )
    assert sign_flip_p(ours - theirs) == pytest.approx(found.pvalue, abs=1e-12)


def test_averages_over_different_numbers_of_answers_are_exact_too() -> None:
    differences = np.array([1 / 3, -1 / 5, 2 / 3 - 1 / 5, 0.0, 1 / 3, -2 / 5])
    flips = [abs(np.dot(signs, differences)) for signs in itertools.product((1, -1), repeat=6)]
    by_hand = np.mean([flip >= abs(differences.sum()) - 1e-12 for flip in flips])
    assert sign_flip_p(differences) == pytest.approx(by_hand, abs=1e-12)


def test_other_numbers_are_tested_by_drawing_signs() -> None:
    odd = np.random.default_rng(1).normal(0.2, 1.0, 40)
    found = stats.permutation_test(
        (odd, np.zeros(40)), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=20_000, rng=1
    )
    assert sign_flip_p(odd) == pytest.approx(found.pvalue, abs=0.02)
    assert sign_flip_p(odd, seed=2) == sign_flip_p(odd, seed=2)


def test_no_difference_at_all_is_no_evidence() -> None:
    assert sign_flip_p([0.0, 0.0]) == 1.0
    assert sign_flip_p([]) == 1.0


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30))
def test_the_test_takes_no_side(fifths: list[int]) -> None:
    p = sign_flip_p([f / 5 for f in fifths])
    assert 0 < p <= 1
    assert p == pytest.approx(sign_flip_p([-f / 5 for f in fifths]))


# Several seeds


def test_seeds_that_agree_add_nothing_and_seeds_that_disagree_widen() -> None:
    alike = seeds_interval([SHARES, SHARES, SHARES])
    alone = interval(SHARES)
    assert alone is not None
    assert (alike.low, alike.high) == pytest.approx((alone.low, alone.high), abs=0.01)
    apart = seeds_interval([np.clip(SHARES - 0.3, 0, 1), SHARES, np.clip(SHARES + 0.3, 0, 1)])
    assert apart.high - apart.low > 1.3 * (alike.high - alike.low)


def test_the_difference_of_two_groups_pairs_their_questions() -> None:
    found = seeds_interval([SHARES + 0.1, SHARES + 0.1], [SHARES, SHARES])
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1), abs=1e-12)


def test_the_mean_over_runs_is_the_mean_of_their_means() -> None:
    assert seeds_interval([[0.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 1.0]]).value == pytest.approx(0.75 - 0.25)
