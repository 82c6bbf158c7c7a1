"""The ways from rewards to advantages, worked by hand over small batches."""

from __future__ import annotations

import json
import math

import pytest

from moot.debate.protocols import V1, V2
from moot.debate.scoring import judge_warning
from moot.debate.state import Debate
from moot.errors import ConfigError
from moot.rl.advantages import ESTIMATORS, SeatMeans, advantages
from moot.tokens.played import PlayedDebate
from moot.tools.transcripts import BadLine, score
from support.making import FAILED, debate, near, reward, text, v1, v2

# Three debates of three agents under win_rate. Agent 2 is the only voter of the first two.
ZERO_WINS = debate(v1(), [["", "", "0 > 1"]])  # returns 1, 0, 0
ONE_WINS = debate(v1(), [["", "", "1 > 0"]])  # returns 0, 1, 0
TIE = debate(v1(), [["", "", "0 = 1"]])  # returns 1/2, 1/2, 0


def agents(batch: list[Debate], name: str, seats: SeatMeans | None = None) -> list[tuple[float, ...]]:
    found = advantages([(each, reward(each)) for each in batch], ESTIMATORS[name], seats)
    assert all(each.per == "agent" for each in found)
    return [each.values for each in found]  # type: ignore[union-attr]


def steps(
    batch: list[Debate], name: str, stream: str, seats: SeatMeans | None = None
) -> list[tuple[tuple[float, ...], ...]]:
    found = advantages([(each, reward(each)) for each in batch], ESTIMATORS[name], seats)
    assert all(each.per == "turn" for each in found)
    return [each.streams[stream] for each in found]  # type: ignore[union-attr]


def test_center_group_looks_at_one_debate_at_a_time() -> None:
    near(agents([ZERO_WINS, TIE], "center_group"), [[2 / 3, -1 / 3, -1 / 3], [1 / 6, 1 / 6, -1 / 3]])


def test_center_seat_over_three_debates() -> None:
    """Seat 0 gets 1, 0, 1/2. Its mean m: 0, then 0.05*1 = 0.05, then 0.95*0.05 = 0.0475; each debate is measured by the m before it.

    Seat 1 gets 0, 1, 1/2: m is 0, 0, 0.05. Seat 2 gets 0 throughout.
    """
    seats = SeatMeans()
    near(agents([ZERO_WINS, ONE_WINS, TIE], "center_seat", seats), [[1, 0, 0], [-0.05, 1, 0], [0.4525, 0.45, 0]])
    # 0.95*0.0475 + 0.05*0.5 and 0.95*0.05 + 0.05*0.5
    near([seats.of("agent")[seat] for seat in range(3)], [0.070125, 0.0725, 0])


def test_center_seat_goes_on_from_batch_to_batch() -> None:
    whole = agents([ZERO_WINS, ONE_WINS, TIE], "center_seat", SeatMeans())
    seats = SeatMeans()
    parts = agents([ZERO_WINS], "center_seat", seats) + agents([ONE_WINS, TIE], "center_seat", seats)
    assert parts == whole


def test_center_seat_by_step_uses_the_mean_of_the_seats_values_with_a_signal() -> None:
    """Generator values of v2. Debate 1: in round 2 Agent 2 says 0 > 1, in round 3 Agent 2 says 0 > 1 and Agent 1 says 2 > 0.

    Seat 0: +1 (round 1), 1 for and 1 against = 0 (round 2): m becomes 0.05 * 1/2. Seat 1: -1, -1: -0.05. Seat 2: +1 (round 2): 0.05.
    Debate 2 is the same one again: each value less the m of its seat; steps without a signal stay 0.
    """
    one = debate(v2(enable_format_penalty=False), [["", "", ""], ["", "", "0 > 1"], ["", "2 > 0", "0 > 1"]])
    first, second = steps([one, one], "center_seat", "generator")
    near(first, [[1, 0, 0], [-1, -1, 0], [0, 1, 0]])
    near(second, [[0.975, -0.025, 0], [-0.95, -0.95, 0], [0, 0.95, 0]])


def test_center_seat_keeps_the_mean_of_a_seat_without_a_signal() -> None:
    """Between two debates that judge seats 0 and 1 stands one in which nobody is judged: the third sees m = 0.05, not 0.0475."""
    judged, silent = debate(v2(), [["", "", ""], ["", "", "0 > 1"]]), debate(v2(), [["", "", ""]])
    *_, last = steps([judged, silent, judged], "center_seat", "generator")
    near(last, [[0.95, 0], [-0.95, 0], [0, 0]])


def test_center_seat_keeps_the_streams_apart() -> None:
    """Agent 2's judgement (+1 by its own consensus) moves the judge mean of seat 2 and no generator mean."""
    seats = SeatMeans()
    steps([debate(v2(), [["", "", ""], ["", "", "0 > 1"]])], "center_seat", "generator", seats)
    near([seats.of("generator").get(seat) for seat in range(3)], [0.05, -0.05, None])
    near([seats.of("judge").get(seat) for seat in range(3)], [None, None, 0.05])


def test_normalize_batch() -> None:
    """Returns 1, 0, 0 and 0, 1, 0: mean 1/3, variance (2*(2/3)^2 + 4*(1/3)^2)/6 = 2/9."""
    deviation = (2 / 9) ** 0.5 + 1e-8
    high, low = (2 / 3) / deviation, (-1 / 3) / deviation
    near(agents([ZERO_WINS, ONE_WINS], "normalize_batch"), [[high, low, low], [low, high, low]])


def test_normalize_batch_of_equal_values_is_zero_and_not_rounding_over_1e_8() -> None:
    """Four debates without a vote, all answers right, a tenth of truth mixed in: 12 times 0.1, whose floating-point mean is not 0.1."""
    batch = [debate(v1(), [["", "", ""]], answers=[["7", "7", "7"]], truth="7")] * 4
    scores = [(each, reward(each, mix=0.1)) for each in batch]
    assert math.fsum([0.1] * 12) / 12 != 0.1
    assert [each.values for each in advantages(scores, ESTIMATORS["normalize_batch"])] == [(0.0, 0.0, 0.0)] * 4  # type: ignore[union-attr]


def test_normalize_batch_by_step_with_a_failure() -> None:
    """Judged: +1 and -1 (mean 0, deviation 1). The failed turn takes no part and is -1 afterwards."""
    (found,) = steps([debate(v2(), [["", "", ""], ["1 > 2", FAILED, ""]])], "normalize_batch", "generator")
    near(found, [[0, 0], [1 / (1 + 1e-8), -1], [-1 / (1 + 1e-8), 0]])


def test_center_round() -> None:
    """Agent 0 votes 1 > 2 in round 2 and again in round 3: +1 and -1 in rounds 1 and 2, mean 0 each.

    In round 3 Agent 3 says 1 > 0 as well, so round 2 has 1: 2 for, 2: -1, 0: -1. Mean of 1, -1, -1 is -1/3.
    """
    played = debate(
        v2(advantage="center_round", enable_format_penalty=False),
        [[""] * 4, ["1 > 2", "", "", ""], ["1 > 2", "", "", "1 > 0"]],
    )
    (found,) = steps([played], "center_round", "generator")
    near(found, [[0, -2 / 3, 0], [1, 4 / 3, 0], [-1, -2 / 3, 0], [0, 0, 0]])
    # Over the whole debate the mean of 1, -1, 1, -1, -1 is -1/5.
    (found,) = steps([played], "center_group", "generator")
    near(found, [[0, -4 / 5, 0], [6 / 5, 6 / 5, 0], [-4 / 5, -4 / 5, 0], [0, 0, 0]])


def test_center_round_is_refused_for_rewards_by_agent() -> None:
    with pytest.raises(ConfigError, match="center_round needs rewards per turn"):
        agents([ZERO_WINS], "center_round")


@pytest.mark.parametrize("name", ["win_rate", "win_minus_loss", "truth_last", "majority_last"])
def test_center_round_with_rewards_by_agent_is_a_bad_line_and_the_others_are_scored(name: str) -> None:
    line = {"question": "q", "num_agents": 3, "turns": [{"round": 1, "agent": 0, "text": text()}], "answer": 7}
    bad = json.dumps({**line, "protocol": {"advantage": "center_round", "reward": name}})
    good = json.dumps({**line, "protocol": {"advantage": "center_round"}})
    first, second = score([bad, good], V2)
    assert isinstance(first, BadLine)
    assert "center_round" in first.reason
    assert isinstance(second, PlayedDebate)


def test_scores_of_two_kinds_are_not_centred_together() -> None:
    with pytest.raises(ConfigError, match="one reward"):
        advantages(
            [(each, reward(each)) for each in (ZERO_WINS, debate(v2(), [["", "", ""]]))], ESTIMATORS["center_group"]
        )


def test_an_empty_batch_has_no_advantages() -> None:
    assert all(advantages([], estimator) == [] for estimator in ESTIMATORS.values())


# The warning about few judges


@pytest.mark.parametrize(("num_agents", "says"), [(3, "one possible judge"), (4, "two possible judges")])
def test_few_judges_are_warned_about_with_the_remedy(num_agents: int, says: str) -> None:
    warning = judge_warning(V2.scoring, num_agents)
    assert warning is not None
    assert says in warning
    assert "leave_one_out" in warning
    assert "5 or more" in warning


def test_three_agents_are_told_that_leave_one_out_needs_four() -> None:
    assert "at least 4 agents" in (judge_warning(V2.scoring, 3) or "")
    assert "at least 4 agents" not in (judge_warning(V2.scoring, 4) or "")


def test_there_is_nothing_to_warn_about_with_five_agents_or_another_reward_or_leave_one_out() -> None:
    assert judge_warning(V2.scoring, 5) is None
    assert judge_warning(V1.scoring, 3) is None
    assert judge_warning(v2(judge_consensus="leave_one_out").scoring, 4) is None


@pytest.mark.parametrize("num_agents", [1, 2])
def test_one_or_two_agents_are_not_told_of_judges_they_do_not_have(num_agents: int) -> None:
    assert "possible judges" not in (judge_warning(V2.scoring, num_agents) or "")
