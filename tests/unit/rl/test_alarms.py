"""Every alarm made to ring and to keep quiet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moot.debate.parsing import BALLOT
from moot.debate.types import Said
from moot.rl.alarms import Alarms
from moot.rl.metrics import rollout_metrics, solution_lengths
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.tokens.turn import SampledTurn
from support.making import FAILED, debate, judged, lines, reward, text, v2

# Alarms: None below 20 debates in the last 5 iterations, then 0 or 1.

CONSENSUS, NOISE, COLLAPSE = "alarm/degenerate_consensus", "alarm/random_noise", "alarm/format_collapse"
SHRUNK, DECAY = "alarm/length_collapse", "alarm/judge_decay"
VOTES = ["1 > 2", "0 > 2", "0 > 1"]


def one(
    votes: list[str] = VOTES, answers: tuple[str | None, ...] = ("7", "8", "9"), truth: str | None = "7", n: int = 3
) -> PlayedDebate:
    """Round 1, then votes about it; the same answers in both rounds."""
    return judged(debate(v2(), [[""] * n, votes], answers=[list(answers), list(answers)], truth=truth))


FINE = one()
"""Two right-against-wrong votes (0 > 2 and 0 > 1), both for the right one; three answers; everyone votes."""


def test_alarms_keep_quiet_until_twenty_debates() -> None:
    alarms = Alarms()
    assert alarms.update([FINE] * 19) == dict.fromkeys((CONSENSUS, NOISE, COLLAPSE, SHRUNK, DECAY))
    # Their tokens are not known, and nobody was asked for checks.
    assert alarms.update([FINE]) == {CONSENSUS: 0.0, NOISE: 0.0, COLLAPSE: 0.0, SHRUNK: None, DECAY: None}


def test_the_window_is_five_iterations() -> None:
    """Four debates an iteration: 20 from the fifth on. Fifteen in one go count for five iterations, and are forgotten at the sixth."""
    alarms = Alarms()
    assert [alarms.update([FINE] * 4)[CONSENSUS] for _ in range(7)] == [None] * 4 + [0.0] * 3
    alarms = Alarms()
    found = [alarms.update([FINE] * count)[CONSENSUS] for count in (15, 1, 1, 1, 1, 1)]
    assert found == [None] * 6, "19 at most, then 5"
    alarms = Alarms()
    assert [alarms.update([FINE] * count)[CONSENSUS] for count in (16, 1, 1, 1, 1, 1)] == [
        None,
        None,
        None,
        None,
        0.0,
        None,
    ]


SAME = one(answers=("8", "8", "8"))


@pytest.mark.parametrize(("uniform", "rings"), [(16, 0.0), (17, 1.0)])
def test_degenerate_consensus_rings_above_four_fifths(uniform: int, rings: float) -> None:
    """Of 20 debates, over 80% is 17."""
    assert Alarms().update([SAME] * uniform + [FINE] * (20 - uniform))[CONSENSUS] == rings


def test_two_answers_are_not_the_minimum() -> None:
    assert Alarms().update([one(answers=("8", "8", "7"))] * 20)[CONSENSUS] == 0.0


MUTE = one(votes=["", "", ""])


@pytest.mark.parametrize(("silent", "rings"), [(2, 0.0), (3, 1.0)])
def test_degenerate_consensus_rings_when_most_iterations_have_no_debate_with_a_signal(
    silent: int, rings: float
) -> None:
    """Of five iterations, over half is three. One debate with a signal is enough to spare an iteration."""
    alarms = Alarms()
    for _ in range(5 - silent):
        alarms.update([MUTE] * 3 + [FINE])
    for _ in range(silent):
        found = alarms.update([MUTE] * 4)
    assert found[CONSENSUS] == rings


def test_an_old_silence_is_forgotten() -> None:
    alarms = Alarms()
    assert alarms.update([SAME] * 20)[CONSENSUS] == 1.0
    for _ in range(5):
        found = alarms.update([FINE] * 20)
    assert found[CONSENSUS] == 0.0


def test_open_questions_without_answers_are_not_taken_for_agreement() -> None:
    """Essays hold no final answer to compare; votes that say something are no degenerate consensus."""
    essay = one(answers=(None, None, None), truth=None)
    assert Alarms().update([essay] * 20)[CONSENSUS] == 0.0


# Noise: right-against-wrong votes. FINE has 2 right of 2; turned round it has 0 of 2.
WRONG = one(votes=["1 > 2", "2 > 0", "1 > 0"])


@pytest.mark.parametrize(
    ("right", "rings"),
    [
        # 20 of 40: in the middle. 26 of 40: Wilson's interval is 0.495 to 0.779. 28 of 40: 0.546 to 0.819.
        (10, 1.0),
        (13, 1.0),
        (14, 0.0),
        (20, 0.0),
        # Judges that are surely wrong are not noise.
        (0, 0.0),
    ],
)
def test_random_noise_rings_while_one_half_is_in_the_interval(right: int, rings: float) -> None:
    assert Alarms().update([FINE] * right + [WRONG] * (20 - right))[NOISE] == rings


@pytest.mark.parametrize("truth", ["7", None])
def test_where_nobody_votes_no_vote_is_called_good_or_bad(truth: str | None) -> None:
    assert Alarms().update([one(votes=["", "", ""], truth=truth)] * 20)[NOISE] is None


@pytest.mark.parametrize(
    ("voters", "right", "rings"),
    [
        # Agents are right in all 40 votes, the outside judge in 10, 20 or 18 of 20.
        ("judges", 10, 1.0),
        ("judges", 20, 0.0),
        ("judges", 18, 0.0),
        ("agents", 10, 0.0),
        # 40 of 40 and 10 of 20: 0.72 to 0.91.
        ("both", 10, 0.0),
    ],
)
def test_random_noise_is_in_the_votes_that_make_the_reward(voters: str, right: int, rings: float) -> None:
    def heard(vote: str) -> PlayedDebate:
        played = one()
        said = Said(text(lines(vote), contract=BALLOT))
        return replace(played, debate=played.debate.heard([said]), scoring=replace(played.scoring, voters=voters))

    debates = [heard("0 > 1")] * right + [heard("1 > 0")] * (20 - right)
    assert Alarms().update(debates)[NOISE] == rings


def test_no_vote_between_right_and_wrong_is_no_noise() -> None:
    """All wrong: judge accuracy has nothing to say."""
    assert Alarms().update([one(answers=("8", "9", "10"))] * 20)[NOISE] is None


# Without answers: pairs with two or more judges. Four agents; the pair 0-1 is judged by 2 and 3, the pair 2-3 by 0 and 1.
def pair(clear: bool) -> PlayedDebate:
    return one(
        votes=["2 > 3", "2 > 3", "0 > 1", "0 > 1"] if clear else ["2 > 3", "3 > 2", "0 > 1", "1 > 0"],
        answers=("1",) * 4,
        truth=None,
        n=4,
    )


@pytest.mark.parametrize(("clear", "rings"), [(11, 1.0), (12, 0.0), (20, 0.0), (0, 1.0)])
def test_without_answers_random_noise_rings_when_few_pairs_are_clear(clear: int, rings: float) -> None:
    """Of 40 contested pairs, under 60% is fewer than 24."""
    assert Alarms().update([pair(True)] * clear + [pair(False)] * (20 - clear))[NOISE] == rings


def test_pairs_with_one_judge_do_not_count_as_clear_or_unclear() -> None:
    """Three agents have one judge a pair, here an undecided one: nothing contested, nothing to ring about."""
    assert Alarms().update([one(votes=["1 = 2", "0 = 2", "0 = 1"], truth=None)] * 20)[NOISE] is None


# Collapse
HALF = one(votes=["1 > 2; 1 > 2", "", ""])  # one of the three that could vote


def test_format_collapse_rings_when_votes_fall_to_half_of_their_best() -> None:
    """Full windows of 20. From 60 of 60 turns to 30 of 60 is a fall by half; to 32 of 60 is not."""
    for kept, rings in ((6, 0.0), (5, 1.0)):
        alarms = Alarms()
        assert alarms.update([FINE] * 20)[COLLAPSE] == 0.0
        for _ in range(5):
            # kept * 3 + (20 - kept) of 60: 32 for 6, 30 for 5.
            found = alarms.update([FINE] * kept + [HALF] * (20 - kept))
        assert found[COLLAPSE] == rings


def test_format_collapse_is_measured_by_the_best_ever_not_by_the_window() -> None:
    alarms = Alarms()
    alarms.update([FINE] * 20)
    found = [alarms.update([HALF] * 20)[COLLAPSE] for _ in range(12)]
    # Shares of the window: (60+20)/120, (60+40)/180, 120/240 = 1/2 from the third on.
    assert found == [0.0, 0.0] + [1.0] * 10


def test_few_votes_from_the_start_are_no_fall() -> None:
    alarms = Alarms()
    assert [alarms.update([HALF] * 20)[COLLAPSE] for _ in range(6)] == [0.0] * 6


@pytest.mark.parametrize(("failed", "rings"), [(8, 0.0), (9, 1.0)])
def test_format_collapse_rings_above_two_fifths_of_failed_turns(failed: int, rings: float) -> None:
    """One round of three agents: 20 debates, of which `failed` fail throughout. 24 of 60 is 40%, 27 of 60 is more."""
    dead = judged(debate(v2(), [[FAILED] * 3], truth="7"))
    alive = judged(debate(v2(), [[""] * 3], answers=[["7", "8", "9"]], truth="7"))
    assert Alarms().update([dead] * failed + [alive] * (20 - failed))[COLLAPSE] == rings


# Length collapse. Three agents, one round; a turn's tokens are one per character of its text, and all its solutions are as long.


def spoken(
    length: int,
    answers: tuple[str, ...] = ("7", "7", "8"),
    truth: str | None = "7",
    labelled: tuple[bool, ...] | None = None,
) -> PlayedDebate:
    """Solutions of `length` characters in all, tags included, with one token each; the other sections have tokens too."""
    padding = length - len("<solution>\\boxed{7}</solution>")
    played = debate(v2(), [[""] * 3], [[f"{'.' * padding}\\boxed{{{answer}}}" for answer in answers]], truth=truth)
    sampled = tuple(
        SampledTurn(ids, False, ids, ids.astype(np.float32), ids)
        for turn in played.turns
        for ids in [np.arange(len(turn.text), dtype=np.int32)]
    )
    graded = replace(grade(played), labelled=labelled)
    return PlayedDebate(played, sampled, scoring=played.scoring, scores=reward(played), grades=graded)


def test_tokens_of_a_solution_by_hand() -> None:
    assert solution_lengths([spoken(100), spoken(40)]) == [100] * 3 + [40] * 3
    assert rollout_metrics([spoken(100), spoken(40)])["tokens/solution"] == 70.0
    assert solution_lengths([FINE]) == [], "nobody knows its tokens"


LENGTHS = {
    # first five steps -> last five steps of 4 debates: length and answers (truth 7). Accuracy at first: 2 of 3.
    "half is not under half": ((100, ("7", "7", "8")), (50, ("7", "7", "8")), 0.0),
    "under half, as good": ((100, ("7", "7", "8")), (49, ("7", "7", "8")), 1.0),
    "under half, worse": ((100, ("7", "7", "8")), (49, ("7", "8", "8")), 1.0),
    "under half, better": ((100, ("7", "7", "8")), (49, ("7", "7", "7")), 0.0),
    "longer": ((49, ("7", "7", "8")), (100, ("7", "7", "8")), 0.0),
}


@pytest.mark.parametrize(("first", "last", "rings"), LENGTHS.values(), ids=LENGTHS)
def test_length_collapse_by_hand(
    first: tuple[int, tuple[str, ...]], last: tuple[int, tuple[str, ...]], rings: float
) -> None:
    alarms = Alarms()
    assert [alarms.update([spoken(*first)] * 4)[SHRUNK] for _ in range(5)] == [None] * 4 + [0.0]
    found = [alarms.update([spoken(*last)] * 4)[SHRUNK] for _ in range(5)]
    assert found[-1] == rings
    again = Alarms.from_state(alarms.state())
    assert again.update([spoken(*last)] * 4)[SHRUNK] == rings, "a run that continues remembers its first steps"


def test_length_collapse_is_of_the_first_steps_to_the_last_five() -> None:
    """100 at first. After one to five steps of 40: (4 * 100 + 40) / 5 = 88, 76, 64, 52, 40; only 40 is under 50."""
    alarms = Alarms()
    for _ in range(5):
        alarms.update([spoken(100)] * 4)
    assert [alarms.update([spoken(40)] * 4)[SHRUNK] for _ in range(5)] == [0.0] * 4 + [1.0]


@pytest.mark.parametrize(
    ("first", "last", "rings"),
    [
        # The share of the plurality: 2 of 3, then 3 of 3 or 1 of 3.
        ((("7", "7", "8"), None), (("7", "7", "7"), None), 0.0),
        ((("7", "7", "8"), None), (("7", "9", "8"), None), 1.0),
        # Labels of weights that stand still come first: all three agree now, on another answer than those weights'.
        ((("7", "7", "8"), (True, True, False)), (("8", "8", "8"), (False, False, False)), 1.0),
    ],
)
def test_without_answers_length_collapse_looks_at_agreement(
    first: tuple[tuple[str, ...], tuple[bool, ...] | None],
    last: tuple[tuple[str, ...], tuple[bool, ...] | None],
    rings: float,
) -> None:
    alarms = Alarms()
    for _ in range(5):
        alarms.update([spoken(100, first[0], None, first[1])] * 4)
    found = [alarms.update([spoken(40, last[0], None, last[1])] * 4)[SHRUNK] for _ in range(5)]
    assert found[-1] == rings


@pytest.mark.parametrize("count", [-1, 10**400, "3", None])
def test_counts_that_are_none_are_a_damaged_checkpoint(count: object) -> None:
    alarms = Alarms()
    alarms.update([])
    state = alarms.state()
    state["window"][0]["debates"] = count  # what somebody else sealed
    with pytest.raises((ValueError, TypeError)):
        Alarms.from_state(state)
