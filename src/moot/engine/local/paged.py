"""One new token of each sequence over its cached ones, in one kernel: a program for each row and key-value head walks its pages."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


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
