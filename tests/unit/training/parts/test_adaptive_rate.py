"""How long a step is, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from moot.engine.protocol import Datum
from moot.settings.presets import PRESETS
from moot.training.optimise import kl_step
from moot.training.parts import find_part
from moot.training.parts.adaptive_rate import LOWEST, AdaptiveRate


def at(schedule: str, iteration: int, done: float) -> float:
    return find_part(schedule).rate(1e-4, iteration, done)


def test_the_rate_rises_over_the_warm_up_and_stays() -> None:
    assert [at("lr_schedule:warmup=4", i, 0.5) for i in (1, 2, 3, 4, 5, 100)] == pytest.approx(
        [2.5e-5, 5e-5, 7.5e-5, 1e-4, 1e-4, 1e-4]
    )


def test_without_a_warm_up_the_first_step_has_the_whole_rate() -> None:
    assert at("lr_schedule", 1, 0.0) == 1e-4


def test_the_warm_up_multiplies_what_the_schedule_says() -> None:
    """Half way down the line and half way up the warm-up."""
    assert at("lr_schedule:shape=linear,warmup=10", 5, 0.5) == pytest.approx(2.5e-5)


def test_the_presets_for_models_of_a_size_warm_up() -> None:
    warm = {
        name: [part for part in preset.parts if part.startswith("lr_schedule:warmup=")]
        for name, preset in PRESETS.items()
    }
    assert {name for name, found in warm.items() if not found} == {"demo", "v1"}


def test_a_long_step_halves_the_rate_and_short_ones_bring_it_back_slowly() -> None:
    """Target 0.01: 0.015 is not yet too long, 0.0151 is; 0.005 is not yet short, 0.0049 is."""
    pace = AdaptiveRate()
    for kl, factor in (
        (0.015, 1.0),
        (0.0151, 0.5),
        (0.02, 0.25),
        (0.005, 0.25),
        (0.0049, 0.275),
        (-0.001, 0.3025),
        (-0.02, 0.15125),
    ):
        pace.update(kl)
        assert pace.factor == pytest.approx(factor), kl


def test_the_rate_never_exceeds_the_configured_one_and_never_falls_to_nothing() -> None:
    pace = AdaptiveRate()
    pace.factor = 0.95
    pace.update(0.0)
    assert pace.factor == 1.0
    for _ in range(20):
        pace.update(1.0)
    assert pace.factor == LOWEST


def test_without_a_step_nothing_changes_and_a_factor_of_one_half_halves_the_rate() -> None:
    pace = AdaptiveRate()
    pace.factor = 0.5
    pace.update(None)
    assert pace.factor == 0.5 and pace.rate(2.5e-5, 1, 0.0) == 1.25e-5


def datum(mask: list[float]) -> Datum:
    count, nothing = len(mask), np.zeros(len(mask), dtype=np.float32)
    return Datum(
        np.zeros(count, dtype=np.int32),
        np.zeros(count, dtype=np.int32),
        nothing,
        nothing,
        np.array(mask, dtype=np.float32),
    )


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_the_length_of_a_step_is_a_mean_over_action_tokens() -> None:
    """Two datums with one and two action tokens: gaps 0.5; 0.25 and -0.75; the mean is 0. What the mask hides does not count."""
    datums = [datum([0, 1]), datum([1, 1, 0])]
    before = [floats(-9, -1.0), floats(-1.0, -2.0, -9)]
    after = [floats(0, -1.5), floats(-1.25, -1.25, 0)]
    assert kl_step(datums, before, after) == pytest.approx(0.0)
    assert kl_step(datums[:1], before[:1], after[:1]) == pytest.approx(0.5)
    assert kl_step(datums[1:], before[1:], after[1:]) == pytest.approx(-0.25)


def test_a_step_on_nothing_has_no_length() -> None:
    assert kl_step([], [], []) is None
    assert kl_step([datum([0, 0])], [floats(0, 0)], [floats(0, 0)]) is None
