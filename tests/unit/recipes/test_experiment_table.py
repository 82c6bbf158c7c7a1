"""The line of an arm in `recipes/experiment.py`, by hand; the whole recipe runs in the slow tests."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

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
        "| 100.0 [100.0, 100.0] | +50.0 [+50.0, +50.0] | – | – |"
    )


def test_the_arms_of_the_fourth_experiment_are_those_of_its_plan(recipe: dict[str, Any]) -> None:
    plan = recipe["PLANS"]["gsm8k"]
    arms = {name: own.split() for name, (_, own) in plan.arms.items()}
    assert list(arms) == ["majority", "truth", "frozen", "peers", "judges", "swapped"]
    assert [arms["frozen"][len(arms["majority"]) :], arms["swapped"][len(arms["judges"]) :]] == [
        ["--with", "frozen_labels:weights=start"],
        ["--both-orders"],
    ]
    assert (plan.tokens, plan.learning_rate, plan.questions) == (2_200_000, "8e-5", 400)
    assert PRESETS["easy"].protocol.scoring.reward == "generator_judge", "what the arm peers leaves as it is"
