"""The Tinker API's losses, summed over tokens.

Each is a function of logprobs `[T]` (the trainer's, differentiable) and of what a datum says about the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from moot.engine import protocol
from moot.engine.protocol import check_loss


@dataclass(frozen=True)
class Given:
    """What the datums say of the trained tokens, `[T]` each."""

    sampler_logprobs: Tensor
    advantages: Tensor
    weights: Tensor


def cross_entropy(logprobs: Tensor, given: Given) -> Tensor:
    return -(logprobs * given.weights).sum()


def importance_sampling(logprobs: Tensor, given: Given) -> Tensor:
    return -(_ratio(logprobs, given) * given.advantages).sum()


def ppo(logprobs: Tensor, given: Given, clip_low_threshold: float, clip_high_threshold: float) -> Tensor:
    ratio = _ratio(logprobs, given)
    clipped = ratio.clamp(clip_low_threshold, clip_high_threshold)
    return -torch.minimum(ratio * given.advantages, clipped * given.advantages).sum()


def cispo(logprobs: Tensor, given: Given, clip_low_threshold: float, clip_high_threshold: float) -> Tensor:
    """The clipped ratio is a weight, not a path for the gradient: no token is silenced."""
    weight = _ratio(logprobs, given).detach().clamp(clip_low_threshold, clip_high_threshold)
    return -(weight * logprobs * given.advantages).sum()


def _ratio(logprobs: Tensor, given: Given) -> Tensor:
    return torch.exp(logprobs - given.sampler_logprobs)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": cross_entropy,
    "importance_sampling": importance_sampling,
    "ppo": ppo,
    "cispo": cispo,
}


def find_loss(name: str, config: Mapping[str, float] | None) -> Callable[[Tensor, Given], Tensor]:
    check_loss(name, config)
    return partial(LOSSES[name], **{**protocol.LOSSES[name], **(config or {})})
