"""Sequences that begin alike, computed once.

The turns of a debate in layout shared have the transcript in common. Packed as a tree, each token is run once for all
sequences that agree up to it, and what differs attends to the common beginning and to itself. Sorted, a sequence shares
most with the one placed before it; so a tree is no more than that order and a number for each sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moot.engine.local.attention import offers_ragged, ragged_attention, split_attention
from moot.engine.local.memory import upload
from moot.engine.local.network import Attend
from moot.engine.local.pages import common_prefix
from moot.engine.protocol import Ints

LEAST_SHARED = 64
"""Tokens. Less is not worth a tree."""
LEAST_PART = 4
"""One in so many of a sequence's tokens must be shared: for a system text before long turns the plain way is as
good."""


@dataclass(frozen=True)
class Forest:
    """Where the tokens of some sequences stand when what they share stands once."""

    order: list[int]
    """In which the sequences are placed."""
    shared: list[int]
    """By sequence: its first tokens that stand already where the one placed before it has them."""
    rows: list[NDArray[np.int64]]
    """By sequence: the row of each of its tokens."""

    @property
    def own(self) -> list[int]:
        """The new tokens of each, in the order of placing."""
        return [len(self.rows[i]) - self.shared[i] for i in self.order]


def placed(sequences: Sequence[Ints], share: bool = True) -> tuple[list[int], list[int]]:
    """An order of the sequences, and how much each shares with the one before it. Where none shares anything, the order
    is theirs."""
    shared = [0] * len(sequences)
    order = sorted(range(len(sequences)), key=lambda i: sequences[i].astype(">i4").tobytes()) if share else []
    for before, here in pairwise(order):
        # At least one token is a sequence's own: a row without queries is trouble in every kernel.
        count = min(common_prefix(sequences[before], sequences[here]), len(sequences[here]) - 1)
        shared[here] = count if count >= max(LEAST_SHARED, len(sequences[here]) // LEAST_PART) else 0
    return (order if any(shared) else list(range(len(sequences)))), shared


def plant(sequences: Sequence[Ints], share: bool = True) -> Forest:
    order, shared = placed(sequences, share)
    rows: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(sequences)
    count, before = 0, rows[0] if rows else np.zeros(0, np.int64)
    for i in order:
        new = len(sequences[i]) - shared[i]
        before = rows[i] = np.concatenate([before[: shared[i]], np.arange(count, count + new)])
        count += new
    return Forest(order, shared, rows)


def pieces(sequences: Sequence[Ints], budget: int, share: bool = True) -> tuple[list[list[int]], list[int]]:
    """Sequences that share, together as far as the budget of tokens allows; and the tokens that each piece computes. A
    sequence that takes most of the budget may be joined by half a budget of others: alone, each of them would have to
    run its beginning again."""
    order, shared = placed(sequences, share)
    found: list[list[int]] = []
    costs: list[int] = []
    for i in order:
        new = len(sequences[i]) - shared[i]
        if shared[i] and costs[-1] + new <= max(budget, max(len(sequences[j]) for j in (*found[-1], i)) + budget // 2):
            found[-1].append(i)
            costs[-1] += new
        else:
            found.append([i])
            costs.append(len(sequences[i]))
    by_first = sorted(range(len(found)), key=lambda at: min(found[at]))
    return [found[at] for at in by_first], [costs[at] for at in by_first]


def tree_attention(forest: Forest, device: torch.device) -> Attend:
    """Each sequence's own tokens over all of its tokens. Keys and values of what is shared are copied to all who read
    them."""
    own, whole = forest.own, [len(forest.rows[i]) for i in forest.order]
    rows = upload(np.concatenate([forest.rows[i] for i in forest.order]), device)
    split, ragged = split_attention(own, whole, device), ragged_attention(own, device, whole)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        in_one = device.type != "cpu" and offers_ragged(q.device, q.dtype, q.shape[2], uneven=True)
        return (ragged if in_one else split)(layer, q, _copied(k, rows), _copied(v, rows))

    return attend


def _copied(x: Tensor, rows: Tensor) -> Tensor:
    result: Tensor = _Copied.apply(x, rows)  # type: ignore[no-untyped-call]
    return result


class _Copied(torch.autograd.Function):
    """Rows of a tensor. The gradients of a row's copies are summed in float32: there may be hundreds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.count = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        wide = torch.promote_types(grads[0].dtype, torch.float32)
        total = torch.zeros(ctx.count, *grads[0].shape[1:], dtype=wide, device=grads[0].device)
        return total.index_add_(0, rows, grads[0].to(wide)).to(grads[0].dtype), None
