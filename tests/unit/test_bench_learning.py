"""The bench for learning in a short form: two seeds, both right answers, with the defaults."""

from __future__ import annotations

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


def test_the_two_arms_differ_by_credit_clip_and_warm_up_alone(bench: dict[str, Any]) -> None:
    now, before = (bench["settings"](arm, 0, 8) for arm in ("defaults", "before"))
    assert (now.protocol.scoring.reward, now.protocol.scoring.estimator) == ("truth", "center_round")
    assert (before.protocol.scoring.reward, before.protocol.scoring.estimator) == ("truth_last", "center_group")
    assert (now.optim.grad_clip, now.optim.lr_warmup, before.optim.grad_clip, before.optim.lr_warmup) == (0.0, 5, 1.0, 0)
    assert (now.debate, now.model, now.protocol.rules) == (before.debate, before.model, before.protocol.rules)
