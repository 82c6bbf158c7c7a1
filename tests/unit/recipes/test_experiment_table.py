"""The line of an arm in `recipes/experiment.py`, by hand; the whole recipe runs in the slow tests."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from moot.cli.main import main
from moot.evaluate.report import Report, ReportRow
from moot.settings.presets import PRESETS

RECIPE = Path(__file__).parents[3] / "recipes" / "experiment.py"


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return runpy.run_path(str(RECIPE))


def save(run: Path, name: str, one: tuple[float, float], most: tuple[float, float]) -> None:
    """Two questions: how often one of the answers is right, and whether most of them are."""
    shares = {
        metric: {"a": (pair[0], 1.0), "b": (pair[1], 1.0)} for metric, pair in (("avg@k", one), ("accuracy", most))
    }
    Report({}, [ReportRow("vote@8", 8, 2, 0, 10.0, {}, None, shares)], {}).save(run / "evals" / name / "report.json")


def test_an_arm_is_its_end_minus_its_start_on_the_same_questions(recipe: dict[str, Any], tmp_path: Path) -> None:
    """One answer: (0.75 + 0.75) / 2 = 75%, at the start 25%; most of the start's answers were right in 50%; there is no debate."""
    save(tmp_path, "start", (0.25, 0.25), (0.5, 0.5))
    save(tmp_path, "final", (0.75, 0.75), (1.0, 1.0))
    line = recipe["result"]({"majority": [tmp_path]}, "start", "final").splitlines()[-1]
    assert line == (
        "| majority | 1 | 75.0 [75.0, 75.0] | +50.0 [+50.0, +50.0] | +25.0 [+25.0, +25.0] "
        "| 100.0 [100.0, 100.0] | +50.0 [+50.0, +50.0] | – | – | 1 |"
    )


PLANS = sorted(file.stem for file in (RECIPE.parent / "plans").glob("*.toml"))


def test_the_arms_of_the_fourth_experiment_are_those_of_its_plan(recipe: dict[str, Any]) -> None:
    plan = recipe["Plan"].read("gsm8k")
    arms = {name: plan.arm(name)[1] for name in plan.arms}
    assert list(arms) == ["majority", "truth", "frozen", "peers", "judges", "swapped"]
    assert [arms["frozen"][len(arms["majority"]) :], arms["swapped"][len(arms["judges"]) :]] == [
        ["--with", "frozen_labels:weights=start"],
        ["--both-orders"],
    ]
    assert (plan.tokens, plan.learning_rate, plan.questions) == (2_200_000, "8e-5", 400)
    assert PRESETS["easy"].protocol.scoring.reward == "generator_judge", "what the arm peers leaves as it is"


@pytest.mark.parametrize("name", PLANS)
def test_every_arm_of_every_plan_is_understood_by_moot_train(
    recipe: dict[str, Any],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = recipe["Plan"].read(name)
    (tmp_path / "train.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "#### 2"}\n' * 40)
    task = plan.task.replace("gsm8k", "gsm8k:train=train.jsonl,test=train.jsonl")
    for arm in plan.arms:
        options = [*plan.settings.split(), "--task", task, *plan.arm(arm)[1], "--learning-rate", plan.learning_rate]
        said = main(["train", *options, "--engine", "scripted", "--dry-run", "--run", f"runs/{arm}"])
        assert said == 0, (arm, capsys.readouterr())


@pytest.mark.parametrize("name", [name for name in PLANS if name not in ("sums", "gsm8k")])
def test_a_plan_says_before_it_runs_what_counts_and_names_its_arms(recipe: dict[str, Any], name: str) -> None:
    text = (RECIPE.parent / "plans" / f"{name}.md").read_text()
    assert "Written before the runs" in text and "**Criteria.**" in text
    missing = [arm for arm in recipe["Plan"].read(name).arms if f"`{arm}`" not in text]
    assert not missing
