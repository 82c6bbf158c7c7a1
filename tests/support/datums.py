"""Datums to train on: with the numbers a test names, or drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from moot.engine.protocol import Datum, Sample


def datum(
    mask: Sequence[float] | Any,
    tokens: Sequence[int] | Any = None,
    targets: Sequence[int] | Any = None,
    logprobs: Sequence[float] | float | Any = 0.0,
    advantages: Sequence[float] | float | Any = 0.0,
    temperature: float = 1.0,
) -> Datum:
    """What is left out is 0; one number stands for the same at every action token."""
    masked = np.asarray(mask, np.float32)

    def ints(values: Any) -> Any:
        return np.zeros(len(masked), np.int32) if values is None else np.asarray(values, np.int32)

    def floats(values: Any) -> Any:
        return np.asarray(values, np.float32) if np.ndim(values) else np.float32(values) * masked

    return Datum(ints(tokens), ints(targets), floats(logprobs), floats(advantages), masked, temperature)


def sampled_datum(prompt: Sequence[int], sample: Sample, advantage: float = 1.0, temperature: float = 1.0) -> Datum:
    """Of a prompt and its answer, shifted by one: the last prompt token predicts the first sampled one."""
    tokens = np.concatenate([np.array(prompt, np.int32), sample.tokens])
    before = np.zeros(len(prompt) - 1, np.float32)
    mask = np.concatenate([before, np.ones(len(sample.tokens), np.float32)])
    return datum(mask, tokens[:-1], tokens[1:], np.concatenate([before, sample.logprobs]), advantage, temperature)


def random_datum(seed: int, length: int = 9, start: int = 3, lowest: float = 4.0) -> Datum:
    """Tokens below 64; from place `start` on they are actions, with logprobs under `-lowest` and advantages around 0."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 64, length + 1)
    mask = np.arange(length) >= start
    old, credit = rng.normal(size=(2, length)) * mask
    return datum(mask, tokens[:-1], tokens[1:], -lowest - np.abs(old), credit)
