"""A reward is one object: defined here alone, it works wherever rewards do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import moot
from moot.cli.main import main
from moot.cli.score import Score
from moot.debate.rewards import REWARDS, Grades, Reward, Scores, agent_scores, register, turn_scores
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.page.rescoring import offered
from moot.rl.advantages import ESTIMATORS
from moot.rl.lookup import find_estimator
from moot.runs.record import to_transcript
from moot.tools.rescore import rescore
from support.making import FAILED, debate, near, v2


def by_length(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    """A tenth for each character of the solution's last line; the first turn of the debate has no signal."""
    lengths = [
        None if turn.fields is None else len(turn.fields["solution"].splitlines()[-1]) / 10 for turn in debate.turns
    ]
    return turn_scores(debate, scoring, [None, *lengths[1:]])


def by_seat(debate: Debate, scoring: Scoring, grades: Grades | None) -> Scores:
    return agent_scores(debate, range(debate.num_agents))


PER_TURN = Reward("by_length", by_length, per="turn", estimator="center_round", sections={"solution": "generator"})
PER_AGENT = Reward("by_seat", by_seat, per="agent")
FITTING = [
    (reward, name)
    for reward in (PER_TURN, PER_AGENT)
    for name in ESTIMATORS
    if (reward.per, name) != ("agent", "center_round")
]


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    before = dict(REWARDS)
    register(PER_TURN)
    register(PER_AGENT)
    yield
    REWARDS.clear()
    REWARDS.update(before)


def small(**settings: Any) -> moot.TrainConfig:
    few = {
        "num_agents": 3,
        "batch_size": 2,
        "num_train_datapoints": 2,
        "warm_questions": 0,
        "max_tokens": 1500,
        "eval_every": 0,
    }
    return moot.config(engine="scripted", **{**few, **settings})


def test_its_streams_are_centred_and_paid_as_it_says() -> None:
    """The first turn has no signal, so in round 1 agents 1 and 2 are compared, a character apart. In round 2 agent 1 fails, and the others
    are level."""
    played = debate(v2(reward="by_length"), [["", "", ""], ["", FAILED, ""]], [["1", "22", "333"], ["1", None, "1"]])
    scored = moot.score(played, v2(reward="by_length"))
    assert scored.scores and scored.advantages
    lengths = [len(turn.fields["solution"].splitlines()[-1]) / 10 if turn.fields else -1.0 for turn in played.turns]
    near(scored.scores.streams["generator"].values, [[0.0, lengths[3]], [lengths[1], -1.0], [lengths[2], lengths[5]]])
    near(scored.advantages.streams["generator"], [[0, 0], [-0.05, -1], [0.05, 0]])
    assert scored.advantages.stream_of == {"solution": "generator"} and scored.scores.has_signal


@pytest.mark.parametrize(("reward", "advantage"), FITTING, ids=lambda value: getattr(value, "name", value))
def test_it_trains_is_read_and_is_counted_again_under_every_estimator_that_fits(
    reward: Reward, advantage: str, tmp_path: Path
) -> None:
    run = moot.train(small(reward=reward.name, advantage=advantage), tmp_path / "run")
    debates = list(run.debates())
    assert len(debates) == 2
    for played in debates:
        assert isinstance(played, moot.PlayedDebate) and played.scores and played.advantages
        assert (played.scores.per, played.advantages.per, dict(played.scores.stream_of)) == (reward.per,) * 2 + (
            dict(reward.stream_of),
        )
    found = rescore(run, {})
    assert (found.before, found.largest_difference) == (found.after, 0.0)
    other = rescore(run, {"reward": "majority", "advantage": "auto"})
    assert (other.before.reward, other.after.reward, other.after.advantage) == (reward.name, "majority", "center_round")
    assert rescore(run, {"reward": "win_rate", "advantage": "center_group"}).after.reward == "win_rate"


@pytest.mark.parametrize("reward", [PER_TURN, PER_AGENT], ids=lambda reward: reward.name)
def test_the_command_scores_by_it(reward: Reward, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played = debate(v2(), [["", "", ""]], [["1", "22", "333"]])
    (tmp_path / "debates.jsonl").write_text(json.dumps(to_transcript(played)) + "\n")
    assert main(["score", str(tmp_path / "debates.jsonl"), "--reward", reward.name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    if reward.per == "agent":
        assert (told["rewards"], told["advantages"]) == ([0, 1, 2], [-1, 0, 1])
    else:
        near(told["generator_advantages"], [[0], [-0.05], [0.05]])
    assert Score(str(tmp_path / "debates.jsonl"), reward=reward.name).run() == 0


def test_what_does_not_fit_is_refused_by_what_it_says_about_itself() -> None:
    with pytest.raises(moot.ConfigError, match="center_round needs rewards per turn, and by_seat is per agent"):
        find_estimator(Scoring(reward="by_seat", advantage="center_round"))
    with pytest.raises(moot.ConfigError, match="'win_rate' is there already; give yours another name"):
        register(replace(PER_AGENT, name="win_rate"))


def test_lists_of_rewards_have_it() -> None:
    assert offered()["reward"][-2:] == ("by_length", "by_seat")
    with pytest.raises(
        moot.ConfigError, match=r"by_length, by_seat or path\.py:function, got 'by_lenth'; did you mean by_length\?"
    ):
        moot.score(debate(v2(), [["", "", ""]]), reward="by_lenth")


# From Python


def last_seat(debate: Debate) -> list[float]:
    return [0.0] * (debate.num_agents - 1) + [1.0]


def right_turns(debate: Debate, grades: Grades) -> list[list[float]]:
    return [[float(grades.correct[i]) for i in turns] for turns in debate.turns_by_agent()]


PLAYED = debate(v2(), [["", "", ""]] * 2, [["1", "7", "7"], ["7", "7", "7"]], "7")


def test_score_takes_a_name_a_function_and_an_object() -> None:
    """Of round 1's answers 7 is held twice, so the rewards are 0, 1, 1; in round 2 all are alike."""
    named = moot.score(PLAYED, reward="majority")
    assert named.scoring.reward == "majority" and named.scores
    near(named.scores.streams["generator"].values, [[0, 1], [1, 1], [1, 1]])
    assert moot.score(PLAYED, reward=PER_AGENT).advantages == moot.score(PLAYED, reward="by_seat").advantages
    near(
        moot.score(PLAYED, reward=right_turns, protocol=v2(advantage="center_round")).advantages.streams["step"][0],
        [-2 / 3, 0],
    )  # type: ignore[union-attr]
    near(moot.score(PLAYED, reward=last_seat).advantages.values, [-1 / 3, -1 / 3, 2 / 3])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "reward",
    ["majority", last_seat, PER_AGENT, lambda debate: [1.0, 0.0, 0.0]],
    ids=["name", "function", "object", "lambda"],
)
def test_config_takes_a_name_a_function_and_an_object(reward: Any, tmp_path: Path) -> None:
    run = moot.train(small(reward=reward), tmp_path / "run")
    (first, _) = run.debates()
    assert isinstance(first, moot.PlayedDebate)
    again = moot.score(first.debate, reward=reward)
    assert first.scores and again.scores and first.scores.returns == again.scores.returns
    if reward is last_seat:
        assert run.config["protocol"]["reward"] == f"{__file__}:last_seat", "so that another process finds it"


def test_two_functions_without_a_place_have_two_names() -> None:
    one, two = (lambda debate: [1.0, 0.0, 0.0]), (lambda debate: [0.0, 1.0, 0.0])
    names = [small(reward=function).protocol.scoring.reward for function in (one, two, one)]
    assert names[0] == names[2] != names[1]


def test_a_file_may_hold_a_reward_with_all_that_it_says_about_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from moot.debate.rewards import Reward, turn_scores\n\n"
        "def pay(debate, scoring, grades):\n    return turn_scores(debate, scoring, [turn.agent / 2 for turn in debate.turns])\n\n"
        "mine = Reward('mine', pay, per='turn', from_votes=True, estimator='center_round', sections={'solution': 'generator'})\n"
    )
    name = f"{tmp_path}/mine.py:mine"
    scored = moot.score(PLAYED, reward=name)
    assert (scored.scoring.estimator, scored.scoring.stream_of) == ("center_round", {"solution": "generator"})
    near(scored.advantages.streams["generator"], [[-0.5] * 2, [0.0] * 2, [0.5] * 2])  # type: ignore[union-attr]
    assert scored.winner is None, "it says that it is made of votes, and there are none"


def test_what_judges_scored_has_a_place() -> None:
    """As 2s - 1 of a judge's score s, where it has one: no score, no signal; a failed turn costs 1 after centring."""
    played = debate(v2(), [["", "", FAILED]])
    paid = turn_scores(played, Scoring(reward="by_length"), [2 * 0.75 - 1, None, None]).streams["generator"]
    assert (paid.values, paid.to_center, paid.added) == (
        ((0.5,), (0.0,), (-1.0,)),
        ((0.5,), (None,), (None,)),
        ((0.0,), (0.0,), (-1.0,)),
    )
