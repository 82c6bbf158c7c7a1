"""The example of two-sided questions is what its script makes, and a run and an evaluation go through on it."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from moot.cli.evaluate import Eval
from moot.cli.main import main
from moot.errors import ConfigError
from moot.evaluate import Report
from moot.runs import Run
from moot.settings.presets import PRESETS
from moot.tasks import load
from moot.tools.rescore import rescore

ROOT = Path(__file__).parents[3]
FILE = ROOT / "recipes" / "two_sided.jsonl"


def test_the_file_is_what_the_script_makes() -> None:
    loader = SourceFileLoader("two_sided_questions", str(ROOT / "recipes" / "two_sided.py"))
    spec = spec_from_loader("two_sided_questions", loader)
    assert spec is not None
    made = module_from_spec(spec)
    loader.exec_module(made)
    rows = [json.loads(line) for line in FILE.read_text().splitlines()]
    assert rows == list(made.rows()) and len({row["question"] for row in rows}) == 60
    first = sum(row["sides"][0] == row["answer"] for row in rows)
    assert 20 <= first <= 40, "the order in the file does not tell which side is right"


def test_twelve_are_held_out_and_both_seats_have_the_right_side_in_half() -> None:
    task = load(str(FILE))
    assert [question.sides.index(question.answer or "") for question in task.held_out] == [0, 1] * 6


def test_a_run_and_its_three_accuracies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scripted = ["--engine", "scripted", "--task", str(FILE)]
    options = ["--batch-size", "4", "--num-train-datapoints", "8", "--eval-questions", "4", "--run", "run"]
    assert main(["train", "--preset", "advocates", *scripted, *options]) == 0
    run = Run.open(tmp_path / "run")
    debates = list(run.debates())
    assert len(debates) == 8
    for each in debates:
        debate = each.debate  # type: ignore[union-attr]
        assert (debate.num_agents, len(debate.turns), len(debate.jury)) == (2, 4, 1)
    rescored = rescore(run, {})
    assert (rescored.before, rescored.changed, rescored.largest_difference) == (rescored.after, 0, 0.0)
    for choices in ({"reward": "truth"}, {"reward_mix": 0.5}, {"voters": "agents"}, {"lambda_judge": 2.0}):
        with pytest.raises(ConfigError, match=r"positions assigned|voters must be judges or both"):
            rescore(run, choices)
    held_out = [row for row in run.metrics() if row["phase"] == "eval"]
    assert {f"test_two_sided/{name}" for name in ("correct", "consultancy/accuracy", "judge/accuracy")} <= set(
        held_out[-1]
    )
    assert (
        main(
            [
                "eval",
                "run",
                "--modes",
                "debate",
                "consultancy",
                "judge",
                "direct",
                "--questions",
                "6",
                "--out",
                "measured",
            ]
        )
        == 0
    )
    report = Report.read(tmp_path / "measured" / "report.json")
    assert [(row.name, row.k, row.questions) for row in report.rows] == [
        ("debate", 2, 6),
        ("consultancy", 2, 6),
        ("judge", 1, 6),
        ("direct", 1, 6),
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--num-agents", "3"], "num_agents must be 2 with positions assigned, got 3"),
        (["--judge", ""], "needs a judge without a seat whose vote counts; use --judge base"),
        (
            ["--judge", "base", "--with", "renewed_judge"],
            "renewed_judge is an outside judge itself, got --judge base too",
        ),
        (["--reward", "truth"], "reward must be win_rate, win_minus_loss, generator_judge or path.py:function"),
        (["--voters", "agents"], "voters must be judges or both, got agents"),
        (["--warm-questions", "4"], "warm_questions must be left out with positions assigned"),
        (
            ["--with", "rounds_as_needed:stop_when_settled=yes"],
            "rounds_as_needed must be left out with positions assigned",
        ),
        # What would pass and have no effect, because advocates do not vote.
        (
            ["--visible", "solution", "comparison"],
            "visible must be solution with positions assigned, got solution comparison: an advocate",
        ),
        (["--visible", "evaluation"], "visible must be solution with positions assigned, got evaluation"),
        (
            ["--judge-consensus", "leave_one_out"],
            "judge_consensus must be left out with positions assigned, got leave_one_out: it is about",
        ),
        (["--no-enable-format-penalty"], "enable_format_penalty must be left out with positions assigned, got false"),
        (["--lambda-judge", "2"], "lambda_judge must be left out with positions assigned, got 2.0"),
        (["--evaluation-credit", "judge"], "evaluation_credit must be left out with positions assigned, got judge"),
        # Because they give no answers of their own.
        (
            ["--with", "truth_schedule"],
            "truth_schedule must be left out with positions assigned: no reward of advocates",
        ),
        (["--with", "hard_agents"], "hard_agents must be left out with positions assigned"),
        (["--with", "easy_agents"], "easy_agents must be left out with positions assigned"),
        (
            ["--with", "curriculum:tasks=arithmetic+gsm8k"],
            "promote_at must be a number of steps with positions assigned, got 0.7",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--preset", "advocates", "--engine", "scripted", *options]) != 0
    assert says in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "options",
    [
        ["--visible", "solution"],
        ["--voters", "judges"],
        ["--reward", "generator_judge", "--lambda-gen", "2"],
        ["--with", "curriculum:tasks=arithmetic+gsm8k,promote_at=3"],
    ],
)
def test_settings_that_have_an_effect_or_say_what_is_so_are_taken(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--engine", "scripted", "--task", str(FILE), "--dry-run"]
    assert main(["train", "--preset", "advocates", *words, *options]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("preset", "protocol", "agents"), [("demo", "advocates", "2"), ("aime", "advocates", "2"), ("advocates", "v2", "3")]
)
def test_a_protocol_brings_the_number_of_agents_that_it_needs(
    preset: str, protocol: str, agents: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--engine", "scripted", "--task", str(FILE), "--dry-run"]
    assert main(["train", "--preset", preset, "--protocol", protocol, *words]) == 0
    assert f"{agents} agents" in capsys.readouterr().out


def test_a_plain_model_is_judged_in_both_orders_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "eval",
        "--engine",
        "scripted",
        "--protocol",
        "advocates",
        "--task",
        str(FILE),
        "--questions",
        "4",
        "--modes",
        "debate",
    ]
    for name, options in {"once": [], "twice": ["--both-orders"]}.items():
        assert main([*words, "--out", name, *options]) == 0
        report = Report.read(tmp_path / name / "report.json")
        assert report.settings["protocol"].get("both_orders", False) == (name == "twice")
        assert (report.trust["trust/order_flips"] is not None) == (name == "twice")


def test_both_orders_needs_a_judge(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--engine", "scripted", "--both-orders", "--questions", "2"]) == 2
    assert (
        "both_orders is about the judge of advocates, and here there is none; use --protocol advocates"
        in capsys.readouterr().err
    )


def test_a_run_whose_rounds_went_by_agreement_is_measured_as_advocates_without_that() -> None:
    trained = PRESETS["demo"]
    trained = replace(trained, parts=("rounds_as_needed:extra_rounds=2,stop_when_settled=yes",))
    settings = Eval(protocol="advocates", modes=("debate",))._settings(trained, trained=True)
    assert (settings.num_agents, settings.extra_rounds, settings.stop_when_settled) == (2, 0, False)
    same = Eval(modes=("debate",))._settings(trained, trained=True)
    assert (same.num_agents, same.extra_rounds, same.stop_when_settled) == (4, 2, True)
