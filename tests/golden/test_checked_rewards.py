"""From the checks of judges without a seat to rewards and advantages, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moot.debate.checks import Check
from moot.debate.outcome import Outcome
from moot.debate.protocols import V2
from moot.debate.rewards import REWARDS, Grades, score
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS, SeatMeans, advantages
from support.making import FAILED, debate

HEARD = debate(V2, [["", "", "", FAILED]])
APPROVALS = tuple(
    Check(value, turns=(turn,)) for turn, values in enumerate([(0.9, 0.7), (0.4, 0.2), (0.5, 0.7)]) for value in values
)
PAIRS = tuple(
    Check(value, turns=turns)
    for turns, value in {
        (0, 1): 0.9, (1, 0): 0.2,  # 0 against 1: 0.85
        (0, 2): 0.5, (2, 0): 0.5,  # 0 against 2: 0.5
        (1, 2): 0.2, (2, 1): 0.4,  # 1 against 2: 0.4
    }.items()
)  # fmt: skip


def paid(heard: Debate, checks: tuple[Check, ...] | None, reward: str) -> tuple[list[float], list[float]]:
    """What each agent's turn of a debate of one round is paid, and its advantage."""
    scoring, checked = Scoring(reward=reward), replace(heard, checks=checks)
    scores = score(checked, scoring)
    assert set(scores.streams) == {"generator"}, "no stream pays for judging"
    (taught,) = advantages([(checked, scores)], ESTIMATORS[scoring.estimator], SeatMeans())
    return [row[0] for row in scores.streams["generator"].values], [row[0] for row in taught.streams["generator"]]


@pytest.mark.parametrize(
    ("reward", "rewards", "taught"),
    [
        # s = 0.8, 0.3, 0.6; 2s - 1 less its mean 2/15; a failed turn is punished after centring.
        ("approval:checks=2", [0.6, -0.4, 0.2, -1], [7 / 15, -8 / 15, 1 / 15, -1]),
        # 0.6 is no vote: it has no signal, and the mean is that of the others.
        ("approval:checks=2,vote_margin=0.3", [0.6, -0.4, 0, -1], [0.5, -0.5, 0, -1]),
        ("approval:checks=2,vote_margin=1.0", [0, 0, 0, -1], [0, 0, 0, -1]),
        # The first check of each alone: 0.9, 0.4, 0.5.
        ("approval:checks=1", [0.8, -0.2, 0, -1], [0.6, -0.4, -0.2, -1]),
        # 1 where 2s - 1 reaches the margin, 0 for all else: a guess pays no more than a turn that was cut.
        ("approved:checks=2", [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("approved:checks=2,vote_margin=0.0", [1, 0, 1, 0], [0.5, -0.5, 0.5, -0.5]),
    ],
)
def test_approval_pays_what_the_checks_say(reward: str, rewards: list[float], taught: list[float]) -> None:
    assert paid(HEARD, APPROVALS, reward) == (pytest.approx(rewards), pytest.approx(taught))


@pytest.mark.parametrize(
    ("reward", "rewards", "taught"),
    [
        ("pairs", [0.35, -0.45, 0.1, -1], [0.35, -0.45, 0.1, -1]),
        ("pairs:vote_margin=0.3", [0.7, -0.7, 0, -1], [0.7, -0.7, 0, -1]),
        # Only the pair that was decided by 0.7 is left.
        ("pairs:vote_margin=0.7,opponents=1", [0.7, -0.7, 0, -1], [0.7, -0.7, 0, -1]),
    ],
)
def test_pairs_pay_the_mean_over_an_answers_pairs(reward: str, rewards: list[float], taught: list[float]) -> None:
    assert paid(HEARD, PAIRS, reward) == (pytest.approx(rewards), pytest.approx(taught))


def test_the_checks_of_several_judges_are_one_mean() -> None:
    """The second judge says 0.1 to agent 0 where the first says 0.9 and 0.7: s = (0.9 + 0.7 + 0.1 + 0.1) / 4 = 0.45."""
    second = tuple(Check(0.1, turns=(turn,), judge=1) for turn in (0, 1, 2) for _ in range(2))
    assert paid(HEARD, APPROVALS + second, "approval:checks=2")[0] == pytest.approx([-0.1, -0.6, -0.3, -1])
    # In pairs, p_AB is the mean of 0.9 and 0.5, and p_BA that of 0.2 and 0.6: s = ½ · (0.7 + 1 - 0.4) = 0.65.
    both = (*PAIRS[:2], Check(0.5, turns=(0, 1), judge=1), Check(0.6, turns=(1, 0), judge=1))
    assert paid(HEARD, both, "pairs")[0] == pytest.approx([0.3, -0.3, 0, -1])


BOTH_RULES = tuple(
    Check(value, turns=(turn,), rule=rule)
    for turn, by_rule in enumerate([{"a": (0.9, 0.7), "b": (0.8, 0.8)}, {"a": (1.0, 0.9), "b": (0.2, 0.4)}])
    for rule, values in by_rule.items()
    for value in values
)
TWO_OF_THREE = debate(V2, [["", "", FAILED]])


@pytest.mark.parametrize(
    ("reward", "rewards", "taught"),
    [
        # Rule a: 0.8 and 0.95, rule b: 0.8 and 0.3. The mean: 0.8 and 0.625; 2s - 1 = 0.6 and 0.25, less 0.425.
        ("approval:checks=2,rules=mean", [0.6, 0.25, -1], [0.175, -0.175, -1]),
        # The least: 0.8 and 0.3; 0.6 and -0.4, less 0.1.
        ("approval:checks=2,rules=least", [0.6, -0.4, -1], [0.5, -0.5, -1]),
        ("approved:checks=2,rules=mean,vote_margin=0.25", [1, 1, 0], [1 / 3, 1 / 3, -2 / 3]),
        ("approved:checks=2,rules=least,vote_margin=0.25", [1, 0, 0], [2 / 3, -1 / 3, -1 / 3]),
        # The first check of each: 0.9 and 1.0, 0.8 and 0.2.
        ("approval:checks=1,rules=least", [0.6, -0.6, -1], [0.6, -0.6, -1]),
    ],
)
def test_where_each_rule_is_checked_alone_an_answer_gets_their_mean_or_the_least(
    reward: str, rewards: list[float], taught: list[float]
) -> None:
    assert paid(TWO_OF_THREE, BOTH_RULES, reward) == (pytest.approx(rewards), pytest.approx(taught))
    # The second judge says 0 to rule b of agent 0: its mean is (0.8 + 0.8 + 0 + 0) / 4, and a is still 0.8.
    second = [replace(check, judge=1) for check in BOTH_RULES]
    second = [replace(check, value=0.0) if (check.turns, check.rule) == ((0,), "b") else check for check in second]
    again = paid(TWO_OF_THREE, (*BOTH_RULES, *second), "approval:checks=2,rules=least")[0]
    assert again == pytest.approx([-0.2, -0.4, -1])


def test_checks_of_rules_and_of_whole_questions_are_not_taken_for_each_other() -> None:
    with pytest.raises(ConfigError, match="needs checks of whole questions"):
        paid(TWO_OF_THREE, BOTH_RULES, "approval:checks=2")
    with pytest.raises(ConfigError, match="needs checks of each rule alone"):
        paid(HEARD, APPROVALS, "approved:checks=2,rules=least")


def test_a_score_of_one_half_is_no_approval_whatever_rounding_makes_of_it() -> None:
    """(0.4 + 0.8 + 0.3) / 3 is ½; in floats it lies above. Found by counting in fractions."""
    assert (0.4 + 0.8 + 0.3) / 3 != 0.5
    checks = tuple(Check(value, turns=(0,)) for value in (0.4, 0.8, 0.3))
    assert paid(debate(V2, [["", FAILED]]), checks, "approved:checks=3,vote_margin=0")[0] == [0, 0]


def test_an_answer_that_had_nothing_to_show_is_no_vote_and_is_not_approved() -> None:
    """Judges saw final answers, and agent 2 gave none: the mean is that of the others, 0.1."""
    given, taught = paid(HEARD, APPROVALS[:4], "approval:checks=2,show=answer")
    assert given == pytest.approx([0.6, -0.4, 0, -1]) and taught == pytest.approx([0.5, -0.5, 0, -1])
    assert paid(HEARD, APPROVALS[:4], "approved:checks=2,show=answer")[0] == [1, 0, 0, 0]


FIVE = debate(V2, [["", "", "", "", "", FAILED]])
OF_FIVE = tuple(Check(value, turns=(turn,)) for turn, value in enumerate([0.2, 0.4, 0.3, 0.9, 0.8]))


@pytest.mark.parametrize(
    ("j", "held"),
    [
        # Agents 0, 1, 2 say 0 and 3, 4 say 1. With w = log((1 + J) / (1 - J)) they have 3 - 1.2 w and 2 + 1.4 w votes.
        (0.0, [1, 1, 1, 0, 0]),
        (0.18, [1, 1, 1, 0, 0]),  # w = 0.364: 2.563 to 2.510
        (0.2, [0, 0, 0, 1, 1]),  # w = 0.405: 2.513 to 2.568
        (0.9, [0, 0, 0, 1, 1]),
        (-0.9, [1, 1, 1, 0, 0]),  # a judge that is known to be wrong
    ],
)
def test_votes_are_weighted_by_what_is_known_of_the_judge(j: float, held: list[int]) -> None:
    grades = Grades(tuple("00011x"), (False,) * 6, (0, 0, 0, 1, 1, None))
    scores = score(replace(FIVE, checks=OF_FIVE), Scoring(reward=f"weighted_majority:checks=1,j={j}"), grades)
    assert scores.streams["generator"].to_center == (*((float(value),) for value in held), (-1.0,))


def test_level_votes_go_to_the_lowest_numbered_agent_and_a_label_decides_before_any_vote() -> None:
    two = replace(debate(V2, [["", "", ""]]), checks=tuple(Check(0.5, turns=(turn,)) for turn in range(3)))
    grades = Grades(tuple("abc"), (False,) * 3, (2, 0, 1))
    scoring = Scoring(reward="weighted_majority:checks=1,j=0.6")
    assert score(two, scoring, grades).streams["generator"].to_center == ((1.0,), (0.0,), (0.0,))
    # Where 0.1, 0.2 and 0.3 are added in the other order the sum is another in its last digit; level they are all the same.
    six = debate(V2, [[""] * 6])
    heard = replace(six, checks=tuple(Check(v, turns=(i,)) for i, v in enumerate([0.1, 0.2, 0.3, 0.3, 0.2, 0.1])))
    halves = Grades(tuple("aaabbb"), (False,) * 6, (0, 0, 0, 1, 1, 1))
    paid_to = score(heard, Scoring(reward="weighted_majority:checks=1,j=0.05"), halves).streams["generator"].to_center
    assert paid_to == ((1.0,),) * 3 + ((0.0,),) * 3
    labelled = replace(grades, labelled=(False, False, True))
    assert score(two, scoring, labelled).streams["generator"].to_center == ((0.0,), (0.0,), (1.0,))


@pytest.mark.parametrize(
    ("reward", "checks", "winner"),
    [
        ("approval:checks=2", APPROVALS, 0),
        ("pairs", PAIRS, 0),
        ("approval:checks=2,vote_margin=1.0", APPROVALS, None),  # nobody but the format decided
        ("pairs", (), None),  # all gave one answer
        ("approved:checks=2,vote_margin=0.0", APPROVALS, None),  # two are level
    ],
)
def test_who_wins(reward: str, checks: tuple[Check, ...], winner: int | None) -> None:
    scoring, checked = Scoring(reward=reward), replace(HEARD, checks=checks)
    assert Outcome.of(checked, score(checked, scoring), scoring).winner == winner


def test_what_cannot_be_paid_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs the checks of judges without a seat, and nobody checked this debate"):
        paid(HEARD, None, "approval")
    with pytest.raises(ConfigError, match="needs 4 checks of each answer, and this debate has 2"):
        paid(HEARD, APPROVALS, "approval")
    with pytest.raises(ConfigError, match="voters must be both or judges with reward pairs"):
        Scoring(reward="pairs", voters="agents")


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        ("approval:cheks=2", r"no setting 'cheks'; did you mean checks\?"),
        ("approval:checks=2,checks=3", "checks is given twice"),
        ("approval:checks=two", "checks must be a whole number, got 'two'"),
        ("approval:checks=0", "checks must be at least 1, got 0"),
        ("approval:vote_margin=2", "vote_margin must be between 0 and 1, got 2.0"),
        ("approval:rules=all", "rules must be together or mean or least, got 'all'"),
        ("pairs:show=all", "show must be solution or answer, got 'all'"),
        ("majority:checks=2", "reward majority has no settings"),
        ("weighted_majority:j=1", "j must be above -1 and below 1, got 1.0; moot judge measures it"),
        ("weighted_majority:checks=0", "checks must be at least 1, got 0"),
        *(
            (f"{name}:checks=999999999", f"{name}:checks=999999999: checks must be at most 1000, got 999999999")
            for name in ("approval", "approved", "weighted_majority")
        ),
        ("pairs:opponents=1001", "opponents must be at most 1000, got 1001"),
    ],
)
def test_settings_of_a_reward_that_are_wrong_are_told(reward: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        _ = Scoring(reward=reward).rule


def test_settings_of_a_reward_stand_in_its_name() -> None:
    rule = Scoring(reward="approval:checks=8,show=answer").rule
    assert rule.name == "approval:checks=8,show=answer" and rule.our_own
    assert (rule.settings.checks, rule.settings.show, rule.settings.vote_margin) == (8, "answer", 0.0)
    assert REWARDS["approval"].settings.checks == 4
    asked = {"ballot": "approval", "checks": 8, "show": "answer"}
    assert rule.asks == asked, "what no rescoring can change"
    assert Scoring(reward="weighted_majority:checks=8,show=answer,j=0.4").rule.asks == asked
    by_rule = Scoring(reward="approved:checks=8,show=answer,rules=least").rule
    assert by_rule.each_rule and by_rule.asks == {**asked, "rules": "least"}
