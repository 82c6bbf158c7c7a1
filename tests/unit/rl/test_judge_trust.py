"""How good judges of checks are, and when they decay, on debates made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from moot.debate.checks import Check
from moot.debate.protocols import V2
from moot.rl.alarms import Alarms
from moot.rl.judge_trust import PAIR_ACCURACY, J, Judged, judged
from moot.rl.trust import counted_accuracy, panel
from moot.tokens.played import PlayedDebate
from support.making import FAILED, debate
from support.making import judged as scored

DECAY, NOISE = "alarm/judge_decay", "alarm/random_noise"


def one(
    scores: Sequence[float], answers: str = "7788", truth: str | None = "7", ballot: str = "approval"
) -> PlayedDebate:
    """A debate of one round; agents 0 and 1 are right. One check of each answer; of pairs, each right answer meets each
    wrong one, with the same difference of scores."""
    protocol = V2.with_choices({"reward": f"{ballot}:checks=1" if ballot == "approval" else ballot})
    said = debate(protocol, [[""] * 4], answers=[list(answers)], truth=truth)
    checks = [Check(score, turns=(turn,)) for turn, score in enumerate(scores)]
    if ballot == "pairs":
        met = [(a, b) for a in (0, 1) for b in (2, 3)]
        checks = [
            Check(0.5 + side * (scores[a] - scores[b]) / 2, turns=(a, b) if side > 0 else (b, a))
            for a, b in met
            for side in (1, -1)
        ]
    return scored(replace(said, checks=tuple(checks)))


def test_judges_are_counted_as_the_specification_has_it() -> None:
    """Right answers have 0.9 and 0.4, wrong ones 0.4 and 0.6: of four pairs 2.5 are won; J = 1/2 - 1/2."""
    told = one([0.9, 0.4, 0.4, 0.6])
    assert judged(told) == Judged(2.5, 4, 1, 2, 1, 2)
    assert panel([told])[PAIR_ACCURACY] == 0.625 and panel([told])[J] == 0.0
    sure = one([0.9, 0.8, 0.4, 0.2])
    assert panel([told, sure])[PAIR_ACCURACY] == pytest.approx(6.5 / 8) and panel([told, sure])[J] == 0.5
    assert counted_accuracy([sure, sure]) == (8, 8), "these are the votes that make the reward"
    assert counted_accuracy([told]) == (2.5, 4), "a level pair is half a right one, and no half is lost"


def test_pairs_have_no_j_and_what_cannot_be_counted_is_null() -> None:
    told = one([0.9, 0.4, 0.4, 0.6], ballot="pairs")
    # Answer 0 has 0.75 and 0.65 against the wrong ones, answer 1 ½ and 0.4; answer 2 has 0.25 and ½, answer 3 0.35 and 0.6.
    assert panel([told])[PAIR_ACCURACY] == 0.75 and panel([told])[J] is None
    unknown = one([0.9, 0.4, 0.4, 0.6], truth=None)
    assert panel([unknown])[PAIR_ACCURACY] is None and panel([unknown])[J] is None
    assert judged(unknown) == Judged(approved=2, scored=4)
    lines = scored(debate(V2, [["", "", ""], ["1 > 2", "0 > 2", "0 > 1"]], answers=[["7", "8", "9"]] * 2, truth="7"))
    assert PAIR_ACCURACY not in panel([lines]) and J not in panel([lines])


def test_a_failed_turn_takes_no_part() -> None:
    protocol = V2.with_choices({"reward": "approval:checks=1"})
    said = debate(protocol, [["", "", FAILED]], answers=[["7", "8", None]], truth="7")
    told = scored(replace(said, checks=(Check(0.9, turns=(0,)), Check(0.1, turns=(1,)))))
    assert judged(told) == Judged(1, 1, 1, 1, 0, 1)


GOOD, BAD = [0.9, 0.8, 0.4, 0.2], [0.9, 0.8, 0.9, 0.7]


@pytest.mark.parametrize(
    ("last", "rings"),
    [
        (GOOD, 0.0),
        (BAD, 1.0),  # wrong answers are approved as well: J falls from 1 to 0
        ([0.2, 0.3, 0.8, 0.9], 1.0),  # and where they are preferred, pair accuracy falls from 1 to 0
    ],
)
def test_a_judge_decays_where_its_interval_falls_below_that_of_the_first_steps(last: list[float], rings: float) -> None:
    alarms = Alarms()
    assert [alarms.update([one(GOOD)] * 4)[DECAY] for _ in range(5)] == [None] * 4 + [0.0]
    again = Alarms.from_state(json.loads(json.dumps(alarms.state())))
    found = [alarms.update([one(last)] * 4)[DECAY] for _ in range(5)]
    assert found[-1] == rings
    assert [again.update([one(last)] * 4)[DECAY] for _ in range(5)] == found, "a checkpoint keeps the first steps"


def test_a_little_worse_is_not_decay() -> None:
    """One of twenty debates in which the judge is wrong."""
    alarms = Alarms()
    for _ in range(5):
        alarms.update([one(GOOD)] * 4)
    found = [alarms.update([one(GOOD if step else BAD)] + [one(GOOD)] * 3)[DECAY] for step in range(5)]
    assert found == [0.0] * 5


@pytest.mark.parametrize(("approved", "rings"), [(19, 1.0), (18, 0.0), (10, 0.0), (2, 0.0), (1, 1.0)])
def test_without_answers_a_judge_that_approves_nearly_all_or_none_has_decayed(approved: int, rings: float) -> None:
    """Of twenty debates whose answers are all approved or none: over 0.9 or under 0.1 rings."""
    debates = [one([0.9] * 4 if i < approved else [0.1] * 4, truth=None) for i in range(20)]
    assert Alarms().update(debates)[DECAY] == rings


@pytest.mark.parametrize(("scores", "answers"), [([0.9] * 4, "7777"), ([0.1] * 4, "8888")])
def test_to_approve_all_where_all_are_right_or_none_where_none_is_is_no_decay(
    scores: list[float], answers: str
) -> None:
    assert Alarms().update([one(scores, answers)] * 20)[DECAY] is None


def test_a_judge_that_guesses_is_noise() -> None:
    told = [one([0.9, 0.2, 0.4, 0.6])] * 20  # wins 2 of 4 pairs
    assert Alarms().update(told)[NOISE] == 1.0
    assert Alarms().update([one(GOOD)] * 20)[NOISE] == 0.0
