"""From logits to a token and its logprob, and when to stop.

Randomness is a number a request draws from its own generator for each token, put through the inverse of the cumulative
distribution.
So a sample depends on its seed and its distribution, not on who shares the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from moot.engine.local.memory import upload
from moot.engine.protocol import SamplingParams, Stop

BLOCK = 256


class Picker:
    """The sampling parameters of a batch, as tensors."""

    def __init__(self, params: Sequence[SamplingParams], vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.greedy = upload(np.array([p.temperature == 0 for p in params]), device)
        self.any_greedy = any(p.temperature == 0 for p in params)
        self.temperature = upload(np.array([p.temperature or 1.0 for p in params], np.float32), device)[:, None]
        self.top_k = None
        self.top_p = None
        if any(0 < p.top_k < vocab_size for p in params):
            self.top_k = upload(np.array([p.top_k if 0 < p.top_k < vocab_size else vocab_size for p in params]), device)
        if any(p.top_p < 1 for p in params):
            self.top_p = upload(np.array([p.top_p for p in params], np.float32), device)[:, None]

    def pick(self, logits: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """logits `[B, V]` float32 and draws `[B]` float64 in [0, 1) -> tokens `[B]`, logprobs `[B]`.

        A greedy row has one possible token, so its logprob is 0.
        """
        x = logits / self.temperature
        if self.top_k is not None or self.top_p is not None:
            x = self._filter(x)
        tokens, logprobs = _pick(x, draws)
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


def pick(logits: Tensor, temperature: Tensor, draws: Tensor, tokens: Tensor, logprobs: Tensor) -> None:
    """As `choosing.choose`, where its kernels do not run: a temperature of 0 is greedy, and the results are written in
    place."""
    greedy = temperature == 0
    x = logits / torch.where(greedy, 1.0, temperature).float()[:, None]
    drawn, found = _pick(x, draws)
    tokens.copy_(torch.where(greedy, x.argmax(-1), drawn))
    logprobs.copy_(torch.where(greedy, found * 0, found))


def _pick(x: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """From tempered logits."""
    vocab_size = x.shape[1]
    peak = x.amax(-1, keepdim=True)
    mass = torch.exp(x - peak)
    # Two levels, the sums in float64: one long float32 sum would lose the tail of the vocabulary.
    blocks = F.pad(mass, (0, -vocab_size % BLOCK)).view(len(x), -1, BLOCK)
    sums = blocks.sum(-1, dtype=torch.float32).double()
    block, fraction, total = _invert(sums, draws)
    inside = blocks.gather(1, block[:, None, None].expand(-1, 1, BLOCK)).squeeze(1).double()
    index, _, _ = _invert(inside, fraction)
    tokens = (block * BLOCK + index).clamp_max(vocab_size - 1)
    return tokens, (x.gather(1, tokens[:, None]) - peak).squeeze(1).double() - total.log()


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
    """Looks at each new token once. Strings are sought in the text of the last few tokens only, and only where a token
    may end one."""

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
        ends = {item[-1] for item in self.strings}
        self._ends = ends if all(end.isascii() and end.isprintable() and end != " " for end in ends) else None
        """What the token that completes a string must contain; None where a token alone does not show it: part of a
        character, say."""
        self._completes: dict[int, bool] = {}

    def __call__(self, tokens: Sequence[int]) -> bool:
        if tokens[-1] in self.ids:
            return True
        if not self.strings or not self._may_complete(tokens[-1]):
            return False
        text = self._decode(tokens[-self._window :])
        return any(item in text for item in self.strings)

    def _may_complete(self, token: int) -> bool:
        """Decoding takes longer than anything else a step does for a row, and few tokens hold the character that
        matters."""
        if self._ends is None:
            return True
        known = self._completes.get(token)
        if known is None:
            text = self._decode([token])
            known = self._completes[token] = any(end in text for end in self._ends)
        return known

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))
