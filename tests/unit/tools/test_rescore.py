"""What a run's votes would have taught: by hand on small tables, and the run's own numbers again where nothing is changed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.debate.outcome import mean_rewards
from moot.debate.parsing import parse
from moot.debate.protocols import PRESETS, Protocol
from moot.debate.rewards import as_reward
from moot.debate.rules import Rules
from moot.debate.scoring import Scoring
from moot.debate.state import Debate
from moot.debate.typed_fields import names_of
from moot.debate.types import ParseFailure, Question, Turn
from moot.errors import ConfigError
from moot.runs import Damaged, PlayedDebate, Run
from moot.runs.record import grades_of, scores_of, to_record
from moot.settings.train import OptimConfig, TrainConfig
from moot.tokens.turn import Advantages
from moot.tools.rescore import SCORING, SPOKEN, Rescored, check, compare, rescore
from moot.util.intervals import Correlation
from support.making import FAILED, Tabled, debate, text, v1, v2
from support.recorded import LOST, judged, record

# Three agents, two rounds; only agent 0 votes: it prefers 1 to 2. Agent 1 is right, agent 2 wrong, agent 0 wrong.
ANSWERS = [["5", "7", "6"], ["5", "7", "6"]]
ONE_VOTE = [["", "", ""], ["1 > 2", "", ""]]
# Each prefers the next one, and agent 0 says so three times.
CIRCLE = [["", "", ""], ["1 > 2; 1 > 2; 1 > 2", "2 > 0", "0 > 1"]]


def pairs(compared: Iterable[Any]) -> list[Any]:
    """Debates before and after, those that the engine lost left out."""
    return [each for each in compared if isinstance(each, tuple)]


def many(protocol: Protocol) -> list[list[Debate]]:
    """Two steps with what a run meets: votes, ties, repeated and missing ones, failed turns, a lost debate."""
    fails = "abort" if protocol.rules.on_parse_failure == "abort" else "continue"
    broken = [["", FAILED]] if fails == "abort" else [["", FAILED, ""], ["1 > 2", "0 > 2", FAILED]]
    answers = [["5", None, "6"], ["5", "7", None]]
    first = [debate(protocol, ONE_VOTE, ANSWERS, "7"), LOST, debate(protocol, CIRCLE, ANSWERS, "7")]
    second = [
        debate(protocol, broken, answers, "7", num_agents=3),
        debate(protocol, [["", "", ""], ["1 = 2", "0 > 2", "0 > 1; 1 > 0"]], answers, "7"),
    ]
    return [first, second]


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "advocates"])
@pytest.mark.parametrize("advantage", ["center_group", "center_seat", "normalize_batch"])
@pytest.mark.parametrize(("mix", "bonus"), [(0.0, 0.0), (0.3, 0.5)])
def test_with_nothing_changed_every_number_is_as_the_run_saved_it(
    tmp_path: Path, name: str, advantage: str, mix: float, bonus: float
) -> None:
    protocol = PRESETS[name].with_choices(advantage=advantage)
    run = record(tmp_path / "run", many(protocol), protocol, mix, bonus)
    found = rescore(run, {})
    assert (found.before, found.changed, found.largest_difference, found.choices) == (found.after, 0, 0.0, {})
    assert (found.after.debates, found.failed, found.damaged_lines) == (4, 1, 0)


def plain(numbers: Any) -> Any:
    """As JSON has them."""
    return json.loads(json.dumps(numbers))


@pytest.mark.parametrize("reward", ["win_rate", "win_minus_loss", "truth", "majority", "truth_last", "majority_last"])
@pytest.mark.parametrize("advantage", ["center_group", "center_seat", "normalize_batch"])
def test_rescoring_gives_what_training_with_that_reward_would_have_saved(
    tmp_path: Path, reward: str, advantage: str
) -> None:
    other = v2(reward=reward, advantage=advantage)
    trained = [
        each
        for each in (record(tmp_path / "b", many(other), other)).debates()
        if isinstance(each, PlayedDebate) and not each.error
    ]
    run = record(tmp_path / "a", many(v2()), v2())
    found = [
        each for each in compare(run, check(run, {"reward": reward, "advantage": advantage})) if isinstance(each, tuple)
    ]
    assert [after.advantages for _, after in found] == [each.advantages for each in trained]
    assert [to_record(after)["rewards"] for _, after in found] == [to_record(each)["rewards"] for each in trained]


def test_one_vote_under_win_rate(tmp_path: Path) -> None:
    # Agent 1 won its one vote, agent 2 lost its one, agent 0 had none: returns 0, 1, 0, mean 1/3.
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS, "7")]])
    found = rescore(run, {"reward": "win_rate"})
    ((_, after),) = pairs(compare(run, check(run, {"reward": "win_rate"})))
    assert list(after.scores.returns) == [0.0, 1.0, 0.0]
    assert after.advantages == Advantages.per_agent(
        (pytest.approx(-1 / 3), pytest.approx(2 / 3), pytest.approx(-1 / 3))
    )
    assert found.after.reward_mean == pytest.approx(1 / 3)
    assert (found.after.advantage_right, found.after.advantage_wrong) == (pytest.approx(2 / 3), pytest.approx(-1 / 3))
    assert found.after.advantage_size == pytest.approx(4 / 9)
    # Two of six turns are right and they alone are above the mean.
    assert found.after.correlation == pytest.approx(1.0)
    assert (found.after.winner_correct, found.after.judge_accuracy) == (1.0, 1.0)
    assert found.choices == {"reward": ("generator_judge", "win_rate")}
    assert found.largest_difference is None


def test_correlation_over_the_turns_of_a_debate_by_hand(tmp_path: Path) -> None:
    # As trained: only the two judged answers have an advantage, +1 (right) and -1 (wrong), the other four turns 0.
    # With right as 1, less its mean of 1/3: sums of products 1 * 2/3 + -1 * -1/3 = 1, of squares 2 and 2 * 4/9 + 4 * 1/9 = 4/3.
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS, "7")]])
    found = rescore(run, {}).before
    assert found.correlation == pytest.approx(1 / math.sqrt(2 * 4 / 3))
    assert (found.advantage_right, found.advantage_wrong) == (0.5, -0.25)


def test_repeated_lines_decide_once_ballots_are_off(tmp_path: Path) -> None:
    # One ballot each: a circle, so everybody has one vote for and one against. All lines: agent 1 has 3 for, 1 against.
    run = record(tmp_path / "run", [[debate(v2(), CIRCLE, ANSWERS, "7")]])
    found = rescore(run, {"one_ballot_per_pair": False})
    (change,) = found.changes
    assert (found.changed, change.before, change.after) == (1, None, 1)
    assert (change.correct_before, change.correct_after) == (None, True)
    assert (found.before.winners, found.after.winners) == (0, 1)
    # Votes between right and wrong: three for 1 over 2, one for 0 over 1; the last word alone: one each.
    assert (found.before.judge_accuracy, found.after.judge_accuracy) == (0.5, 0.75)


def test_only_as_many_changes_are_kept_as_asked_for_but_all_are_counted(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [[debate(v2(), CIRCLE, ANSWERS, "7")] * 5])
    found = rescore(run, {"one_ballot_per_pair": False}, most_changes=2)
    assert (found.changed, len(found.changes)) == (5, 2)


def test_a_turn_that_was_cut_off_stays_failed(tmp_path: Path) -> None:
    # The text alone looks complete but for its last closing tag, which `moot score` forgives. The run knew better.
    cut = text("Agent 1 > Agent 2").removesuffix("</comparison>")
    assert not isinstance(parse(cut, "three_tag"), ParseFailure)
    played = debate(v2(), [["", "", ""], ["", "0 > 2", "0 > 1"]], ANSWERS, "7")
    turns = list(played.turns)
    turns[3] = Turn(2, 0, cut, parse(cut, "three_tag", closed=False))
    run = record(tmp_path / "run", [[replace(played, turns=tuple(turns))]])
    ((_, after),) = pairs(compare(run, check(run, {"reward": "win_rate"})))
    assert list(after.scores.returns) == [0.0, 0.0, 0.0]  # agent 0 won both votes (1), less 1 for its failed turn
    assert rescore(run, {}).largest_difference == 0.0


@pytest.mark.parametrize("shuffled", [False, True])
def test_fields_read_by_other_rules_still_count_as_they_did(tmp_path: Path, shuffled: bool) -> None:
    protocol = v2(closing_ballot=True, shuffle_labels=shuffled)
    run = record(tmp_path / "run", [[judged(protocol, jury_counts=False)]], protocol.with_choices(voters="agents"))
    file = run.path / "debates" / "000001.jsonl"
    told = json.loads(file.read_text())
    told["turns"][3]["text"] = "what an older parser could read"
    file.write_text(json.dumps(told) + "\n")
    assert rescore(run, {}).largest_difference == 0.0


def test_every_choice_of_a_protocol_is_either_counted_anew_or_refused_with_a_reason(tmp_path: Path) -> None:
    assert {*names_of(Rules), *names_of(Scoring)} <= {*SCORING, *SPOKEN}
    assert not {*SCORING} & {*SPOKEN}
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE)]])
    for name, reason in SPOKEN.items():
        with pytest.raises(ConfigError, match=f"{name} cannot be changed afterwards: {reason}"):
            rescore(run, {name: getattr(v1().rules, name, 5)})
    with pytest.raises(ConfigError, match="rescore has no choice 'learning_rate'"):
        rescore(run, {"learning_rate": 5})


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"reward": "applause"}, "reward must be one of win_rate, .* or path.py:function, got 'applause'"),
        ({"advantage": "hope"}, "advantage must be one of center_group, .* got 'hope'"),
        (
            {"reward": "win_rate", "advantage": "center_round"},
            "advantage center_round needs rewards per turn, and win_rate is per agent",
        ),
        ({"reward_mix": 1.5}, "reward_mix must be between 0 and 1, got 1.5"),
        ({"correct_bonus": "much"}, "correct_bonus must be a number, got 'much'"),
        ({"correct_bonus": float("nan")}, "correct_bonus must be a number, got nan"),
        ({"one_ballot_per_pair": 1}, "one_ballot_per_pair must be true or false, got 1"),
        ({"lambda_gen": -1.0}, "lambda_gen must be 0 or more, got -1"),
        ({"reward": "nowhere.py:f"}, "reward 'nowhere.py:f': there is no file nowhere.py"),
    ],
)
def test_a_wrong_choice_is_refused_before_anything_is_read(
    tmp_path: Path, choices: dict[str, Any], complaint: str
) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE)]])
    with pytest.raises(ConfigError, match=complaint):
        check(run, choices)


def test_truth_needs_known_answers_and_says_so(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS)]])
    assert rescore(run, {"reward": "majority"}).after.correlation is None
    for choices in ({"reward": "truth"}, {"reward_mix": 0.5}):
        with pytest.raises(ConfigError, match="needs a question with a known answer"):
            rescore(run, choices)


def test_mixing_in_truth_moves_the_generator_reward(tmp_path: Path) -> None:
    # Half truth: agent 1 (right, preferred) gets (1 + 1)/2 = 1; agent 2 (wrong, not preferred) -1; unjudged wrong (0 - 1)/2.
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS, "7")]])
    ((_, after),) = pairs(compare(run, check(run, {"reward_mix": 0.5})))
    assert after.scores.streams["generator"].values == ((-0.5, -0.5), (1.0, 0.5), (-1.0, -0.5))


def test_a_users_reward_of_an_earlier_day_need_not_be_there_any_more(tmp_path: Path) -> None:
    gone = "gone.py:mine"
    rewards = {gone: as_reward(lambda played: [float(a) for a in range(played.num_agents)], gone)}
    run = record(
        tmp_path / "run", [[debate(v2(reward=gone), ONE_VOTE, ANSWERS, "7")]], v2(reward=gone), rewards=rewards
    )
    found = rescore(run, {"reward": "win_rate"})
    assert (found.before.reward, found.before.reward_mean) == (gone, 1.0)
    assert [(change.before, change.after) for change in found.changes] == [(2, 1)]
    with pytest.raises(ConfigError, match=r"there is no file gone\.py"):
        rescore(run, {}, trust=True)


def test_a_users_own_reward_and_estimator(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def reward(debate):\n    return [3.0, 1.0, 2.0]\n\n\n"
        "def estimate(debates, means):\n    return [[cell.value for cell in cells] for cells in debates]\n"
    )
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS, "7")]])
    choices = {"reward": f"{mine}:reward", "advantage": f"{mine}:estimate"}
    ((_, after),) = pairs(compare(run, check(run, choices)))
    assert (after.advantages, after.outcome.winner) == (Advantages.per_agent((3.0, 1.0, 2.0)), 0)


def test_lost_debates_and_damaged_lines_are_counted_and_the_others_scored(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS, "7"), LOST]])
    good = (run.path / "debates" / "000001.jsonl").read_bytes().splitlines()[0]
    told = json.loads(good)
    lines = [
        good[: len(good) // 2],
        b"\xff\xfe\x00",
        b"[]",
        json.dumps({**told, "protocol": {"hats": True}}).encode(),
        json.dumps({**told, "turns": [{**told["turns"][0], "agent": 7}]}).encode(),
        b"[" * 100_000,
    ]
    with (run.path / "debates" / "000001.jsonl").open("ab") as file:
        file.write(b"\n".join(lines))
    found = rescore(run, {"reward": "win_rate"})
    assert (found.after.debates, found.failed, found.damaged_lines) == (1, 1, 6)
    assert [each.line for each in found.damaged] == [3, 4, 5, 6, 7, 8]
    assert "protocol has no choice 'hats'" in found.damaged[3].reason
    assert "agent must lie in 0 to 2, got 7" in found.damaged[4].reason


def test_a_step_that_goes_away_while_it_is_read_is_passed_over(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE)], [debate(v2(), ONE_VOTE)]])
    reading = run.debates()
    assert isinstance(next(reading), PlayedDebate)
    (run.path / "debates" / "000002.jsonl").unlink()
    assert list(reading) == []


def test_no_more_than_one_step_is_read_ahead(tmp_path: Path) -> None:
    run = record(
        tmp_path / "run", [[debate(v2(), ONE_VOTE)] * 2, [debate(v2(), ONE_VOTE)] * 2, [debate(v2(), ONE_VOTE)]]
    )
    comparing = compare(run, check(run, {}))
    assert isinstance(next(comparing), tuple)
    (run.path / "debates" / "000003.jsonl").write_bytes(b"not read yet\n")
    assert [type(each) for each in comparing] == [tuple, tuple, tuple, Damaged]


def test_only_the_steps_asked_for(tmp_path: Path) -> None:
    run = record(
        tmp_path / "run", [[debate(v2(), ONE_VOTE)], [debate(v2(), ONE_VOTE)] * 2, [debate(v2(), ONE_VOTE)] * 3]
    )
    seen: list[int] = []
    assert rescore(run, {}, steps=[2, 3], seen=seen.append).after.debates == 5
    assert seen == [2, 3]


def test_what_comes_out_is_plain_data(tmp_path: Path) -> None:
    run = record(tmp_path / "run", many(v2()))
    found = rescore(run, {"reward": "win_rate"})
    told = json.loads(json.dumps(found.as_json()))
    assert told["after"]["reward"] == "win_rate"
    assert sorted(told) == sorted(field.name for field in fields(Rescored))
    assert told["changes"][0].keys() >= {"step", "number", "question", "before", "after"}


def test_a_run_without_scores_has_no_before(tmp_path: Path) -> None:
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS, "7")]])
    file = run.path / "debates" / "000001.jsonl"
    told = json.loads(file.read_text())
    for name in ("rewards", "advantages", "winner", "signal"):
        del told[name]
    file.write_text(json.dumps(told) + "\n")
    found = rescore(run, {"reward": "win_rate"})
    assert (found.before.reward_mean, found.before.winners, found.after.winners) == (None, 0, 1)


@given(st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_the_running_correlation_is_numpys(pairs: list[tuple[float, bool]]) -> None:
    running = Correlation()
    for x, y in pairs:
        running.add(x, float(y))
    xs, ys = np.array([x for x, _ in pairs]), np.array([float(y) for _, y in pairs])
    if np.ptp(ys) == 0 or np.std(xs) < 1e-6:
        assert running.value is None or np.std(xs) > 0
        return
    assert running.value == pytest.approx(float(np.corrcoef(xs, ys)[0, 1]), abs=1e-9)


def test_the_question_comes_back_whole(tmp_path: Path) -> None:
    asked = Question("What is 3 + 4?", "7", id="q-1", instruction="Put it in a box.")
    run = record(tmp_path / "run", [[replace(debate(v2(), ONE_VOTE, ANSWERS, "7"), question=asked)]])
    (each,) = (Run.open(run.path)).debates()
    assert isinstance(each, PlayedDebate) and each.debate.question == asked
    assert each.debate.turns == debate(v2(), ONE_VOTE, ANSWERS, "7").turns


def test_a_turn_that_was_never_graded_leaves_its_debate_without_grades() -> None:
    told = [{"answer": "1/2", "correct": True, "same": 0}, {"answer": None, "correct": False, "same": None}]
    found = grades_of({"turns": told})
    assert found is not None and found.same == (0, None)
    assert grades_of({"turns": [*told, {"answer": "1"}]}) is None


def test_answers_are_ranked_by_the_generator_stream_wherever_it_stands() -> None:
    def means(rewards: Any) -> tuple[float | None, ...]:
        scores = scores_of({"turns": [], "num_agents": 3, "rewards": rewards}, Scoring())
        assert scores is not None
        return mean_rewards(scores)

    assert means({"judge": [[1.0] * 2] * 3, "generator": [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]}) == (0.5, 1.0, 0.0)
    assert means({"step": [[1.0], [0.0], [1.0]]}) == (1.0, 0.0, 1.0)
    assert means({"generator": [[1.0], [0.0], []]}) == (1.0, 0.0, None)


def test_a_turn_that_cannot_be_read_says_nothing_about_how_votes_treat_answers(tmp_path: Path) -> None:
    # One round without votes: the two answers have advantage 0, the failed turn -1. That alone must not look like good judgement.
    run = record(tmp_path / "run", [[debate(v2(), [["", "", FAILED]], [["7", "5", None]], "7")]])
    found = rescore(run, {}).after
    assert (found.correlation, found.advantage_right, found.advantage_wrong) == (None, 0.0, 0.0)
    assert found.advantage_size == pytest.approx(1 / 3)


def test_a_run_without_a_protocol_in_its_settings_is_counted_by_its_debates(tmp_path: Path) -> None:
    protocol = v2(reward="win_minus_loss", advantage="normalize_batch")
    run = record(tmp_path / "run", many(protocol), protocol)
    (run.path / "run.json").write_text(json.dumps({"format": 1, "config": {}}))
    found = rescore(run, {})
    assert (found.before.reward, found.largest_difference, found.choices) == ("win_minus_loss", 0.0, {})


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("reward", ["generator_judge", "win_rate"])
def test_ballots_labels_and_outside_judges_come_back_as_they_counted(
    tmp_path: Path, shuffled: bool, counts: bool, reward: str
) -> None:
    protocol = v2(closing_ballot=True, shuffle_labels=shuffled, reward=reward)
    run = record(
        tmp_path / "run", [[judged(protocol, counts)]], protocol.with_choices(voters="both" if counts else "agents")
    )
    (each,) = run.debates()
    assert isinstance(each, PlayedDebate)
    given = {part.name: getattr(each.debate, part.name) for part in fields(each.debate) if part.init}
    assert Tabled(**given, scoring=each.scoring) == judged(protocol, counts)
    found = rescore(run, {})
    assert (found.largest_difference, found.changed, found.choices) == (0.0, 0, {})


def test_with_outside_judges_heard_the_winner_is_another(tmp_path: Path) -> None:
    # Among themselves 1 > 2, once. Two judges from outside say 2 > 1: then agent 2 has two votes for and one against, agent 1 the reverse.
    protocol = v2(closing_ballot=True, shuffle_labels=True)
    run = record(tmp_path / "run", [[judged(protocol, jury_counts=False)]], protocol.with_choices(voters="agents"))
    found = rescore(run, {"voters": "both"})
    assert [(change.before, change.after) for change in found.changes] == [(1, 2)]
    assert found.choices == {"voters": ("agents", "both")}
    ((_, after),) = pairs(compare(run, check(run, {"voters": "both"})))
    assert after.scores.streams["generator"].values == (
        (0.0, 0.0),
        (pytest.approx(-1 / 3), 0.0),
        (pytest.approx(1 / 3), 0.0),
    )
    # Three answers with advantages 0, -1/3, 1/3, the last one right; the three ballots are no answers.
    assert found.after.advantage_size == pytest.approx(2 / 9)
    assert (found.after.advantage_right, found.after.advantage_wrong) == (pytest.approx(1 / 3), pytest.approx(-1 / 6))
    with pytest.raises(ConfigError, match="voters must be both or agents or judges, got 'yes'"):
        rescore(run, {"voters": "yes"})


def test_a_ballot_is_no_answer_to_be_ranked_by(tmp_path: Path) -> None:
    # Agent 1's one answer won its one vote: mean reward 1, not 1/2 with the ballot's 0.
    protocol = v2(closing_ballot=True)
    (each,) = (record(tmp_path / "run", [[judged(protocol, jury_counts=False)]], protocol)).debates()
    assert isinstance(each, PlayedDebate) and each.outcome.means == (0.0, 1.0, -1.0)


def test_truth_that_faded_over_the_run_fades_again(tmp_path: Path) -> None:
    # Four iterations; linear from 0.5: 0.5, 0.375, ... The second step was written down as 0.4, because tokens set the pace there.
    settings = TrainConfig(v2(reward_mix=0.5), optim=OptimConfig(batch_size=1, num_train_datapoints=4))
    config = replace(settings, parts=("truth_schedule:schedule=linear",)).as_dict()
    run = record(tmp_path / "run", [[debate(v2(), ONE_VOTE, ANSWERS, "7")]] * 3)
    (run.path / "run.json").write_text(json.dumps({"format": 1, "config": config}))
    rows = [{"step": 2, "phase": "self_play", "recipe/reward_mix": 0.4}]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def mixes(choices: dict[str, Any]) -> list[float]:
        """The unjudged wrong answer of agent 0 gets minus the mix."""
        found = (each for each in compare(run, check(run, choices)) if isinstance(each, tuple))
        return [-after.scores.streams["generator"].values[0][0] for _, after in found]

    assert mixes({}) == pytest.approx([0.5, 0.4, 0.25])
    assert mixes({"reward_mix": 1.0}) == pytest.approx([1.0, 0.75, 0.5])
