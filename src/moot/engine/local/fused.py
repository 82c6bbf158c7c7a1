"""What a layer does between its products, in one kernel each, forward and backward. layer_ops.py says what they
stand for.

A program has a whole row, or a part of it where rows do not depend on themselves. Inside it everything is float32;
results are rounded once, where they are written. Norm weights are never trained here, so nothing is summed over rows.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from moot.engine.local.layer_ops import Heads, Steps

GATE_BLOCK = 1024
ADAPTED_BLOCK = 64
HEAD_BLOCK = 16
"""Columns and heads of a program."""


@triton.jit
def _add_norm(
    x, added, weight, total, normed, added_stride, eps, COLUMNS: tl.constexpr, WIDE: tl.constexpr, ADDS: tl.constexpr
):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    inside = column < COLUMNS
    value = tl.load(x + row * COLUMNS + column, mask=inside, other=0.0)
    if ADDS:
        value += tl.load(added + row * added_stride + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(total + row * COLUMNS + column, value, mask=inside)
    scale = 1 / tl.sqrt(tl.sum(value * value, 0) / COLUMNS + eps)
    result = value * scale * tl.load(weight + column, mask=inside, other=0.0)
    tl.store(normed + row * COLUMNS + column, result.to(normed.dtype.element_ty), mask=inside)


@triton.jit
def _add_norm_back(
    total, weight, of_normed, of_total, grad_x, of_added, eps,
    COLUMNS: tl.constexpr, WIDE: tl.constexpr, ADDS: tl.constexpr, GOES_ON: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    inside = column < COLUMNS
    cell = row * COLUMNS + column
    value = tl.load(total + cell, mask=inside, other=0.0)
    scale = 1 / tl.sqrt(tl.sum(value * value, 0) / COLUMNS + eps)
    grad = tl.load(of_normed + cell, mask=inside, other=0.0).to(tl.float32) * tl.load(
        weight + column, mask=inside, other=0.0
    )
    result = scale * (grad - value * (scale * scale) * (tl.sum(grad * value, 0) / COLUMNS))
    if GOES_ON:
        result += tl.load(of_total + cell, mask=inside, other=0.0)
    tl.store(grad_x + cell, result, mask=inside)
    if ADDS:
        tl.store(of_added + cell, result.to(of_added.dtype.element_ty), mask=inside)


@triton.jit
def _norms(q_norm, k_norm, head, column, inside, QUERIES: tl.constexpr, KEYS: tl.constexpr, HALF: tl.constexpr):
    """The weights of the left and the right half of each head."""
    is_query = head < QUERIES
    is_key = (head >= QUERIES) & (head < QUERIES + KEYS)
    left = tl.load(q_norm + column, mask=inside & is_query, other=0.0) + tl.load(
        k_norm + column, mask=inside & is_key, other=0.0
    )
    right = tl.load(q_norm + HALF + column, mask=inside & is_query, other=0.0)
    right += tl.load(k_norm + HALF + column, mask=inside & is_key, other=0.0)
    return left.to(tl.float32), right.to(tl.float32)


@triton.jit
def _rotate(
    qkv, q_norm, k_norm, cos, sin, q, k, v, stride, eps,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr, HALF: tl.constexpr, WIDE: tl.constexpr,
    NORMS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None], tl.arange(0, WIDE)[None, :]
    inside = column < HALF
    used = (head < QUERIES + 2 * KEYS) & inside
    is_value = head >= QUERIES + KEYS
    cell = head * (2 * HALF) + column
    left = tl.load(qkv + row * stride + cell, mask=used, other=0.0).to(tl.float32)
    right = tl.load(qkv + row * stride + cell + HALF, mask=used, other=0.0).to(tl.float32)
    c = tl.load(cos + row * HALF + column, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + row * HALF + column, mask=inside, other=0.0).to(tl.float32)
    x, y = left, right
    if NORMS:
        scale = (1 / tl.sqrt((tl.sum(left * left, 1) + tl.sum(right * right, 1)) / (2 * HALF) + eps))[:, None]
        of_left, of_right = _norms(q_norm, k_norm, head, column, inside, QUERIES, KEYS, HALF)
        x, y = left * scale * of_left, right * scale * of_right
    x, y = tl.where(is_value, left, x * c - y * s), tl.where(is_value, right, y * c + x * s)
    is_query = used & (head < QUERIES)
    at = q + row * (QUERIES * 2 * HALF) + cell
    tl.store(at, x.to(q.dtype.element_ty), mask=is_query)
    tl.store(at + HALF, y.to(q.dtype.element_ty), mask=is_query)
    is_key = used & (head >= QUERIES) & (head < QUERIES + KEYS)
    at = k + row * (KEYS * 2 * HALF) + cell - QUERIES * 2 * HALF
    tl.store(at, x.to(k.dtype.element_ty), mask=is_key)
    tl.store(at + HALF, y.to(k.dtype.element_ty), mask=is_key)
    at = v + row * (KEYS * 2 * HALF) + cell - (QUERIES + KEYS) * 2 * HALF
    tl.store(at, x.to(v.dtype.element_ty), mask=used & is_value)
    tl.store(at + HALF, y.to(v.dtype.element_ty), mask=used & is_value)


@triton.jit
def _rotate_back(
    qkv, q_norm, k_norm, cos, sin, of_q, of_k, of_v, of_qkv, stride, eps,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr, HALF: tl.constexpr, WIDE: tl.constexpr,
    NORMS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None], tl.arange(0, WIDE)[None, :]
    inside = column < HALF
    used = (head < QUERIES + 2 * KEYS) & inside
    is_query, is_value = used & (head < QUERIES), used & (head >= QUERIES + KEYS)
    is_key = used & (head >= QUERIES) & (head < QUERIES + KEYS)
    cell = head * (2 * HALF) + column
    at = of_q + row * (QUERIES * 2 * HALF) + cell
    x, y = (
        tl.load(at, mask=is_query, other=0.0).to(tl.float32),
        tl.load(at + HALF, mask=is_query, other=0.0).to(tl.float32),
    )
    at = of_k + row * (KEYS * 2 * HALF) + cell - QUERIES * 2 * HALF
    x += tl.load(at, mask=is_key, other=0.0).to(tl.float32)
    y += tl.load(at + HALF, mask=is_key, other=0.0).to(tl.float32)
    at = of_v + row * (KEYS * 2 * HALF) + cell - (QUERIES + KEYS) * 2 * HALF
    x += tl.load(at, mask=is_value, other=0.0).to(tl.float32)
    y += tl.load(at + HALF, mask=is_value, other=0.0).to(tl.float32)
    c = tl.load(cos + row * HALF + column, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + row * HALF + column, mask=inside, other=0.0).to(tl.float32)
    turned, other = x * c + y * s, y * c - x * s
    if NORMS:
        left = tl.load(qkv + row * stride + cell, mask=used, other=0.0).to(tl.float32)
        right = tl.load(qkv + row * stride + cell + HALF, mask=used, other=0.0).to(tl.float32)
        scale = (1 / tl.sqrt((tl.sum(left * left, 1) + tl.sum(right * right, 1)) / (2 * HALF) + eps))[:, None]
        of_left, of_right = _norms(q_norm, k_norm, head, column, inside, QUERIES, KEYS, HALF)
        turned, other = turned * of_left, other * of_right
        mean = ((tl.sum(turned * left, 1) + tl.sum(other * right, 1)) / (2 * HALF))[:, None] * scale * scale
        turned, other = scale * (turned - left * mean), scale * (other - right * mean)
    x, y = tl.where(is_value, x, turned), tl.where(is_value, y, other)
    at = of_qkv + row * ((QUERIES + 2 * KEYS) * 2 * HALF) + cell
    tl.store(at, x.to(of_qkv.dtype.element_ty), mask=used)
    tl.store(at + HALF, y.to(of_qkv.dtype.element_ty), mask=used)


@triton.jit
def _gate(both, out, stride, inner, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < inner
    gate = tl.load(both + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * stride + inner + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * inner + column, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate_adapted(
    both, low, wide, out, rows, stride, low_stride, inner, ranks,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, RANKS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column, rank = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :], tl.arange(0, RANKS)
    used = (row < rows) & (column < inner)
    z = tl.load(low + row * low_stride + rank[None, :], mask=(row < rows) & (rank[None, :] < ranks), other=0.0)
    there = (rank[:, None] < ranks) & (column < inner)
    at = wide + column.to(tl.int64) * ranks + rank[:, None]
    gate = tl.load(both + row * stride + column, mask=used, other=0.0).to(tl.float32)
    gate += tl.dot(z, tl.load(at, mask=there, other=0.0), input_precision=PRECISION)
    up = tl.load(both + row * stride + inner + column, mask=used, other=0.0).to(tl.float32)
    up += tl.dot(z, tl.load(at + inner.to(tl.int64) * ranks, mask=there, other=0.0), input_precision=PRECISION)
    tl.store(out + row * inner + column, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=used)


@triton.jit
def _gate_back(both, of_out, of_both, stride, inner, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < inner
    gate = tl.load(both + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * stride + inner + column, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(of_out + row * inner + column, mask=inside, other=0.0).to(tl.float32)
    open = tl.sigmoid(gate)
    at = of_both + row * (2 * inner) + column
    tl.store(at, (grad * up * open * (1 + gate * (1 - open))).to(of_both.dtype.element_ty), mask=inside)
    tl.store(at + inner, (grad * gate * open).to(of_both.dtype.element_ty), mask=inside)


def _whole_row(columns: int) -> dict[str, Any]:
    wide = triton.next_power_of_2(columns)
    return {"COLUMNS": columns, "WIDE": wide, "num_warps": 4 if wide <= 2048 else 8}


def _run_add_norm(
    x: Tensor, added: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype, in_place: bool
) -> tuple[Tensor, Tensor]:
    normed = torch.empty(x.shape, dtype=dtype, device=x.device)
    total = x if added is None or in_place else torch.empty_like(x)
    other, stride = (x, 0) if added is None else (added, added.stride(0))
    _add_norm[(len(x),)](x, other, weight, total, normed, stride, eps, ADDS=added is not None, **_whole_row(x.shape[1]))
    return total, normed


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor] | Tensor:
        total, normed = _run_add_norm(x, added, weight, eps, dtype, in_place=False)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight)
        ctx.eps, ctx.added = eps, None if added is None else added.dtype
        return normed if added is None else (total, normed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        total, weight = ctx.saved_tensors
        of_total, of_normed = grads if ctx.added is not None else (None, grads[0])
        if of_normed is None:
            return of_total, None if of_total is None or ctx.added is None else of_total.to(ctx.added), None, None, None
        grad_x = torch.empty_like(total)
        of_added = grad_x if ctx.added is None else torch.empty(total.shape, dtype=ctx.added, device=total.device)
        going_on = grad_x if of_total is None else of_total.contiguous()
        _add_norm_back[(len(total),)](
            total, weight, of_normed.contiguous(), going_on, grad_x, of_added, ctx.eps,
            ADDS=ctx.added is not None, GOES_ON=of_total is not None, **_whole_row(total.shape[1]),
        )  # fmt: skip
        return grad_x, None if ctx.added is None else of_added, None, None, None


def add_norm(x: Tensor, added: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    if not torch.is_grad_enabled():
        return _run_add_norm(x, added, weight, eps, dtype, in_place=True)
    found: Any = _AddNorm.apply(x, added, weight, eps, dtype)  # type: ignore[no-untyped-call]
    return (x, found) if added is None else found


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        row: Tensor,
        heads: Heads,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (row.new_empty(len(row), count, heads.dim) for count in (heads.queries, heads.keys, heads.keys))
        ctx.heads, ctx.eps, ctx.normed = heads, eps, q_norm is not None
        ctx.save_for_backward(*((row, q_norm, k_norm) if ctx.normed else ()), cos, sin)
        norms = (q_norm, k_norm) if ctx.normed else (row, row)
        _rotate[_grid(len(row), heads)](
            row, *norms, cos, sin, q, k, v, row.stride(0), eps, NORMS=ctx.normed, **_sizes(heads)
        )
        return q, k, v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *given, cos, sin = ctx.saved_tensors
        of_q, of_k, of_v = (grad.contiguous() for grad in grads)
        of_row = of_q.new_empty(len(of_q), (ctx.heads.queries + 2 * ctx.heads.keys) * ctx.heads.dim)
        row, q_norm, k_norm = given if ctx.normed else (of_q, of_q, of_q)
        _rotate_back[_grid(len(of_q), ctx.heads)](
            row,
            q_norm,
            k_norm,
            cos,
            sin,
            of_q,
            of_k,
            of_v,
            of_row,
            row.stride(0),
            ctx.eps,
            NORMS=ctx.normed,
            **_sizes(ctx.heads),
        )
        return of_row, None, None, None, None, None, None


def _grid(rows: int, heads: Heads) -> tuple[int, int]:
    return rows, triton.cdiv(heads.queries + 2 * heads.keys, HEAD_BLOCK)


def _sizes(heads: Heads) -> dict[str, int]:
    half = heads.dim // 2
    return {
        "QUERIES": heads.queries,
        "KEYS": heads.keys,
        "BLOCK": HEAD_BLOCK,
        "HALF": half,
        "WIDE": triton.next_power_of_2(half),
    }


def rotate(
    row: Tensor, heads: Heads, norms: tuple[Tensor, Tensor] | None, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    norm = norms or (None, None)
    q, k, v = _Rotate.apply(row, heads, *norm, cos, sin, eps)  # type: ignore[no-untyped-call]
    return q, k, v


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        inner = both.shape[1] // 2
        out = both.new_empty(len(both), inner)
        _gate[(len(both), triton.cdiv(inner, GATE_BLOCK))](both, out, both.stride(0), inner, BLOCK=GATE_BLOCK)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        inner = both.shape[1] // 2
        of_both: Tensor = both.new_empty(both.shape)
        grid = (len(both), triton.cdiv(inner, GATE_BLOCK))
        _gate_back[grid](both, grads[0].contiguous(), of_both, both.stride(0), inner, BLOCK=GATE_BLOCK)
        return of_both


def _run_gate_adapted(both: Tensor, low: Tensor, wide: Tensor) -> Tensor:
    rows, inner, ranks = len(both), both.shape[1] // 2, low.shape[1]
    out: Tensor = both.new_empty(rows, inner)
    size = min(64, max(16, triton.next_power_of_2(rows)))
    _gate_adapted[(triton.cdiv(inner, ADAPTED_BLOCK), triton.cdiv(rows, size))](
        both, low, wide, out, rows, both.stride(0), low.stride(0), inner, ranks,
        ROWS=size, BLOCK=ADAPTED_BLOCK, RANKS=max(16, triton.next_power_of_2(ranks)),
        PRECISION="ieee" if both.dtype == torch.float32 else "tf32",
    )  # fmt: skip
    return out


def gate(both: Tensor, added: tuple[Tensor, Tensor] | None = None) -> Tensor:
    if added is not None:
        return _run_gate_adapted(both, added[0], added[1].contiguous())
    result: Tensor = _Gate.apply(both)  # type: ignore[no-untyped-call]
    return result


FUSED = Steps(add_norm, rotate, gate)
