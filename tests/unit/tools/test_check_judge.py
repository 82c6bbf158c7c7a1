"""`moot check` asks the judge that the same options would train with, and `moot judge` says how to train with the best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moot.cli import judge as judge_command
from moot.cli.judge import beats_a_coin, options
from moot.cli.main import main
from moot.debate.checks import Check
from moot.debate.play import Speak
from moot.engine.protocol import SamplingParams
from moot.judges.asking import Asked
from moot.judges.measures import Judged, measure
from moot.settings.presets import PRESETS
from moot.tools import check_judge
from moot.tools.judge import TrialConfig, TrialRow, Way

TASK = "sevens.py"
SEVENS = '''
from dataclasses import replace
from moot.tasks import load

def task(seed=0, held_out=0):
    """The script answers 7 most often, so that is what is right."""
    given = load("arithmetic", seed, held_out)
    right = [replace(question, answer="7") for question in given.held_out]
    return replace(given, train=lambda i: replace(given.train(i), answer="7"), held_out=right)
'''


class Planted:
    """Approves the answer 7, or every other."""

    def __init__(self, right: bool | None) -> None:
        self.right, self.asked = right, list[Asked]()

    async def check(self, asked: Asked, params: SamplingParams) -> Check:
        self.asked.append(asked)
        value = 0.5 if self.right is None else 0.9 if ("{7}" in asked.answers[0]) == self.right else 0.2
        return Check(value, "Hm.", 7)

    def speaker(self, params: SamplingParams, limits: Mapping[str, int]) -> Speak:
        raise AssertionError("nobody asks for lines")


@pytest.fixture
def sevens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path(TASK).write_text(SEVENS)
    return f"{TASK}:task"


@pytest.mark.parametrize(("right", "says"), [(True, "go"), (False, "no-go"), (None, "caution")])
def test_check_says_whether_the_judge_is_worth_listening_to(
    right: bool | None, says: str, sevens: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A judge that never tells is right in half of the pairs: with few questions the interval has 0.65 inside it."""
    planted = Planted(right)
    monkeypatch.setattr(check_judge, "judge_of", lambda guest: planted)
    count = "60" if right is not None else "3"
    typed = (
        "--task",
        sevens,
        "--reward",
        "approval:checks=2",
        "--max-rounds",
        "1",
        "--max-tokens",
        "400",
        "--num-agents",
        "4",
    )
    status = main(["check", "--engine", "scripted", *typed, "--questions", count, "--json"])
    told = {each["check"]: each for each in json.loads(capsys.readouterr().out)["checks"]}
    found = told["judge base, approval ×2, solution"]
    assert found["says"] == says and found["above"] == 0.65
    assert found["measured"]["value"] == {True: 1.0, False: 0.0, None: 0.5}[right]
    assert {"judge accuracy", "valid comparisons"}.isdisjoint(told), "nothing is said of agents' votes"
    assert status == 1 or says != "no-go"
    assert {(asked.ballot, asked.show) for asked in planted.asked} == {("approval", "solution")}
    before = len(planted.asked)
    main(["check", "--engine", "scripted", *typed, "--questions", count, "--json"])
    assert len(planted.asked) == before > 0, "nothing is asked twice"


def test_the_way_is_that_of_training() -> None:
    config = PRESETS["demo"]
    pairs = config.under(config.protocol.with_choices({"reward": "pairs:opponents=3,show=answer"}))
    way, trial = check_judge.way_of(pairs)
    assert (way.judge, way.ballot, way.show, trial.opponents) == ("base", "pairs", "answer", 3)
    assert trial.max_tokens == pairs.debate.evaluation_tokens


@pytest.mark.parametrize(
    ("reward", "judge", "parts", "asked"),
    [
        (
            "majority",
            "m@http://h/v1",
            ("judge_filter:checks=3,show=answer",),
            ("m@http://h/v1", "approval", "answer", 3),
        ),
        ("majority", "", ("judge_training", "judge_filter:checks=3"), ("base", "approval", "solution", 3)),
        ("generator_judge", "", ("renewed_judge",), ("base", "lines", "solution", 1)),
        ("approved:checks=2", "", ("judge_training",), ("base", "approval", "solution", 2)),
        ("generator_judge", "", (), ("", "lines", "solution", 1)),
    ],
)
def test_a_part_may_bring_the_judge_or_ask_it_otherwise(
    reward: str, judge: str, parts: tuple[str, ...], asked: tuple[Any, ...]
) -> None:
    config = PRESETS["demo"]
    config = replace(config, parts=parts, recipe=replace(config.recipe, judge=judge))
    config = replace(config, protocol=config.protocol.with_choices({"reward": reward}))
    way, trial = check_judge.way_of(config)
    assert (way.judge, way.ballot, way.show, *trial.checks) == asked and check_judge.judge_named(config) == way.judge


@pytest.mark.parametrize(
    ("way", "checks", "told"),
    [
        (Way("RUN@best"), 8, "--reward approval:checks=8 --judge RUN@best"),
        (Way("base", "approval", "answer"), 4, "--reward approval:checks=4,show=answer --judge base"),
        (Way("m@http://h/v1", "pairs"), 1, "--reward pairs --judge m@http://h/v1"),
        (Way("base", "lines"), 1, "--judge base --voters judges"),
        (Way("base", "lines", "answer"), 1, ""),  # in training, lines are about whole solutions
        (
            Way("base", texts="my texts/a.toml"),
            1,
            "--reward approval:checks=1 --judge base --prompts 'my texts/a.toml'",
        ),
    ],
)
def test_the_options_for_training_are_those_of_the_best_way(way: Way, checks: int, told: str) -> None:
    right, wrong = (Judged((True, False), scores, (1, 1), False) for scores in ((0.9, 0.1), (0.1, 0.9)))
    assert options([TrialRow(way, checks, measure([right] * 20))]) == told
    assert beats_a_coin([TrialRow(way, checks, measure([right] * 20))])
    assert not beats_a_coin([TrialRow(way, checks, measure([right, wrong] * 10))])
    assert options([TrialRow(way, checks, measure([]))]) == "" == options([])


def test_the_answers_of_a_run_are_those_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("--num-train-datapoints", "4", "--batch-size", "4", "--eval-every", "0", "--warm-questions", "0")
    asked = ("--engine", "scripted", "--task", "countdown", "--max-tokens", "400", "--reward", "majority")
    assert main(["train", *asked, *few, "--run", "run"]) in (0, 1)
    judged = ["judge", "--engine", "scripted", "--answers", "run", "--checks", "1", "--json"]
    capsys.readouterr()
    assert main(judged) in (0, 1) and json.loads(capsys.readouterr().out)["task"] == "countdown"
    assert main([*judged, "--task", "arithmetic"]) == 2, "whose answers are keys, and these questions have none"


def test_the_options_for_training_ask_as_was_measured() -> None:
    """What training does anyway is left out: 2 opponents, 256 tokens, temperature 1."""
    config = TrialConfig(opponents=3, max_tokens=999, temperature=0.7)
    asked = "--evaluation-tokens 999 --temperature 0.7"
    right = measure([Judged((True, False), (0.9, 0.1), (1, 1), False)] * 20)

    def told(way: Way, checks: int = 1) -> str:
        return options([TrialRow(way, checks, right)], config)

    assert told(Way("base", "pairs")) == f"--reward pairs:opponents=3 --judge base {asked}"
    assert told(Way("base"), 4) == f"--reward approval:checks=4 --judge base {asked}"
    assert told(Way("base", "lines", texts="a.toml")) == f"--judge base --voters judges --prompts a.toml {asked}"


def test_the_judge_that_a_run_trained_is_the_one_of_its_evaluations_and_checks(
    sevens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--num-train-datapoints", "4", "--batch-size", "4", "--eval-every", "0", "--warm-questions", "0")
    typed = ("--engine", "scripted", "--task", sevens, "--max-tokens", "400", "--max-rounds", "1", "--run", "run")
    judged = ("--reward", "approval:checks=1,show=answer")
    part = ("--with", "judge_training:steps=1,exercises=4,checks=1,held_out=4")
    assert main(["train", *typed, *few, *judged, *part]) in (0, 1)
    again = ("run", "--questions", "4", "--trust-run", "--out", "out")
    assert main(["eval", *again, "--modes", "debate"]) == 0
    asked = [json.loads(line) for line in Path("out/answers.jsonl").read_text().splitlines()]
    (judge,) = [row["means"]["judge"] for row in asked if row.get("means", {}).get("kind") == "debate"]
    assert " judge 1 " in judge, "and not the model before training"
    capsys.readouterr()
    main(["check", *again, "--json"])
    names = [each["check"] for each in json.loads(capsys.readouterr().out)["checks"]]
    assert "judge run@judge, approval ×1, answer" in names


def test_a_runs_debates_are_answers(
    sevens: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few: tuple[Any, ...] = (
        "--num-train-datapoints",
        "8",
        "--batch-size",
        "4",
        "--eval-every",
        "0",
        "--warm-questions",
        "0",
    )
    typed = ("--task", sevens, "--max-tokens", "400", "--run", "run")
    assert main(["train", "--engine", "scripted", *typed, *few]) in (0, 1)
    judged = ("judge", "--engine", "scripted", "--task", sevens, "--answers", "run", "--checks", "2", "--json")
    capsys.readouterr()
    assert main(["judge", "--engine", "scripted", "--answers", "run"]) == 2
    assert "run names code as its task (sevens.py:task)" in capsys.readouterr().err
    assert main(list(judged)) == 0
    out = capsys.readouterr().out
    (row,) = json.loads(out)["rows"]
    assert row["pairs"] > 0 and json.loads(out)["options"] == "--reward approval:checks=2 --judge base"
    # The script is no better than a coin, and is not recommended; a judge that knows is.
    judged = judged[:-1]
    assert main(list(judged)) == 0 and "Train with it" not in capsys.readouterr().out
    monkeypatch.setattr(judge_command, "judge_of", lambda guest: Planted(True))
    assert main([*judged, "--out", "knows"]) == 0
    last = " ".join(capsys.readouterr().out.rpartition("Train with it:")[2].split())
    assert last == f"moot train --task {sevens} --engine scripted --reward approval:checks=2 --judge base"
