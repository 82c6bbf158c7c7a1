"""A token for each row in two kernels: the logits are read once, and nothing as large as they are is written.

As `picking.Picker` without top-k and top-p: the draw goes through the inverse of the cumulative distribution. First
each block of the vocabulary is summed, then one program for each row finds the draw's block and the token in it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


@triton.jit
def _sum_blocks(logits, temperature, peaks, sums, best, vocab, stride, count, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    scale = tl.load(temperature + row).to(tl.float32)
    scale = tl.where(scale == 0, 1.0, scale)
    column = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + column, mask=column < vocab, other=-float("inf")) / scale
    number = tl.where(x == x, x, -float("inf"))  # what is not one shows in the sum
    peak = tl.max(number, 0)
    mass = tl.where(column < vocab, tl.exp(x - peak), 0.0)
    tl.store(peaks + row * count + block, peak)
    empty = (peak == -float("inf")) & (tl.max(((x != x) & (column < vocab)).to(tl.int32), 0) == 0)
    tl.store(sums + row * count + block, tl.where(empty, 0.0, tl.sum(mass, 0)))
    tl.store(best + row * count + block, block * BLOCK + tl.argmax(number, 0))


@triton.jit
def _choose(
    logits, temperature, draws, peaks, sums, best, tokens, logprobs, vocab, stride, count,
    COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    scale = tl.load(temperature + row).to(tl.float32)
    greedy = scale == 0
    scale = tl.where(greedy, 1.0, scale)
    index = tl.arange(0, COUNT)
    inside = index < count
    block_peaks = tl.load(peaks + row * count + index, mask=inside, other=-float("inf"))
    peak = tl.max(block_peaks, 0)
    share = tl.where(inside, tl.exp(block_peaks - peak), 0.0)
    # float64: a float32 sum over the vocabulary would lose its tail.
    mass = tl.load(sums + row * count + index, mask=inside, other=0.0).to(tl.float64) * share.to(tl.float64)
    below = tl.cumsum(mass, 0)
    total = tl.sum(mass, 0)
    target = tl.load(draws + row) * total
    block = tl.minimum(tl.sum((below <= target).to(tl.int32), 0), count - 1)
    here = tl.sum(tl.where(index == block, mass, 0.0), 0)
    into = target - tl.sum(tl.where(index == block, below - mass, 0.0), 0)
    column = tl.arange(0, BLOCK)
    where = block * BLOCK + column
    x = tl.load(logits + row.to(tl.int64) * stride + where, mask=where < vocab, other=-float("inf")) / scale
    item = tl.where(where < vocab, tl.exp(x - peak), 0.0).to(tl.float64)
    summed = tl.cumsum(item, 0)
    whole = tl.sum(item, 0)
    passed = (summed <= into / here * whole).to(tl.int32)
    # The last token of any mass, where rounding put the draw behind it.
    last = tl.max(tl.where(item > 0, column, 0), 0)
    token = block * BLOCK + tl.minimum(tl.sum(passed, 0), last)
    chosen = tl.sum(tl.where(where == token, x, 0.0), 0)
    logprob = (chosen - peak).to(tl.float64) - tl.log(total)
    first = tl.min(tl.where(inside & (block_peaks == peak), index, COUNT), 0)
    likeliest = tl.sum(tl.where(index == first, tl.load(best + row * count + index, mask=inside, other=0), 0), 0)
    token = tl.where(greedy, likeliest, token)
    token = tl.minimum(tl.maximum(token, 0), vocab - 1)
    tl.store(tokens + row, token.to(tl.int64))
    tl.store(logprobs + row, tl.where(greedy, logprob * 0, logprob))  # times 0, so that NaN stays visible


def choose(logits: Tensor, temperature: Tensor, draws: Tensor, tokens: Tensor, logprobs: Tensor) -> None:
    """logits `[B, V]` float32, temperatures (0: greedy) and draws `[B]` float64; tokens int64 and logprobs float64 are
    written in place."""
    rows, vocab = logits.shape
    count = triton.cdiv(vocab, BLOCK)
    peaks = torch.empty(rows, count, dtype=torch.float32, device=logits.device)
    sums, best = torch.empty_like(peaks), torch.empty(rows, count, dtype=torch.int32, device=logits.device)
    _sum_blocks[(rows, count)](logits, temperature, peaks, sums, best, vocab, logits.stride(0), count, BLOCK=BLOCK)
    _choose[(rows,)](
        logits, temperature, draws, peaks, sums, best, tokens, logprobs, vocab, logits.stride(0), count,
        COUNT=max(2, triton.next_power_of_2(count)), BLOCK=BLOCK,
    )  # fmt: skip
