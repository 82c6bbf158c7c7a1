"""What a layer does between its products: norms, rotary positions and the gate.

Here they are a few torch calls each. On a GPU that is dozens of small kernels for each layer, so `fused.py` has one
kernel for each of
them, forward and backward. The sampler and the trainer always use the same, so that they round alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from moot.engine.local.memory import out_of_memory
from moot.engine.protocol import in_words


@dataclass(frozen=True)
class Heads:
    """Which part of a row `[(queries + 2 * keys) * dim]` is what."""

    queries: int
    keys: int
    dim: int


@dataclass(frozen=True)
class Steps:
    add_norm: Callable[[Tensor, Tensor | None, Tensor, float, torch.dtype], tuple[Tensor, Tensor]]
    """(x `[T, H]` float32, what is added to it, weight, eps, dtype) -> (the sum, the sum normed in that dtype). Without
    gradients the sum may stand where x stood."""
    rotate: Callable[
        [Tensor, Heads, tuple[Tensor, Tensor] | None, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]
    ]
    """(`[T, row]`, heads, norms of queries and keys, cosines, sines, eps) -> q, k, v, `[T, heads, dim]` each"""
    gate: Callable[[Tensor, tuple[Tensor, Tensor] | None], Tensor]
    """(`[T, 2 * inner]`, gate and up; what an adapter still adds to them, `[T, ranks]` times `[2 * inner, ranks]`,
    where no gradient is wanted) -> `[T, inner]`. Gate and up may be overwritten where something is added."""


def add_norm(x: Tensor, added: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x = x if added is None else x + added
    return x, F.rms_norm(x, weight.shape, weight, eps).to(dtype)


def rotate(
    row: Tensor, heads: Heads, norms: tuple[Tensor, Tensor] | None, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    qk, v = torch.split(row.view(len(row), -1, heads.dim), [heads.queries + heads.keys, heads.keys], dim=1)
    if norms is not None:
        q, k = torch.split(qk, [heads.queries, heads.keys], dim=1)
        qk = torch.cat([F.rms_norm(x, norm.shape, norm, eps) for x, norm in ((q, norms[0]), (k, norms[1]))], dim=1)
    left, right = qk.chunk(2, dim=-1)
    qk = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
    q, k = torch.split(qk, [heads.queries, heads.keys], dim=1)
    return q, k, v


class _Gate(torch.autograd.Function):
    """Keeps its input alone: the gate's silu is made again for the backward pass."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        gate, up = both.chunk(2, dim=-1)
        return torch.cat([torch.ops.aten.silu_backward(grads[0] * up, gate), grads[0] * F.silu(gate)], dim=-1)


def gate(both: Tensor, added: tuple[Tensor, Tensor] | None = None) -> Tensor:
    if added is not None:
        both = both.addmm_(added[0], added[1].t())
    result: Tensor = _Gate.apply(both)  # type: ignore[no-untyped-call]
    return result


PLAIN = Steps(add_norm, rotate, gate)


@lru_cache
def steps_for(device: torch.device, dtype: torch.dtype, heads: Heads, norms: bool) -> Steps:
    """The kernels of our own where they run and give what the plain way gives, forward and backward."""
    if device.type != "cuda":
        return PLAIN
    try:
        from moot.engine.local.fused import FUSED  # needs triton, which torch brings along only where there is a GPU

        with torch.inference_mode(False), torch.enable_grad():
            theirs, ours = (tried(steps, device, dtype, heads, norms) for steps in (PLAIN, FUSED))
        bound = 1e-4 if dtype == torch.float32 else 0.03
        wrong = [name for name in theirs if not _near(ours[name], theirs[name], bound)]
        if not wrong:
            return FUSED
        told = f"they give another {', '.join(wrong)}"
    except Exception as error:
        if out_of_memory(error):
            raise  # says nothing about the kernels: the caller tries again
        told = in_words(error)
    warnings.warn(f"our kernels between products do not run, so a layer is slower: {told}", stacklevel=2)
    return PLAIN


def tried(steps: Steps, device: torch.device, dtype: torch.dtype, heads: Heads, norms: bool) -> dict[str, Tensor]:
    """Everything that comes out on a few random rows: results and gradients."""
    made = torch.Generator().manual_seed(0)

    def random(*shape: int, kind: torch.dtype = dtype) -> Tensor:
        return torch.randn(shape, generator=made).to(device, kind)

    rows, width, row, eps = 3, 40, (heads.queries + 2 * heads.keys) * heads.dim, 1e-6
    x, added, weight = random(rows, width, kind=torch.float32), random(rows, width), random(width, kind=torch.float32)
    qkv, both = random(rows, row), random(rows, 2 * width)
    pair = (random(heads.dim), random(heads.dim)) if norms else None
    cos, sin = random(rows, 1, heads.dim // 2), random(rows, 1, heads.dim // 2)
    given = [item.requires_grad_() for item in (x, added, qkv, both)]
    out = {"first norm": steps.add_norm(x, None, weight, eps, dtype)[1]}
    out["sum"], out["norm"] = steps.add_norm(x, added, weight, eps, dtype)
    out["queries"], out["keys"], out["values"] = steps.rotate(qkv, heads, pair, cos, sin, eps)
    out["gate"] = steps.gate(both, None)
    total = sum((item * random(*item.shape, kind=item.dtype)).float().sum() for item in out.values())
    with torch.no_grad():
        low, wide = random(rows, 6), random(2 * width, 6)
        out["gate with adapter"] = steps.gate(both.detach().clone(), (low, wide))
    names = (
        "gradient of x",
        "gradient of what is added",
        "gradient of queries, keys and values",
        "gradient of gate and up",
    )
    found = torch.autograd.grad(total, given)  # type: ignore[arg-type]
    return {**{name: item.detach() for name, item in out.items()}, **dict(zip(names, found, strict=True))}


def _near(ours: Tensor, theirs: Tensor, bound: float) -> bool:
    return ours.shape == theirs.shape and bool((ours - theirs).float().norm() <= bound * theirs.float().norm())
