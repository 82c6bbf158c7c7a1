"""From logits to a token and its logprob, and when to stop.

Randomness is a number a request draws from its own generator for each token, put through the inverse of the cumulative distribution.
So a sample depends on its seed and its distribution, not on who shares the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from moot.engine.protocol import SamplingParams, Stop

BLOCK = 256


class Picker:
    """The sampling parameters of a batch, as tensors."""

    def __init__(self, params: Sequence[SamplingParams], vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.greedy = torch.tensor([p.temperature == 0 for p in params], device=device)
        self.any_greedy = any(p.temperature == 0 for p in params)
        self.temperature = torch.tensor([p.temperature or 1.0 for p in params], device=device)[:, None]
        self.top_k = None
        self.top_p = None
        if any(0 < p.top_k < vocab_size for p in params):
            self.top_k = torch.tensor([p.top_k if 0 < p.top_k < vocab_size else vocab_size for p in params], device=device)
        if any(p.top_p < 1 for p in params):
            self.top_p = torch.tensor([p.top_p for p in params], device=device)[:, None]

    def pick(self, logits: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """logits `[B, V]` float32 and draws `[B]` float64 in [0, 1) -> tokens `[B]`, logprobs `[B]`.

        A greedy row has one possible token, so its logprob is 0.
        """
        x = logits / self.temperature
        if self.top_k is not None or self.top_p is not None:
            x = self._filter(x)
        peak = x.amax(-1, keepdim=True)
        mass = torch.exp(x - peak)
        # Two levels, the sums in float64: one long float32 sum would lose the tail of the vocabulary.
        blocks = F.pad(mass, (0, -self.vocab_size % BLOCK)).view(len(x), -1, BLOCK)
        sums = blocks.sum(-1, dtype=torch.float32).double()
        block, fraction, total = _invert(sums, draws)
        inside = blocks.gather(1, block[:, None, None].expand(-1, 1, BLOCK)).squeeze(1).double()
        index, _, _ = _invert(inside, fraction)
        tokens = (block * BLOCK + index).clamp_max(self.vocab_size - 1)
        logprobs = (x.gather(1, tokens[:, None]) - peak).squeeze(1).double() - total.log()
        if self.any_greedy:
            tokens = torch.where(self.greedy, x.argmax(-1), tokens)
            logprobs = torch.where(self.greedy, logprobs * 0, logprobs)  # times 0, so that NaN stays visible
        return tokens, logprobs

    def _filter(self, x: Tensor) -> Tensor:
        """-inf outside top-k, then outside top-p of what is left. At least one token stays."""
        ordered, order = x.sort(-1, descending=True)
        if self.top_k is not None:
            beyond = torch.arange(x.shape[-1], device=x.device) >= self.top_k[:, None]
            ordered = ordered.masked_fill(beyond, -torch.inf)
        if self.top_p is not None:
            probabilities = ordered.softmax(-1)
            before = probabilities.double().cumsum(-1) - probabilities
            outside = (before >= self.top_p) & (self.top_p < 1)
            outside[:, 0] = False
            ordered = ordered.masked_fill(outside, -torch.inf)
        return torch.empty_like(x).scatter_(-1, order, ordered)


def _invert(mass: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first index whose cumulative mass exceeds the draw's share, how far into it the draw falls, and the total."""
    cumulative = mass.cumsum(-1)
    total = cumulative[:, -1]
    target = torch.minimum(draws * total, total * (1 - 1e-15))
    index = torch.searchsorted(cumulative, target[:, None], right=True).clamp_max(mass.shape[-1] - 1)
    here = mass.gather(1, index).squeeze(1)
    low = cumulative.gather(1, index).squeeze(1) - here
    fraction = ((target - low) / here).clamp(0.0, 1 - 1e-15)
    return index.squeeze(1), fraction, total


class StopCheck:
    """Looks at each new token once. Strings are sought in the text of the last few tokens only."""

    def __init__(self, stop: Stop, tokenizer: Any) -> None:
        self.ids = frozenset(item for item in stop if isinstance(item, int))
        self.strings = tuple(item for item in stop if isinstance(item, str))
        if self.ids and self.strings:
            raise ValueError(f"stop must be all strings or all token ids, got {stop!r}")
        if self.strings and tokenizer is None:
            raise ValueError("stop strings need a tokenizer, and this model came without one; use stop ids")
        if "" in self.strings:
            raise ValueError("a stop string must not be empty")
        self._tokenizer = tokenizer
        # A token may be a part of a character, so allow a few for each character of the longest string in bytes.
        self._window = max((len(item.encode()) for item in self.strings), default=0) + 8

    def __call__(self, tokens: Sequence[int]) -> bool:
        if tokens[-1] in self.ids:
            return True
        if not self.strings:
            return False
        text = self._tokenizer.decode(tokens[-self._window :], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return any(item in text for item in self.strings)
