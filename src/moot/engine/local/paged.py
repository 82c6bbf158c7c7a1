"""Attention over pages, in one kernel each: one new token of each sequence, or many new tokens of each.

For one token, a program for each row and key-value head walks the row's pages. For many, a program for each block of new tokens and each
head does; the new tokens' own keys and values are in the pages by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from moot.engine.local.memory import upload
from moot.engine.local.network import Attend


@triton.jit
def _attend(
    q, keys, values, table, positions, out, scale, q_stride, table_stride,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + row).to(tl.int32)
    group, column, offset = tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, BLOCK)
    used = (group[:, None] < GROUP) & (column[None, :] < DIM)
    within = (head * GROUP + group[:, None]) * DIM + column[None, :]
    query = tl.load(q + row.to(tl.int64) * q_stride + within, mask=used, other=0.0)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    above = tl.zeros([ROWS, WIDE], tl.float32)
    for block in range(position // BLOCK + 1):
        start = block * BLOCK
        page = tl.load(table + row.to(tl.int64) * table_stride + start // PAGE).to(tl.int64)
        seen = start + offset <= position
        cell = (page * HEADS + head) * PAGE * DIM + (start % PAGE + offset[:, None]) * DIM + column[None, :]
        mask = seen[:, None] & (column[None, :] < DIM)
        k = tl.load(keys + cell, mask=mask, other=0.0)
        v = tl.load(values + cell, mask=mask, other=0.0)
        scores = tl.dot(query, tl.trans(k), input_precision=PRECISION) * scale
        scores = tl.where(seen[None, :], scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        shrink = tl.exp(peak - higher)
        weights = tl.exp(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, 1)
        above = above * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        peak = higher
    result = above / total[:, None]
    tl.store(out + row.to(tl.int64) * HEADS * GROUP * DIM + within, result.to(out.dtype.element_ty), mask=used)


@triton.jit
def _attend_many(
    q, keys, values, table, block_sequence, block_start, first, done, new, out, scale, q_stride, table_stride,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    program, query_head = tl.program_id(0), tl.program_id(1)
    head = query_head // GROUP
    sequence = tl.load(block_sequence + program)
    start = tl.load(block_start + program)
    before, count = tl.load(done + sequence), tl.load(new + sequence)
    row, column, offset = start + tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, BLOCK)
    used = (row[:, None] < count) & (column[None, :] < DIM)
    token = (tl.load(first + sequence) + row).to(tl.int64)
    query = tl.load(q + token[:, None] * q_stride + query_head * DIM + column[None, :], mask=used, other=0.0)
    position = before + row
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    above = tl.zeros([ROWS, WIDE], tl.float32)
    end = before + tl.minimum(start + ROWS, count)
    for block in range((end + BLOCK - 1) // BLOCK):
        at = block * BLOCK
        page = tl.load(table + sequence.to(tl.int64) * table_stride + at // PAGE).to(tl.int64)
        here = at + offset
        cell = (page * HEADS + head) * PAGE * DIM + (at % PAGE + offset[:, None]) * DIM + column[None, :]
        mask = (here[:, None] < end) & (column[None, :] < DIM)
        k = tl.load(keys + cell, mask=mask, other=0.0)
        v = tl.load(values + cell, mask=mask, other=0.0)
        scores = tl.dot(query, tl.trans(k), input_precision=PRECISION) * scale
        scores = tl.where(here[None, :] <= position[:, None], scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        shrink = tl.exp(peak - higher)
        weights = tl.exp(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, 1)
        above = above * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        peak = higher
    result = above / total[:, None]
    tl.store(out + token[:, None] * HEADS * GROUP * DIM + query_head * DIM + column[None, :], result.to(out.dtype.element_ty), mask=used)


@dataclass(frozen=True)
class Pass:
    """New tokens of several sequences, packed one after the other: where each sequence's begin, and how many it had before."""

    table: Tensor  # [sequences, n] page ids
    first: Tensor  # [sequences] where its new tokens begin in the pass
    done: Tensor
    new: Tensor
    block_sequence: Tensor  # [programs]
    block_start: Tensor
    page_ids: Tensor  # [tokens]
    offsets: Tensor

    @staticmethod
    def of(parts: Sequence[tuple[Sequence[int], int, int]], page: int, block: int, device: torch.device) -> Pass:
        """`parts`: of each sequence its pages, how many tokens they hold already, and how many are new."""
        done, new = (np.array([part[at] for part in parts], np.int32) for at in (1, 2))
        table = np.zeros((len(parts), max(len(pages) for pages, _, _ in parts)), np.int32)
        for row, (pages, _, _) in zip(table, parts, strict=True):
            row[: len(pages)] = pages
        starts = [np.arange(0, count, block, dtype=np.int32) for count in new]
        owner = np.repeat(np.arange(len(parts)), [len(each) for each in starts]).astype(np.int32)
        at = np.concatenate([np.arange(before, before + count) for before, count in zip(done, new, strict=True)])
        page_ids = table[np.repeat(np.arange(len(parts)), new), at // page].astype(np.int64)
        first = (np.cumsum(new) - new).astype(np.int32)
        arrays = (table, first, done, new, owner, np.concatenate(starts), page_ids, at % page)
        return Pass(*(upload(array, device) for array in arrays))


def block_rows(dtype: torch.dtype) -> int:
    return 32 if dtype == torch.float32 else 64


def paged_prefill(keys: Sequence[Tensor], values: Sequence[Tensor], plan: Pass) -> Attend:
    """Writes the new keys and values to their pages, then attends to all of them, as `attention.prefill_attention` does."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys[layer][plan.page_ids, :, plan.offsets] = k
        values[layer][plan.page_ids, :, plan.offsets] = v
        tokens, heads, dim = q.shape
        kv_heads, page = keys[layer].shape[1], keys[layer].shape[2]
        out = torch.empty(tokens, heads * dim, dtype=q.dtype, device=q.device)
        exact = q.dtype == torch.float32
        _attend_many[(len(plan.block_start), heads)](
            q, keys[layer], values[layer], plan.table, plan.block_sequence, plan.block_start, plan.first, plan.done, plan.new, out,
            dim**-0.5, q.stride(0), plan.table.stride(0),
            HEADS=kv_heads, GROUP=heads // kv_heads, ROWS=block_rows(q.dtype), DIM=dim, WIDE=max(16, triton.next_power_of_2(dim)),
            PAGE=page, BLOCK=min(page, 32 if exact else 64), PRECISION="ieee" if exact else "tf32",
        )  # fmt: skip
        return out

    return attend


def paged_attention(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """q `[B, heads, D]` over pages `[P, kv_heads, page, D]`; `table` `[B, n]` names each row's pages, `positions` its newest token.

    Returns `[B, heads * D]`.
    """
    rows, heads, dim = q.shape
    kv_heads, page = keys.shape[1], keys.shape[2]
    out = torch.empty(rows, heads * dim, dtype=q.dtype, device=q.device)
    exact = q.dtype == torch.float32
    _attend[(rows, kv_heads)](
        q, keys, values, table, positions, out, dim**-0.5, q.stride(0), table.stride(0),
        HEADS=kv_heads, GROUP=heads // kv_heads, ROWS=max(16, triton.next_power_of_2(heads // kv_heads)),
        DIM=dim, WIDE=max(16, triton.next_power_of_2(dim)), PAGE=page, BLOCK=min(page, 32 if exact else 64),
        PRECISION="ieee" if exact else "tf32",
    )  # fmt: skip
    return out
