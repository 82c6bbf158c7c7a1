"""The bench for learning in a short form: two seeds, both right answers, with the defaults."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "learning.py"


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    pytest.importorskip("torch")
    return runpy.run_path(str(BENCH))


@pytest.mark.slow
def test_a_tiny_model_rises_under_truth_with_the_defaults(bench: dict[str, Any]) -> None:
    learned = bench["measure"]("defaults", [0, 1], 8)
    assert [each.rose for each in learned] == [True, True], learned


@pytest.mark.slow
def test_a_model_that_takes_no_steps_does_not_rise(bench: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench can fail: a rise is not the luck of two answers."""
    monkeypatch.setitem(bench["settings"].__globals__, "RATE", 0.0)
    learned = bench["measure"]("defaults", [0], 4)
    assert [each.rose for each in learned] == [False], learned


def test_the_two_arms_differ_by_credit_and_warm_up_alone(bench: dict[str, Any]) -> None:
    now, before = (bench["settings"](arm, 0, 8) for arm in ("defaults", "before"))
    assert (now.protocol.scoring.reward, now.protocol.scoring.estimator) == ("truth", "center_round")
    assert (before.protocol.scoring.reward, before.protocol.scoring.estimator) == ("truth_last", "center_group")
    assert (now.parts, before.parts) == (("lr_schedule:warmup=5",), ())
    assert (now.debate, now.model, now.protocol.rules) == (before.debate, before.model, before.protocol.rules)


@pytest.mark.slow
def test_the_bench_of_credit_starts_all_arms_alike(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    bench = runpy.run_path(str(BENCH.with_name("credit.py")))
    bench["start"].__globals__["PLANTING"] = 40
    assert bench["main"](["--seeds", "1", "--iterations", "4", "--json"]) == 0
    arms = {name: row for name, (row,) in json.loads(capsys.readouterr().out.splitlines()[-1]).items()}
    assert set(arms) == {"generator", "judge", "nobody"}
    assert len({tuple(row[:3]) for row in arms.values()}) == 1, (
        "the first iteration is the planted model's, whoever pays"
    )
    assert arms["judge"][2] > 0.5, "its turns can be read"
    assert len({tuple(row[3:]) for row in arms.values()}) == 3, "then they part"
