"""What a run will cost, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from moot.rl.config import PRESETS
from moot.rl.cost import expected_tokens, memory_gib


def test_tokens_are_seats_times_rounds_times_a_turn() -> None:
    """demo: 6 questions, 3 agents, 2 rounds, turns of at most 128 tokens: 6 * 3 * 2 * 128 = 4,608 sampled."""
    tokens = expected_tokens(PRESETS["demo"])
    assert tokens["sampled"] == 4608 and tokens["trained on"] == tokens["sampled"] + tokens["read"]
    generous = replace(PRESETS["demo"], debate=replace(PRESETS["demo"].debate, max_tokens=8196))
    assert expected_tokens(generous)["sampled"] == 6 * 3 * 2 * 300


def test_memory_of_the_small_model() -> None:
    """SmolLM2: 30 layers of 576 * 576 * 2 + 576 * 192 * 2 + 3 * 576 * 1,536 and tied words of 49,152 * 576: 134,479,872 parameters
    without the norms. In two bytes each, 0.25 GiB; deterministic, in four, twice that."""
    memory = memory_gib(PRESETS["demo"])
    assert memory is not None and memory["weights"] == 134_479_872 * 2 / 2**30
    exact = memory_gib(replace(PRESETS["demo"], model=replace(PRESETS["demo"].model, deterministic=True)))
    assert exact is not None and exact["weights"] == 2 * memory["weights"]
    assert memory_gib(replace(PRESETS["demo"], model=replace(PRESETS["demo"].model, model="/no/such/folder"))) is None
