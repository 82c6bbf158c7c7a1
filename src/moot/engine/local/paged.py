"""Attention over pages, in one kernel each: one new token of each sequence, or many new tokens of each.

For one token, a program for each row and key-value head walks the row's pages; where rows are few, several programs
share the walk, and a second kernel joins what they found. For many, a program for each block of new tokens and each
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

PROGRAMS = 512
"""As many keep a GPU busy while they wait for memory; with fewer rows than that a row is split."""
MOST_SPLITS = 4


@triton.jit
def _attend(
    q, keys, values, table, positions, out, peaks, totals, scale, q_stride, table_stride,
    HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    position = tl.load(positions + row).to(tl.int32)
    group, column, offset = tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, BLOCK)
    used = (group[:, None] < GROUP) & (column[None, :] < DIM)
    within = (head * GROUP + group[:, None]) * DIM + column[None, :]
    query = tl.load(q + row.to(tl.int64) * q_stride + within, mask=used, other=0.0)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    above = tl.zeros([ROWS, WIDE], tl.float32)
    blocks = position // BLOCK + 1
    for block in range(part * blocks // SPLITS, (part + 1) * blocks // SPLITS):
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
    if SPLITS == 1:
        above = above / total[:, None]
    else:
        cell = ((row * SPLITS + part) * HEADS + head) * GROUP + group
        tl.store(peaks + cell, peak, mask=group < GROUP)
        tl.store(totals + cell, total, mask=group < GROUP)
    tl.store(
        out + (row * SPLITS + part).to(tl.int64) * HEADS * GROUP * DIM + within,
        above.to(out.dtype.element_ty),
        mask=used,
    )


@triton.jit
def _join(parts, peaks, totals, out, HEADS: tl.constexpr, SPLITS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr):
    """`HEADS`: of queries. A part that saw nothing has a peak of -inf and counts for nothing."""
    row, head = tl.program_id(0), tl.program_id(1)
    part, column = tl.arange(0, SPLITS), tl.arange(0, WIDE)
    cell = (row * SPLITS + part) * HEADS + head
    peak = tl.load(peaks + cell)
    share = tl.exp(peak - tl.max(peak, 0))
    total = tl.sum(share * tl.load(totals + cell), 0)
    inside = column < DIM
    item = tl.load(parts + cell[:, None].to(tl.int64) * DIM + column[None, :], mask=inside[None, :], other=0.0)
    result = tl.sum(item * share[:, None], 0) / total
    tl.store(out + (row.to(tl.int64) * HEADS + head) * DIM + column, result.to(out.dtype.element_ty), mask=inside)


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
    tl.store(
        out + token[:, None] * HEADS * GROUP * DIM + query_head * DIM + column[None, :],
        result.to(out.dtype.element_ty),
        mask=used,
    )


@triton.jit
def _write(
    k, v, keys, values, page_ids, offsets, k_stride, v_stride,
    HEADS: tl.constexpr, ALL: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, column = tl.arange(0, ALL)[:, None], tl.arange(0, WIDE)[None, :]
    used = (head < HEADS) & (column < DIM)
    cell = ((tl.load(page_ids + row) * HEADS + head) * PAGE + tl.load(offsets + row)) * DIM + column
    within = head * DIM + column
    tl.store(keys + cell, tl.load(k + row * k_stride + within, mask=used, other=0.0), mask=used)
    tl.store(values + cell, tl.load(v + row * v_stride + within, mask=used, other=0.0), mask=used)


def write_pages(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, page_ids: Tensor, offsets: Tensor) -> None:
    """k, v `[T, kv_heads, D]` to where each token stands: a page and a place in it, int64."""
    heads, page, dim = keys.shape[1:]
    _write[(len(k),)](
        k, v, keys, values, page_ids, offsets, k.stride(0), v.stride(0),
        HEADS=heads, ALL=triton.next_power_of_2(heads), DIM=dim, WIDE=triton.next_power_of_2(dim), PAGE=page,
    )  # fmt: skip


@dataclass(frozen=True)
class Pass:
    """New tokens of several sequences, packed one after the other: where each sequence's begin, and how many it had
    before."""

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
        owner = np.repeat(np.arange(len(parts)), [len(item) for item in starts]).astype(np.int32)
        at = np.concatenate([np.arange(before, before + count) for before, count in zip(done, new, strict=True)])
        page_ids = table[np.repeat(np.arange(len(parts)), new), at // page].astype(np.int64)
        first = (np.cumsum(new) - new).astype(np.int32)
        arrays = (table, first, done, new, owner, np.concatenate(starts), page_ids, at % page)
        return Pass(*(upload(array, device) for array in arrays))


def block_rows(dtype: torch.dtype) -> int:
    return 32 if dtype == torch.float32 else 64


def paged_prefill(keys: Sequence[Tensor], values: Sequence[Tensor], plan: Pass) -> Attend:
    """Writes the new keys and values to their pages, then attends to all of them, as `attention.prefill_attention`
    does."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        write_pages(k, v, keys[layer], values[layer], plan.page_ids, plan.offsets)
        tokens, heads, dim = q.shape
        kv_heads, page = keys[layer].shape[1], keys[layer].shape[2]
        out = torch.empty(tokens, heads * dim, dtype=q.dtype, device=q.device)
        exact = q.dtype == torch.float32
        _attend_many[(len(plan.block_start), heads)](
            q, keys[layer], values[layer], plan.table, plan.block_sequence, plan.block_start, plan.first, plan.done,
            plan.new, out,
            dim**-0.5, q.stride(0), plan.table.stride(0),
            HEADS=kv_heads, GROUP=heads // kv_heads, ROWS=block_rows(q.dtype), DIM=dim, WIDE=max(16,
            triton.next_power_of_2(dim)),
            PAGE=page, BLOCK=min(page, 32 if exact else 64), PRECISION="ieee" if exact else "tf32", num_stages=2,
        )  # fmt: skip
        return out

    return attend


def paged_attention(q: Tensor, keys: Tensor, values: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """q `[B, heads, D]` over pages `[P, kv_heads, page, D]`; `table` `[B, n]` names each row's pages, `positions` its
    newest token.

    Returns `[B, heads * D]`.
    """
    rows, heads, dim = q.shape
    kv_heads, page = keys.shape[1], keys.shape[2]
    out = torch.empty(rows, heads * dim, dtype=q.dtype, device=q.device)
    exact, splits, wide = q.dtype == torch.float32, _splits(rows * kv_heads), max(16, triton.next_power_of_2(dim))
    found, peaks, totals = out, out, out
    if splits > 1:
        found = torch.empty(rows, splits, heads, dim, dtype=torch.float32, device=q.device)
        peaks, totals = torch.empty(2, rows, splits, heads, dtype=torch.float32, device=q.device)
    _attend[(rows, kv_heads, splits)](
        q, keys, values, table, positions, found, peaks, totals, dim**-0.5, q.stride(0), table.stride(0),
        HEADS=kv_heads, GROUP=heads // kv_heads, ROWS=max(16, triton.next_power_of_2(heads // kv_heads)),
        DIM=dim, WIDE=wide, PAGE=page, BLOCK=min(page, 32 if exact else 64), SPLITS=splits,
        PRECISION="ieee" if exact else "tf32",
        num_warps=2 if rows * kv_heads >= 2 * PROGRAMS else 4,
    )  # fmt: skip
    if splits > 1:
        _join[(rows, heads)](found, peaks, totals, out, HEADS=heads, SPLITS=splits, DIM=dim, WIDE=wide, num_warps=1)
    return out


def _splits(programs: int) -> int:
    """A power of 2."""
    return min(MOST_SPLITS, int(triton.next_power_of_2(max(1, PROGRAMS // programs))))
