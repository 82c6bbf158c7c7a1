"""Causal attention three ways: packed sequences, new tokens after cached ones, and one new token for each of many
sequences.

Keys and values are not repeated for grouped queries, but read with a stride of 0; only where a GPU pads training in
float32 are they copied.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from moot.engine.local.memory import out_of_memory, upload
from moot.engine.local.network import Attend

LITTLE_PADDING = 1.1
"""Up to here a padded batch is cheaper than anything cleverer."""
MOST_PADDING = 1.5
"""How much larger the padded batch may be than what is in it."""


def causal(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """q `[T, heads, D]` over k, v `[L, kv_heads, D]`; without a mask T equals L."""
    rows, heads, dim = q.shape
    groups = heads // k.shape[1]
    grouped = q.view(rows, k.shape[1], groups, dim).permute(1, 2, 0, 3)
    keys = k.transpose(0, 1)[:, None].expand(-1, groups, -1, -1)
    values = v.transpose(0, 1)[:, None].expand(-1, groups, -1, -1)
    out = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, is_causal=mask is None)
    return out.permute(2, 0, 1, 3).reshape(rows, heads * dim)


def packed_attention(lengths: Sequence[int], device: torch.device) -> Attend:
    """Sequences one after the other, each seeing itself alone."""
    if device.type == "cpu" or len(lengths) == 1:
        return split_attention(lengths)
    # On a GPU one product is cheaper than starting a kernel for each sequence; where it pads, nothing but attention is
    # padded.
    padding = max(lengths) * len(lengths) / sum(lengths)
    otherwise = padded_attention(lengths, device) if padding <= MOST_PADDING else split_attention(lengths)
    if padding <= LITTLE_PADDING:
        return otherwise
    ragged = ragged_attention(lengths, device)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (ragged if offers_ragged(q.device, q.dtype, q.shape[2]) else otherwise)(layer, q, k, v)

    return attend


def split_attention(lengths: Sequence[int], over: Sequence[int] = (), device: torch.device | None = None) -> Attend:
    """One sequence after the other. Where `over` says how long the sequences are, the queries are the last so many of
    each."""
    whole = list(over or lengths)
    masks = [
        _lower_right(long - new, new, device) if long > new else None for long, new in zip(whole, lengths, strict=True)
    ]

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if len(lengths) == 1:
            return causal(q, k, v, masks[0])
        parts = zip(torch.split(q, list(lengths)), torch.split(k, whole), torch.split(v, whole), masks, strict=True)
        return torch.cat([causal(*part) for part in parts])

    return attend


def ragged_attention(lengths: Sequence[int], device: torch.device, over: Sequence[int] = ()) -> Attend:
    """All sequences in one product, by torch's attention for sequences of several lengths: nothing is padded. `over` as
    above."""
    whole = over or lengths
    ends, ends_over = (upload(np.cumsum([0, *sizes]).astype(np.int32), device) for sizes in (lengths, whole))
    longest, longest_over = max(lengths), max(whole)

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        function, options, grouped = _varlen()
        if not grouped:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        out: Tensor = function(
            q.contiguous(), k.contiguous(), v.contiguous(), ends, ends_over, longest, longest_over, **options
        )
        return out.reshape(len(q), -1)

    return attend


@lru_cache
def _varlen() -> tuple[Callable[..., Any], dict[str, Any], bool]:
    """The function, what makes it causal, and whether it groups queries: each release of torch spells them anew."""
    from torch.nn.attention.varlen import varlen_attn

    names = inspect.signature(varlen_attn).parameters
    options: dict[str, Any] = {"is_causal": True} if "is_causal" in names else {"window_size": (-1, 0)}
    grouped = "enable_gqa" in names
    return varlen_attn, {**options, "enable_gqa": True} if grouped else options, grouped


@lru_cache
def offers_ragged(device: torch.device, dtype: torch.dtype, dim: int, uneven: bool = False) -> bool:
    """Whether torch's attention for several lengths runs here, forward and backward, and gives what one after the other
    gives. `uneven`:
    also where there are fewer queries than keys."""
    if dtype not in (torch.bfloat16, torch.float16):
        return False  # it is made for these alone
    lengths = (5, 130, 1)
    over = (150, 130, 40) if uneven else lengths
    made = torch.Generator().manual_seed(0)
    shapes = ((sum(sizes), heads, dim) for sizes, heads in ((lengths, 4), (over, 2), (over, 2)))
    try:
        with torch.inference_mode(False), torch.enable_grad():
            given = [torch.randn(shape, generator=made).to(device, dtype).requires_grad_() for shape in shapes]
            found = []
            for attend in (split_attention(lengths, over, device), ragged_attention(lengths, device, over)):
                out = attend(0, *given)
                found.append([out.detach(), *torch.autograd.grad(out.float().square().sum(), given)])
        return all(
            bool((ours - theirs).float().norm() <= 0.03 * theirs.float().norm())
            for theirs, ours in zip(*found, strict=True)
        )
    except Exception as error:
        if out_of_memory(error):
            raise  # says nothing about the function: the caller tries again with less
        told = str(error).split("\n", 1)[0][:300]
        warnings.warn(
            f"torch's attention for sequences of several lengths does not run, so some are padded: {told}", stacklevel=2
        )
        return False


def padded_attention(lengths: Sequence[int], device: torch.device) -> Attend:
    """The same, all sequences in one product: what fills up the shorter ones comes last, where a causal row never
    looks."""
    count, longest = len(lengths), max(lengths)
    even = count * longest == sum(lengths)
    filled = [np.arange(row * longest, row * longest + length) for row, length in enumerate(lengths)]
    at = None if even else upload(np.concatenate(filled), device)

    def spread(x: Tensor, copies: int) -> Tensor:
        wide = x if at is None else x.new_zeros(count * longest, *x.shape[1:]).index_copy(0, at, x)
        wide = wide.reshape(count, longest, *x.shape[1:]).transpose(1, 2)
        return wide if copies == 1 else wide.repeat_interleave(copies, dim=1)

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        # What groups queries by itself runs in half precision alone; the way left to float32 would hold all scores.
        copies, grouped = (groups, False) if q.dtype == torch.float32 else (1, groups > 1)
        out = F.scaled_dot_product_attention(
            spread(q, 1), spread(k, copies), spread(v, copies), is_causal=True, enable_gqa=grouped
        )
        out = out.transpose(1, 2).reshape(count * longest, -1)
        return out if at is None else out.index_select(0, at)

    return attend


@dataclass(frozen=True)
class Continuation:
    """New tokens of one sequence: `[done, done + new)`, its pages holding what came before."""

    pages: Tensor  # [n] page ids
    done: int
    new: int


def prefill_attention(keys: Sequence[Tensor], values: Sequence[Tensor], parts: Sequence[Continuation]) -> Attend:
    """Writes the new keys and values to their pages, then attends to all of them. Pages are `[P, kv_heads, page,
    D]`."""
    page, device = keys[0].shape[2], keys[0].device
    at = [torch.arange(part.done, part.done + part.new, device=device) for part in parts]
    page_ids = torch.cat([part.pages[where // page] for part, where in zip(parts, at, strict=True)])
    offsets = torch.cat(at) % page
    masks = [_lower_right(part.done, part.new, device) if part.done else None for part in parts]
    news = [part.new for part in parts]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys[layer][page_ids, :, offsets] = k
        values[layer][page_ids, :, offsets] = v
        outs = []
        rows = zip(*(torch.split(x, news) for x in (q, k, v)), strict=True)
        for part, mask, (q_part, k_part, v_part) in zip(parts, masks, rows, strict=True):
            if mask is not None:
                k_part, v_part = (_gather(store[layer], part) for store in (keys, values))
            outs.append(causal(q_part, k_part, v_part, mask))
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    return attend


def _gather(store: Tensor, part: Continuation) -> Tensor:
    rows = store[part.pages].transpose(0, 1).flatten(1, 2)  # [kv_heads, n * page, D]
    return rows[:, : part.done + part.new].transpose(0, 1)


def _lower_right(done: int, new: int, device: torch.device | None) -> Tensor:
    rows = torch.arange(done, done + new, device=device)[:, None]
    return torch.arange(done + new, device=device)[None, :] <= rows


class DecodePlan:
    """Which pages belong to which row of the batch. Made anew only when that changes; the steps in between only move
    `positions`.

    Attention runs page by page, over views of the store, and the parts are joined by their log-sum-exp. Nothing is
    copied, nor padded beyond the last page of a sequence. Neighbouring pages are run as one; a small gap of foreign
    pages is cheaper to compute and drop than to skip.
    """

    def __init__(
        self, page_lists: Sequence[Sequence[int]], page: int, device: torch.device, max_gap: int, gather: bool
    ) -> None:
        owner = {pid: row for row, pids in enumerate(page_lists) for pid in pids}
        ids = list(owner) if gather else sorted(owner)
        self.gather = torch.tensor(ids, device=device) if gather else None
        self.runs: list[tuple[int, int]] = []
        covered: list[int] = ids if gather else []
        if not gather:
            for pid in ids:
                if self.runs and pid - self.runs[-1][1] <= max_gap:
                    self.runs[-1] = (self.runs[-1][0], pid + 1)
                else:
                    self.runs.append((pid, pid + 1))
            covered = [pid for low, high in self.runs for pid in range(low, high)]
        slot = {pid: index for index, pid in enumerate(covered)}
        self.rows = torch.tensor(
            [owner.get(pid, 0) for pid in covered], device=device
        )  # what foreign pages give is never read
        most = max(len(pids) for pids in page_lists)
        table = [[slot[pid] for pid in pids] + [-1] * (most - len(pids)) for pids in page_lists]
        index = torch.tensor(table, device=device)
        self.absent = (index < 0)[:, :, None, None]
        self.index = index.clamp_min(0)
        self.last_page = torch.tensor([pids[-1] for pids in page_lists], device=device)
        self.last_slot = torch.tensor([slot[pids[-1]] for pids in page_lists], device=device)
        self.offsets = torch.arange(page, device=device)
        self.page = page

    def attend(self, keys: Sequence[Tensor], values: Sequence[Tensor], positions: Tensor) -> Attend:
        """`positions`: of each row's new token, which falls into the row's last page."""
        batch = len(positions)
        within = positions % self.page
        unused = (self.offsets > within[:, None])[:, None, None]  # [B, 1, 1, page]: the other pages of a row are full

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            store_k, store_v = keys[layer], values[layer]
            store_k[self.last_page, :, within] = k
            store_v[self.last_page, :, within] = v
            kv_heads, dim = k.shape[1], k.shape[2]
            groups = q.shape[1] // kv_heads
            q = q.reshape(batch, kv_heads, groups, dim) * dim**-0.5
            by_page = q[self.rows]
            scores = self._each_run(by_page, store_k, transpose=True).float()
            scores[self.last_slot] = scores[self.last_slot].masked_fill_(unused, -torch.inf)
            peak = scores.amax(-1, keepdim=True)
            weights = torch.exp_(scores.sub_(peak))
            total = weights.sum(-1)
            parts = self._each_run(weights.to(v.dtype), store_v, transpose=False)
            # Join the pages of each row.
            peaks = peak.squeeze(-1)[self.index].masked_fill_(self.absent, -torch.inf)  # [B, n, kv_heads, groups]
            share = torch.exp_(peaks.sub_(peaks.amax(1, keepdim=True)))
            below = (share * total[self.index]).sum(1)
            above = torch.einsum("bnhg,bnhgd->bhgd", share, parts[self.index].float())
            return (above / below[..., None]).to(v.dtype).reshape(batch, -1)

        return attend

    def _each_run(self, left: Tensor, store: Tensor, transpose: bool) -> Tensor:
        """left `[pages, kv_heads, groups, x]` times each page's keys or values."""
        chosen = [store[self.gather]] if self.gather is not None else [store[low:high] for low, high in self.runs]
        outs, at = [], 0
        for pages in chosen:
            matrix = pages.flatten(0, 1)
            part = left[at : at + len(pages)].flatten(0, 1)
            outs.append(torch.bmm(part, matrix.transpose(1, 2) if transpose else matrix))
            at += len(pages)
        joined = outs[0] if len(outs) == 1 else torch.cat(outs)
        return joined.view(left.shape[0], left.shape[1], left.shape[2], -1)
