"""How long a step is, worked by hand."""

from __future__ import annotations

import pytest

from moot.rl.config import PRESETS, OptimConfig
from moot.rl.pace import learning_rate


def test_the_rate_rises_over_the_warm_up_and_stays() -> None:
    optim = OptimConfig(learning_rate=1e-4, lr_warmup=4)
    assert [learning_rate(optim, i, 0.5) for i in (1, 2, 3, 4, 5, 100)] == pytest.approx([2.5e-5, 5e-5, 7.5e-5, 1e-4, 1e-4, 1e-4])


def test_without_a_warm_up_the_first_step_has_the_whole_rate() -> None:
    assert learning_rate(OptimConfig(learning_rate=1e-4), 1, 0.0) == 1e-4


def test_the_warm_up_multiplies_what_the_schedule_says() -> None:
    """Half way down the line, half way up the warm-up."""
    assert learning_rate(OptimConfig(learning_rate=1e-4, lr_schedule="linear", lr_warmup=10), 5, 0.5) == pytest.approx(2.5e-5)


def test_the_presets_for_models_of_a_size_warm_up_and_none_clips() -> None:
    assert {name: (preset.optim.lr_warmup, preset.optim.grad_clip) for name, preset in PRESETS.items()} == {
        "demo": (0, 0.0), "math": (5, 0.0), "easy": (5, 0.0), "hard": (5, 0.0), "v1": (0, 0.0), "aime": (5, 0.0),
    }  # fmt: skip
