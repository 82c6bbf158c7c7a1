"""Forecasts, calibration, votes weighed by them, and rewards-to-go, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moot.debate.forecasts import advantage, brier, read_chance
from moot.debate.protocol import V2
from moot.debate.rewards import as_reward, reward_to_go, score
from moot.debate.types import Said
from moot.debate.votes import clear_consensus
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS, with_advantages
from moot.rl.calibration import Bin, judged, reliability
from moot.rl.trust import panel
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.util.intervals import cautious_interval, wilson
from support.making import Tabled, by_step, debate, near, reward, v1, v2, values

# Three agents who answer 7, 8, 7; the truth is 7. In round 2 they vote about round 1:
#   Agent 0: 2 > 1    Agent 1: 0 > 2    Agent 2: 0 > 1
# 0: 2 for = 1. 1: 2 against = -1. 2: 1 for, 1 against = 0. Agent 0 wins.
VOTES = [["", "", ""], ["2 > 1", "0 > 2", "0 > 1"]]
ANSWERS = [["7", "8", "7"]] * 2
SAID = (("80", "90%"), ("30", "no idea"), ("50", "60"))
"""What each agent says of winning and of being right."""


def three(said: tuple[tuple[str, ...], ...] = SAID, **choices: Any) -> Tabled:
    return forecasting(debate(v2(**{"forecast": "both", **choices}), VOTES, ANSWERS, "7"), said)


def forecasting(played: Tabled, said: tuple[tuple[str, ...], ...]) -> Tabled:
    return played.forecasted({agent: [Said(text) for text in texts] for agent, texts in enumerate(said)})  # type: ignore[return-value]


def taught(played: Tabled) -> PlayedDebate:
    scored = PlayedDebate(played).scored(played.scoring, grade(played))
    return with_advantages([scored], ESTIMATORS[played.scoring.estimator])[0]


@pytest.mark.parametrize(
    ("reply", "chance"),
    [
        ("70", 0.7),
        (" 70%\n", 0.7),
        ("**70**", 0.7),
        ("100", 1.0),
        ("0", 0.0),
        ("12.5", 0.125),
        ("70/100", 0.7),
        ("70 out of 100", 0.7),
        ("70. Because 3 + 4 = 7.", 0.7),  # it begins with it
        ("I would say 70%.", 0.7),  # the only one
        ("<think>20 or 30?</think>70", 0.7),
        ("70 (seventy)", 0.7),
        ("80\n\nI am sure of 3 + 4.", 0.8),
        ("<solution>70</solution>", None),
        ("29 - 19 = 10. So 10.", None),  # the solution once more
        ("17 + 2 = 3", None),
        ("habit-6", None),
        ("between 3 and 70", None),
        ("50-60", None),
        ("7/10", None),
        ("0.7", None),  # a chance, or per cent?
        ("1", 0.01),
        ("101", None),
        ("-5", None),
        ("1,000", None),
        ("seventy", None),
        ("", None),
        ("9" * 10_000, None),
        ("a" * 200_000, None),  # in time linear in its length
        ("7" + " " * 200_000 + "x", 0.07),
    ],
)
def test_a_forecast_is_one_number_from_0_to_100(reply: str, chance: float | None) -> None:
    assert read_chance(reply) == chance


def test_the_brier_score_is_the_squared_distance_and_what_is_taught_is_a_quarter_minus_it() -> None:
    near([brier(0.8, True), brier(0.3, False), brier(0.5, True), brier(1, False)], [0.04, 0.09, 0.25, 1])
    near(
        [advantage(0.8, True), advantage(0.3, False), advantage(0.5, True), advantage(1, False)], [0.21, 0.16, 0, -0.75]
    )
    # Unreadable is as bad as the worst; where nobody knows what came nothing is taught.
    near(
        [advantage(None, True), advantage(None, False), advantage(0.9, None), advantage(None, None)],
        [-0.75, -0.75, 0, 0],
    )


def test_no_forecast_expects_more_than_what_one_believes() -> None:
    """A score is proper if the truth is the best thing to say: believing 0.3, 0.3 * (1 - p)^2 + 0.7 * p^2 is least at p = 0.3."""
    expected = {p: 0.3 * advantage(p / 100, True) + 0.7 * advantage(p / 100, False) for p in range(101)}
    assert max(expected, key=lambda p: expected[p]) == 30


def test_each_forecast_is_taught_its_own_score_and_the_answer_what_it_got_before() -> None:
    """Winning: 0.8 for the winner, 0.3 and 0.5 for the others: 0.25 - 0.04, 0.25 - 0.09, 0. Right: 0.9 right, unreadable, 0.6 right."""
    found, without = taught(three()), taught(debate(v2(), VOTES, ANSWERS, "7"))
    assert found.advantages.per == "turn" and without.advantages.per == "turn"
    near(found.advantages.forecasts, [0.21, 0.24, 0.16, -0.75, 0, 0.09])
    assert found.advantages.streams == without.advantages.streams and without.advantages.forecasts == ()


def test_where_nobody_wins_and_no_answer_is_known_nothing_is_taught() -> None:
    level = forecasting(debate(v2(forecast="both"), [["", "", ""]], [["7", "8", "7"]]), SAID)
    found = taught(level).advantages
    assert found is not None and found.forecasts == (0,) * 6


def test_calibration_of_one_debate() -> None:
    """Winning: (0.04 + 0.09 + 0.25) / 3; they say 1.6 / 3 on average, and one of three wins. Right: two can be read, both are right:
    (0.01 + 0.16) / 2, and (0.9 + 0.6) / 2 on average. Five of six can be read."""
    found = panel([taught(three())])
    of_forecasts = {key: value for key, value in found.items() if key.startswith("forecast/")}
    assert of_forecasts == {
        "forecast/readable": pytest.approx(5 / 6),
        "forecast/win_brier": pytest.approx(0.38 / 3),
        "forecast/win_mean": pytest.approx(1.6 / 3),
        "forecast/win_came": pytest.approx(1 / 3),
        "forecast/right_brier": pytest.approx(0.085),
        "forecast/right_mean": pytest.approx(0.75),
        "forecast/right_came": 1,
    }
    assert not [key for key in panel([taught(debate(v2(), VOTES, ANSWERS, "7"))]) if key.startswith("forecast/")]


def test_a_reliability_picture_has_a_point_for_each_tenth_that_was_said() -> None:
    """70, 75 and 79 stand together: 74 2/3 on average, and 1 of 3 won. 100 belongs to the nineties, 30 stands alone."""
    known = [
        ("win", 0.7, True),
        ("win", 0.75, False),
        ("win", 0.79, False),
        ("win", 1.0, True),
        ("win", 0.9, True),
        ("win", 0.3, False),
    ]
    found = reliability([[*known, ("right", 0.5, True)]], "win")
    assert [each.of for each in found] == [1, 3, 2]
    near([each.forecast for each in found], [0.3, 2.24 / 3, 0.95])
    near([each.came for each in found], [0, 1 / 3, 1])
    assert (found[1].low, found[1].high) == wilson(1, 3)
    assert reliability([[("right", 0.5, True)]], "right") == [Bin(0.5, 1.0, *wilson(1, 1), 1)]
    assert judged(taught(three())) == [
        *[("win", 0.8, True), ("right", 0.9, True), ("win", 0.3, False)],
        *[("win", 0.5, False), ("right", 0.6, True)],
    ]


def test_forecasts_of_one_debate_hang_together_in_the_picture_as_in_the_panel() -> None:
    """All four agents of a debate give their answer 70. In five debates all are right, in five none is: 20 of 40, but of ten questions."""
    debates = [[("right", 0.7, came)] * 4 for came in (True, False) for _ in range(5)]
    (point,) = reliability(debates, "right")
    share = cautious_interval([4.0] * 5 + [0.0] * 5, [4.0] * 10)
    assert share is not None and (point.came, point.low, point.high, point.of) == (0.5, share.low, share.high, 40)
    assert (point.low, point.high) == (pytest.approx(0.2), pytest.approx(0.8)), (
        "2 and 8 of ten questions end the middle 95% of draws"
    )
    low, high = wilson(20, 40)
    assert low > 0.35 and high < 0.65, "forty independent forecasts would claim much more"
    assert reliability([], "win") == [] == reliability([[], []], "win")


# As a baseline


def test_center_forecast_subtracts_the_reward_that_a_chance_stands_for() -> None:
    """generator_judge pays from -1 to 1, so p stands for 2p - 1: 0.6, -0.4, 0 against 1, -1, 0. Round 2 was not judged. Judging has no
    forecast: each is the only voice on its pair and gets 1, minus the round's mean 1."""
    found = taught(three(advantage="center_forecast")).advantages
    assert found.per == "turn"
    near(found.streams["generator"], [[0.4, 0], [-0.6, 0], [0, 0]])
    near(found.streams["judge"], [[0, 0], [0, 0], [0, 0]])


def test_center_forecast_takes_the_rounds_mean_where_no_forecast_can_be_read() -> None:
    """The mean of 1, -1, 0 is 0. Agent 1 said nothing that can be read."""
    played = three((("80", "1"), ("maybe", "1"), ("50", "1")), advantage="center_forecast")
    found = taught(played).advantages
    assert found.per == "turn"
    near([row[0] for row in found.streams["generator"]], [0.4, -1, 0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("win_rate", [0.2, -0.3, -1 / 3]), ("win_minus_loss", [0.4, -0.6, 0])],
)
def test_center_forecast_for_rewards_per_agent(name: str, expected: list[float]) -> None:
    """Agent 2 says 0 > 1, and no number. win_rate pays 1, 0, 0 and p stands for p; the mean is 1/3. win_minus_loss pays 1, -1, 0 and p
    stands for 2p - 1; the mean is 0."""
    protocol = v1(forecast="win", advantage="center_forecast", reward=name)
    played = forecasting(debate(protocol, [["", "", "0 > 1"]]), (("80",), ("30",), ("?",)))
    found = taught(played).advantages
    assert found.per == "agent"
    near(found.values, expected)


# As a weight


def test_votes_weigh_what_their_author_gives_its_own_answer() -> None:
    """Agent 0 weighs 0.9, agent 1 cannot be read and weighs 1/2, agent 2 weighs 0.6.

    0: 0.5 + 0.6 for = 1. 1: 0.9 + 0.6 against = -1. 2: 0.9 for and 0.5 against: 2 * 0.9 / 1.4 - 1 = 2/7 instead of 0.
    """
    scores, _ = by_step(three(vote_weight="forecast"))
    near([row[0] for row in values(scores, "generator")], [1, -1, 2 / 7])
    near([vote.weight for vote in scores.votes], [0.9, 0.5, 0.6])


def test_with_forecasts_of_winning_alone_these_weigh() -> None:
    """0.8, 0.3, 0.5. Agent 2: 0.8 for, 0.3 against: 1.6 / 1.1 - 1 = 5/11."""
    said = tuple((win,) for win, _ in SAID)
    scores, _ = by_step(three(said, forecast="win", vote_weight="forecast"))
    near([row[0] for row in values(scores, "generator")], [1, -1, 5 / 11])


def test_a_sure_judge_outweighs_two_that_doubt_in_the_consensus() -> None:
    """On agents 3 and 4, agents 0 and 1 (0.2 each) prefer 3 and agent 2 (0.5) prefers 4: by heads 3 is preferred, by weight 4."""
    votes = [["", "", "", "", ""], ["3 > 4", "3 > 4", "4 > 3", "", ""]]
    said = (("20",), ("20",), ("50",), ("90",), ("90",))
    alignments = {}
    for weight in ("one", "forecast"):
        played = forecasting(debate(v2(forecast="right", vote_weight=weight, enable_format_penalty=False), votes), said)
        alignments[weight] = [row[1] for row in values(by_step(played)[0], "judge")]
    assert alignments == {"one": [1, 1, -1, 0, 0], "forecast": [-1, -1, 1, 0, 0]}


def test_weights_that_add_up_to_the_same_are_a_tie_whatever_their_last_digit() -> None:
    played = three((("1", "70"), ("1", "30"), ("1", "100")))
    votes = score(played, replace(played.scoring, vote_weight="forecast")).votes  # type: ignore[union-attr]
    pair = [replace(votes[0], left=0, right=1, weight=0.1), replace(votes[0], left=0, right=1, weight=0.2)]
    assert clear_consensus([*pair, replace(votes[0], left=1, right=0, weight=0.3)]) is None
    assert clear_consensus([replace(votes[0], weight=0.0)]) is None


def test_win_rate_and_win_minus_loss_weigh_votes_too() -> None:
    """Sequential: agent 1 (0.25) says 2 > 0 in round 2, agent 2 (0.75) says 0 > 1 in round 1 and 0 = 1 in round 2.

    win_rate: 0 has 0.75 + 0.375 of 1.75; 1 has 0.375 of 1.5; 2 has 0.25 of 0.25.
    win_minus_loss: 0: (0.75 - 0.25) / 1.75; 1: -0.75 / 1.5; 2: 1.
    """
    votes = [["", "", "0 > 1"], ["", "2 > 0", "0 = 1"]]
    for name, expected in (("win_rate", [9 / 14, 1 / 4, 1]), ("win_minus_loss", [2 / 7, -1 / 2, 1])):
        played = debate(v1(forecast="right", vote_weight="forecast", reward=name), votes)
        scores = reward(forecasting(played, (("90",), ("25",), ("75",))))
        near(scores.rewards, expected)  # type: ignore[union-attr]


# Over rounds


@pytest.mark.parametrize(
    ("row", "discount", "expected"),
    [
        ((1.0, 0.0, 0.5), 0.5, (1.125, 0.25, 0.5)),
        ((1.0, 0.0, 0.5), 1.0, (1.5, 0.5, 0.5)),
        ((1.0, None, 0.5), 0.5, (1.125, 0.25, 0.5)),
        ((None, -1.0, None), 0.5, (-0.5, -1.0, None)),
        ((1.0, None), 0.5, (1.0, None)),
        ((None, None), 0.5, (None, None)),
        ((), 0.5, ()),
    ],
)
def test_a_turns_reward_to_go(
    row: tuple[float | None, ...], discount: float, expected: tuple[float | None, ...]
) -> None:
    near(reward_to_go(row, discount), expected)


THREE_ROUNDS = [["7", "8", "7"], ["7", "7", "7"], ["8", "7", "7"]]


def test_majority_over_three_rounds_with_a_discount_of_one_half() -> None:
    """Immediate: 1 1 0, 0 1 1, 1 1 1. To go: 1.5 1 0, 0.75 1.5 1, 1.75 1.5 1. Each round minus its mean: 4/3, 4/3, 2/3."""
    played = debate(v2(reward="majority", discount=0.5), [["", "", ""]] * 3, THREE_ROUNDS)
    scores, found = by_step(played)
    near(scores.streams["generator"].to_go, [[1.5, 1, 0], [0.75, 1.5, 1], [1.75, 1.5, 1]])
    near(found["generator"], [[1 / 6, -1 / 3, -2 / 3], [-7 / 12, 1 / 6, 1 / 3], [5 / 12, 1 / 6, 1 / 3]])
    # What is reported, and so who wins, is the immediate reward.
    near(values(scores, "generator"), [[1, 1, 0], [0, 1, 1], [1, 1, 1]])
    assert taught(played).winner == 2


def test_votes_about_a_later_round_reach_the_answer_before_it_and_penalties_do_not() -> None:
    """Three rounds; round 2 votes about round 1 (agent 0 says 1 > 2), round 3 about round 2 (agent 0 says 2 > 1). Agent 2 fails in round 3.

    Generator: 1 has 1, -1, -; 2 has -1, 1, -. With a discount of 1/2: 1 has 1/2, -1; 2 has -1/2, 1. The means are 0. The failed turn's
    -1 stays where it is.
    """
    votes = [["", "", ""], ["1 > 2", "", ""], ["2 > 1", "", "this cannot be read"]]
    scores, found = by_step(debate(v2(discount=0.5, enable_format_penalty=False), votes))
    near(scores.streams["generator"].to_go, [[None] * 3, [0.5, -1, None], [-0.5, 1, None]])
    near(found["generator"], [[0, 0, 0], [0.5, -1, 0], [-0.5, 1, -1]])


def test_without_a_discount_everything_is_as_it_was() -> None:
    played = debate(v2(reward="majority"), [["", "", ""]] * 3, THREE_ROUNDS)
    stream = by_step(played)[0].streams["generator"]
    assert stream.to_go is stream.to_center and V2.as_dict()["discount"] == 0


# What is refused


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"forecast": "maybe"}, ["forecast", "'maybe'", "none", "both"]),
        ({"discount": 1.5}, ["discount", "1.5", "between 0 and 1"]),
        ({"discount": -0.1}, ["discount", "-0.1"]),
        ({"discount": float("nan")}, ["discount", "nan"]),
        ({"discount": 0.9, "reward": "win_rate"}, ["discount", "0.9", "win_rate", "generator_judge"]),
        ({"discount": 0.9, "advantage": "center_forecast", "forecast": "win"}, ["discount", "0.9", "center_round"]),
        ({"vote_weight": "forecast"}, ["vote_weight", "'none'", "forecast right"]),
        ({"vote_weight": "two", "forecast": "win"}, ["vote_weight", "'two'", "one"]),
        ({"advantage": "center_forecast"}, ["center_forecast", "'none'", "forecast win"]),
        ({"advantage": "center_forecast", "forecast": "right"}, ["center_forecast", "'right'", "both"]),
    ],
)
def test_what_makes_no_sense_is_refused_with_field_value_and_fix(choices: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        V2.with_choices(choices)
    assert [word for word in says if word not in str(error.value)] == []


def test_a_users_reward_per_agent_has_no_rounds_to_discount() -> None:
    played = debate(v2(discount=0.5), VOTES)
    with pytest.raises(ConfigError, match="discount needs rewards per turn, and mine is per agent"):
        score(played, replace(played.scoring, reward="mine"), None, as_reward(lambda _: [1, 2, 3], "mine"))
