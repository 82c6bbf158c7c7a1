"""The Tinker API's losses, summed over tokens.

Each is a function of logprobs `[T]` (the trainer's, differentiable) and of what a datum says about the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


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


def ppo(logprobs: Tensor, given: Given, clip_low_threshold: float = 0.8, clip_high_threshold: float = 1.2) -> Tensor:
    ratio = _ratio(logprobs, given)
    clipped = ratio.clamp(clip_low_threshold, clip_high_threshold)
    return -torch.minimum(ratio * given.advantages, clipped * given.advantages).sum()


def cispo(logprobs: Tensor, given: Given, clip_low_threshold: float = 0.8, clip_high_threshold: float = 1.2) -> Tensor:
    """The clipped ratio is a weight, not a path for the gradient: no token is silenced."""
    weight = _ratio(logprobs, given).detach().clamp(clip_low_threshold, clip_high_threshold)
    return -(weight * logprobs * given.advantages).sum()


def _ratio(logprobs: Tensor, given: Given) -> Tensor:
    return torch.exp(logprobs - given.sampler_logprobs)


CLIP = ("clip_low_threshold", "clip_high_threshold")
LOSSES: dict[str, tuple[Callable[..., Tensor], tuple[str, ...]]] = {
    "cross_entropy": (cross_entropy, ()),
    "importance_sampling": (importance_sampling, ()),
    "ppo": (ppo, CLIP),
    "cispo": (cispo, CLIP),
}
"""Name -> function, and the keys its configuration may have."""


def find_loss(name: str, config: Mapping[str, float] | None) -> Callable[[Tensor, Given], Tensor]:
    """Raises ValueError for what it does not know: a loss is never replaced by another."""
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; this engine has {', '.join(LOSSES)}")
    function, keys = LOSSES[name]
    settings = dict(config or {})
    if unknown := set(settings) - set(keys):
        raise ValueError(f"loss {name!r} has no setting {sorted(unknown)}; it has {list(keys) or 'none'}")
    return lambda logprobs, given: function(logprobs, given, **settings)
