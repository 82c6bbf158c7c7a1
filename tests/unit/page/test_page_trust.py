"""What the page may claim of a run's votes: counted over its last five steps, with intervals that few votes make wide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moot.debate.state import Debate
from moot.page.trust import measured
from moot.rl.trust import panel
from moot.runs import Run
from moot.tasks.answers import grade
from moot.tokens.played import PlayedDebate
from moot.util.intervals import wilson
from support.making import debate, v2

SILENT = debate(v2(), [["", "", ""]], answers=[["7", "8", "7"]], truth="7")
# Truth 7, which 0 and 2 say. Round 2: 0 says 1 > 2 (wrong over right); 1 says 0 > 2 (both right); 2 says 0 > 1 (right over wrong).
SPLIT = debate(v2(), [["", "", ""], ["1 > 2", "0 > 2", "0 > 1"]], answers=[["7", "8", "7"]] * 2, truth="7")


def judged(played: Debate) -> PlayedDebate:
    return PlayedDebate(played).scored(played.scoring, grade(played))


def run_of(path: Path, *steps: list[Debate]) -> Path:
    run = Run.create(path, {}, {})
    for step, debates in enumerate(steps, 1):
        run.write_debates(step, [judged(each) for each in debates])
    return path


def test_one_vote_of_two_is_no_more_than_guessing_however_often_the_debate_is_repeated(tmp_path: Path) -> None:
    found = measured(run_of(tmp_path / "run", [SPLIT] * 4), None)
    assert (found["steps"], found["debates"]) == ([1], 4)
    judges = found["panel"]["trust/judge_accuracy"]
    low, high = wilson(4, 8)  # debates that are all alike give a bootstrap no width, so Wilson's 4 of 8 votes decide
    assert judges == {"value": 0.5, "low": pytest.approx(low), "high": pytest.approx(high), "of": 8}
    assert low < 0.5 < high


def test_the_values_are_the_panels_own(tmp_path: Path) -> None:
    found = measured(run_of(tmp_path / "run", [SPLIT, SILENT], [SILENT, SPLIT, SPLIT]), None)["panel"]
    known = panel([judged(each) for each in (SPLIT, SILENT, SILENT, SPLIT, SPLIT)])
    wanted = {key: pytest.approx(value) for key, value in known.items() if value is not None}
    assert {key: about["value"] for key, about in found.items() if key != "trust/winner_gap"} == wanted


def test_only_the_last_five_steps_that_are_written_count(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [SPLIT], [SILENT], [SILENT], [SILENT], [SILENT], [SILENT], [SPLIT])
    assert measured(run, 6)["steps"] == [2, 3, 4, 5, 6]
    assert "trust/judge_accuracy" not in measured(run, 6)["panel"]
    assert measured(run, None)["panel"]["trust/judge_accuracy"]["of"] == 2


def test_the_winner_is_measured_against_the_agents_of_the_same_debates(tmp_path: Path) -> None:
    found = measured(run_of(tmp_path / "run", [SPLIT] * 3 + [SILENT] * 20), None)["panel"]
    # Agent 0 wins and is right in 3 of 3; 2 of its 3 agents are. The 20 debates without a winner have no part in it.
    gap = found["trust/winner_gap"]
    low, _ = wilson(3, 3)
    assert (gap["value"], gap["of"]) == (pytest.approx(1 / 3), 3)
    assert gap["low"] == pytest.approx(low - 2 / 3) and gap["low"] < 0 < gap["high"]


def test_a_mean_of_few_debates_has_no_interval_and_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [SPLIT] * 9)
    assert measured(run, None)["panel"]["trust/vote_truth_agreement"]["low"] == float("-inf")
    file = run / "debates" / "000001.jsonl"
    bad = ["{", "[]", json.dumps({"num_agents": 10**12}), json.dumps({"num_agents": 3})]
    file.write_text("\n".join([*bad, *[file.read_text().splitlines()[0]] * 10]) + "\n")
    found = measured(run, None)
    assert found["debates"] == 10 and found["panel"]["trust/vote_truth_agreement"]["low"] > -2
