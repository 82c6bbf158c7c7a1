"""Where answers are known: mixing truth in, the bonus for a right answer, and the two baselines. Worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moot.debate.outcome import mean_rewards
from moot.debate.protocols import PRESETS
from moot.debate.rewards import score
from moot.errors import ConfigError
from moot.tasks.answers import grade
from support.making import FAILED, by_agent, by_step, debate, near, v1, v2, values

FULL = [["", "", ""], ["1 > 2", "0 > 2", "0 > 1"]]
"""Generator rewards of votes alone: 1, 0, -1 in round 1, nothing in round 2."""


def test_reward_mix_in_generator_judge() -> None:
    """0.7 * peer + 0.3 * (+1 if right, -1 if wrong), on every parsed step. Right: all but Agent 1's first answer."""
    played = debate(v2(), FULL, answers=[["7", "8", "7"], ["7", "7", "7"]], truth="7")
    scores, advantages = by_step(played, mix=0.3)
    # 0.7*1+0.3, 0.7*0+0.3; 0.7*0-0.3, 0.3; 0.7*-1+0.3, 0.3
    near(values(scores, "generator"), [[1.0, 0.3], [-0.3, 0.3], [-0.4, 0.3]])
    # Every step has a signal now; the mean is 1.2/6.
    near(advantages["generator"], [[0.8, 0.1], [-0.5, 0.1], [-0.6, 0.1]])
    near(values(scores, "judge"), [[0, 1], [0, 1], [0, 1]])


def test_reward_mix_of_one_is_truth_alone() -> None:
    played = debate(v2(), FULL, answers=[["7", "8", "7"], ["8", "7", "8"]], truth="7")
    scores, advantages = by_step(played, mix=1.0)
    near(values(scores, "generator"), [[1, -1], [-1, 1], [1, -1]])
    near(advantages["generator"], [[1, -1], [-1, 1], [1, -1]])


def test_reward_mix_leaves_failed_turns_alone() -> None:
    """Agent 1's failed turn is -1 before and after, and takes no part in the mean."""
    played = debate(v2(), [["", FAILED, ""], ["", "", ""]], answers=[["8", "7", "7"], ["7", "7", "7"]], truth="7")
    scores, advantages = by_step(played, mix=0.5)
    near(values(scores, "generator"), [[-0.5, 0.5], [-1, 0.5], [0.5, 0.5]])
    # Mean of the five parsed steps: (-0.5 + 4*0.5) / 5 = 0.3.
    near(advantages["generator"], [[-0.8, 0.2], [-1, 0.2], [0.2, 0.2]])


def test_an_answer_that_is_missing_is_wrong() -> None:
    played = debate(v2(), [["", "", ""]], answers=[["7", None, "8"]], truth="7")
    scores, _ = by_step(played, mix=0.5)
    near(values(scores, "generator"), [[0.5], [-0.5], [-0.5]])


def test_correct_bonus_gives_a_signal_only_where_correct() -> None:
    """Bonus 0.5. Agent 1 is wrong twice: judged in round 1 (0, with a signal), nothing at all in round 2."""
    played = debate(v2(), FULL, answers=[["7", "8", "7"], ["7", "8", "7"]], truth="7")
    scores, advantages = by_step(played, bonus=0.5)
    near(values(scores, "generator"), [[1.5, 0.5], [0, 0], [-0.5, 0.5]])
    # Mean of 1.5, 0.5, 0, -0.5, 0.5 is 0.4.
    near(advantages["generator"], [[1.1, 0.1], [-0.4, 0], [-0.9, 0.1]])


def test_mix_and_bonus_together() -> None:
    """0.5 * peer + 0.5 * truth, then + 0.25 where right."""
    played = debate(v2(), FULL, answers=[["7", "8", "7"], ["7", "7", "7"]], truth="7")
    scores, _ = by_step(played, mix=0.5, bonus=0.25)
    near(values(scores, "generator"), [[1.25, 0.75], [-0.5, 0.75], [0.25, 0.75]])


def test_mix_to_the_letter_centres_everything() -> None:
    """Unvoted is -1: 0.5 * -1 + 0.5 * 1 = 0. Values 1, 0; -0.5, 0; 0, 0 with mean 1/12."""
    played = debate(PRESETS["v2_literal"], FULL, answers=[["7", "8", "7"], ["7", "7", "7"]], truth="7")
    scores, advantages = by_step(played, mix=0.5)
    near(values(scores, "generator"), [[1, 0], [-0.5, 0], [0, 0]])
    near(advantages["generator"], [[11 / 12, -1 / 12], [-7 / 12, -1 / 12], [-1 / 12, -1 / 12]])


# Rewards by agent: the last parsed answer, on the reward's own scale
PAIRWISE = [["", "", "0 > 1"]]  # win_rate 1, 0, 0; win_minus_loss 1, -1, 0


@pytest.mark.parametrize(
    ("reward", "mix", "bonus", "expected"),
    [
        # 0 is wrong, 1 and 2 are right.
        ("win_rate", 0.5, 0.0, [0.5, 0.5, 0.5]),
        ("win_rate", 0.0, 0.2, [1.0, 0.2, 0.2]),
        ("win_rate", 0.5, 0.2, [0.5, 0.7, 0.7]),
        ("win_minus_loss", 0.5, 0.0, [0.0, 0.0, 0.5]),
        ("win_minus_loss", 0.25, 0.0, [0.5, -0.5, 0.25]),
        ("win_minus_loss", 0.0, 0.2, [1.0, -0.8, 0.2]),
        ("win_rate", 1.0, 0.0, [0.0, 1.0, 1.0]),
        ("win_minus_loss", 1.0, 0.0, [-1.0, 1.0, 1.0]),
    ],
)
def test_mixing_in_the_rewards_by_agent(reward: str, mix: float, bonus: float, expected: list[float]) -> None:
    played = debate(v1(reward=reward), PAIRWISE, answers=[["8", "7", "7"]], truth="7")
    scores, advantages = by_agent(played, mix, bonus)
    near(scores.rewards, expected)
    near(advantages, [value - sum(expected) / 3 for value in expected])
    assert (len(scores.votes), scores.lines_invalid) == (1, 0)


def test_the_last_parsed_answer_counts_and_failures_stay_in_the_return() -> None:
    """Agent 1 answers 7, then fails: its answer is 7, its return one less. 0 changes its mind to 8."""
    played = debate(
        v1(on_parse_failure="continue"),
        [["", "", ""], ["", FAILED, ""]],
        answers=[["7", "7", "8"], ["8", "", "7"]],
        truth="7",
    )
    scores, _ = by_agent(played, mix=0.5)
    near(scores.rewards, [0, 0.5, 0.5])
    near(scores.returns, [0, -0.5, 0.5])


def test_mixing_nothing_in_changes_nothing() -> None:
    played = debate(v2(), FULL, answers=[["7", "8", "7"], ["7", "7", "7"]], truth="7")
    plain, advantages = by_step(debate(v2(), FULL))
    scores, mixed = by_step(played, mix=0.0)
    assert scores.streams["generator"].values == plain.streams["generator"].values
    assert mixed == advantages


@pytest.mark.parametrize(("mix", "bonus"), [(0.3, 0.0), (0.0, 0.3)])
def test_truth_cannot_be_mixed_in_where_there_is_none(mix: float, bonus: float) -> None:
    with pytest.raises(ConfigError, match="known answer"):
        by_step(debate(v2(), FULL, answers=[["7", "8", "7"], ["7", "7", "7"]]), mix, bonus)


# Baselines: each turn by its own answer


def test_truth_pays_each_turn_for_its_own_answer() -> None:
    """Agent 0 is talked out of the right answer, agent 1 into it: each turn gets its own, and is compared within its round.

    round 1: 1, 0, 1 with mean 2/3; round 2: 0, 1 and a failed turn's -1, with mean 0.
    """
    played = debate(
        v2(reward="truth"), [["", "", ""], ["", "", FAILED]], answers=[["7", "8", "7"], ["8", "7", None]], truth="7"
    )
    scores, advantages = by_step(played)
    near(values(scores, "generator"), [[1, 0], [0, 1], [1, -1]])
    near(advantages["generator"], [[1 / 3, 0], [-2 / 3, 1], [1 / 3, -1]])
    assert list(advantages) == ["generator"]


def test_truth_under_another_estimator_if_it_is_named() -> None:
    """The mean of 1, 0, 0, 1, 1, -1 is 1/3."""
    protocol = v2(reward="truth", advantage="center_group")
    played = debate(protocol, [["", "", ""], ["", "", FAILED]], answers=[["7", "8", "7"], ["8", "7", None]], truth="7")
    near(by_step(played)[1]["generator"], [[2 / 3, -1 / 3], [-1 / 3, 2 / 3], [2 / 3, -4 / 3]])


def test_truth_without_an_answer_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="reward truth needs"):
        by_step(debate(v2(reward="truth"), [["", "", ""]]))
    with pytest.raises(ConfigError, match="reward truth_last needs"):
        by_agent(debate(v2(reward="truth_last"), [["", "", ""]]))


PLURALITIES = [
    (["7", "8", "8"], [0, 1, 1]),
    (["7", "7.0", "8"], [1, 1, 0]),
    # Equal numbers: the lowest-numbered agent holding one.
    (["7", "8", "9"], [1, 0, 0]),
    (["9", "8", "7", "8", "7"], [0, 1, 0, 1, 0]),
    ([None, "8", "7"], [0, 1, 0]),
    # Having no answer is not an answer that can win.
    ([None, None, "7"], [0, 0, 1]),
    ([None, None, None], [0, 0, 0]),
]


@pytest.mark.parametrize(("answers", "expected"), PLURALITIES)
def test_majority_is_the_plurality_of_the_round(answers: list[str | None], expected: list[float]) -> None:
    """A round before it in which everybody said 9 makes no difference: it has a plurality of its own."""
    rounds = [[""] * len(answers)] * 2
    scores, advantages = by_step(debate(v2(reward="majority"), rounds, answers=[["9"] * len(answers), answers]))
    near(values(scores, "generator"), [[1, value] for value in expected])
    near(advantages["generator"], [[0, value - sum(expected) / len(answers)] for value in expected])


@pytest.mark.parametrize("reward", ["majority", "majority_last"])
def test_a_label_from_elsewhere_is_what_the_majority_is_measured_by(reward: str) -> None:
    """Two of three say 8, and the label is 7: the one who says 7 is paid, whatever the truth is. 7.0 is 7."""
    for truth in (None, "8"):
        played = debate(v2(reward=reward), [["", "", ""]], answers=[["8", "7.0", "8"]], truth=truth)
        labelled = replace(played, question=replace(played.question, label="7"))
        near(mean_rewards(score(labelled, labelled.scoring, grade(labelled))), [0, 1, 0])


def test_a_label_that_nobody_holds_pays_nobody() -> None:
    played = debate(v2(reward="majority"), [["", "", FAILED]], answers=[["8", None, "8"]])
    scores, _ = by_step(replace(played, question=replace(played.question, label="7")))
    near(values(scores, "generator"), [[0], [0], [-1]])


def test_a_failed_turn_holds_no_answer_in_the_plurality_and_costs_one() -> None:
    """Answers 7, 8, 8 and a failed turn: 0, 1, 1, -1 with mean 1/4."""
    scores, advantages = by_step(debate(v2(reward="majority"), [["", "", "", FAILED]], answers=[["7", "8", "8", "7"]]))
    near(values(scores, "generator"), [[0], [1], [1], [-1]])
    near(advantages["generator"], [[-0.25], [0.75], [0.75], [-1.25]])


@pytest.mark.parametrize("reward", ["majority", "majority_last"])
def test_majority_does_not_look_at_the_truth(reward: str) -> None:
    for truth in (None, "7", "8"):
        played = debate(v2(reward=reward), [["", "", ""]], answers=[["8", "8", "7"]], truth=truth)
        near(mean_rewards(score(played, played.scoring, grade(played))), [1, 1, 0])


def test_truth_mixed_into_the_majority_stays_between_0_and_1() -> None:
    """Half and half: 8 is the plurality and wrong, 7 is right."""
    scores, _ = by_step(debate(v2(reward="majority"), [["", "", ""]], answers=[["8", "8", "7"]], truth="7"), mix=0.5)
    near(values(scores, "generator"), [[0.5], [0.5], [0.5]])


def test_the_evaluation_of_a_turn_changes_nothing_in_its_credit_under_truth() -> None:
    assert v2(reward="truth").scoring.stream_of == {"solution": "generator"}
    assert v2(reward="majority", evaluation_credit="judge").scoring.stream_of == {"solution": "generator"}


@pytest.mark.parametrize(
    ("whose", "expected"),
    [
        ("generator", {"solution": "generator", "evaluation": "generator", "comparison": "judge"}),
        ("judge", {"solution": "generator", "evaluation": "judge", "comparison": "judge"}),
        ("nobody", {"solution": "generator", "comparison": "judge"}),
    ],
)
def test_who_pays_for_the_evaluation_is_a_choice(whose: str, expected: dict[str, str]) -> None:
    assert v2(evaluation_credit=whose).scoring.stream_of == expected


def test_the_sources_own_protocols_pay_for_the_evaluation_with_the_answers_reward() -> None:
    assert {name: protocol.scoring.evaluation_credit for name, protocol in PRESETS.items()} == dict.fromkeys(
        PRESETS, "generator"
    )


# Baselines: one number an agent, by its last answer


def test_truth_last() -> None:
    """Last parsed answers 7, 8, 7 (then a failed turn): rewards 1, 0, 1, returns 1, 0, 0, mean 1/3."""
    played = debate(
        v2(reward="truth_last"),
        [["", "", ""], ["", "", FAILED]],
        answers=[["8", "7", "7"], ["7", "8", None]],
        truth="7",
    )
    scores, advantages = by_agent(played)
    near(scores.rewards, [1, 0, 1])
    near(scores.returns, [1, 0, 0])
    near(advantages, [2 / 3, -1 / 3, -1 / 3])


@pytest.mark.parametrize(("answers", "expected"), PLURALITIES)
def test_majority_last(answers: list[str | None], expected: list[float]) -> None:
    scores, advantages = by_agent(debate(v2(reward="majority_last"), [[""] * len(answers)], answers=[answers]))
    near(scores.rewards, expected)
    near(advantages, [value - sum(expected) / len(answers) for value in expected])
