"""Datums to the engine: the penalty for leaving the base model, the optimizer steps, and what they did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace

import numpy as np

from moot.engine.protocol import AdamParams, Datum, LossOutput, StepOutput
from moot.rl.loop import Loop, Stopped
from moot.rl.metrics import Metrics, optim_metrics
from moot.rl.pace import MEASURED, kl_step


def in_chunks(all_datums: list[Datum], count: int) -> list[list[Datum]]:
    size = -(-len(all_datums) // count) if all_datums else 0
    return [all_datums[i : i + size] for i in range(0, len(all_datums), size)] if size else []


async def optimise(loop: Loop, chunks: list[list[Datum]], loss: str, rate: float, measured: bool = False) -> Metrics:
    """Everything is enqueued before the first result is awaited, so the engine never waits for us.

    `measured` asks once more, after all steps, for logprobs of the first chunk, which were computed before any of them.
    """
    adam = AdamParams(rate, weight_decay=loop.config.optim.weight_decay, grad_clip_norm=loop.config.optim.grad_clip)
    queued: list[tuple[Awaitable[LossOutput], Awaitable[StepOutput]]] = []
    for chunk in chunks:
        queued.append((loop.engine.forward_backward(chunk, loss), loop.engine.optim_step(adam)))
    looked_at = chunks[0][:MEASURED] if measured and chunks else []
    looking = loop.engine.forward(looked_at, loss) if looked_at else None
    outputs = [(await losses, await steps) for losses, steps in queued]
    after = (await looking).logprobs if looking is not None else []
    for _, done in outputs:
        loop.skipped = loop.skipped + 1 if done.metrics.get("skipped") else 0
        if loop.skipped == 3:
            raise Stopped(f"three optimizer steps in a row had no finite gradient; lower learning_rate (now {rate:g}) or use fp32")
    norms = [done.metrics["grad_norm"] for _, done in outputs if "grad_norm" in done.metrics]
    return {
        **optim_metrics([d for chunk in chunks for d in chunk], [lp for losses, _ in outputs for lp in losses.logprobs]),
        "optim/loss": sum(losses.loss for losses, _ in outputs) if outputs else None,
        "optim/grad_norm": sum(norms) / len(norms) if norms else None,
        "optim/steps_skipped": float(sum(bool(done.metrics.get("skipped")) for _, done in outputs)),
        "optim/trained_tokens": float(sum(d.mask.sum() for chunk in chunks for d in chunk)),
        **({"optim/kl_step": kl_step(looked_at, outputs[0][0].logprobs[:MEASURED] if outputs else [], after)} if measured else {}),
    }


@dataclass(frozen=True)
class Penalised:
    datums: list[Datum]
    metrics: Metrics


async def penalise_distance(loop: Loop, given: list[Datum]) -> Penalised:
    """Moves each token's advantage by how much likelier the policy makes it than the base model does, minus the batch's mean."""
    coefficient = loop.config.optim.kl_coef
    if not coefficient or not given:
        return Penalised(given, {})
    base = await loop.engine.base()
    base_logprobs = await asyncio.gather(*(base.compute_logprobs(np.append(d.tokens, d.targets[-1]), d.temperature) for d in given))
    gaps = [(d.logprobs - logprobs[1:]) * d.mask for d, logprobs in zip(given, base_logprobs, strict=True)]
    mean = float(sum(gap.sum() for gap in gaps) / max(1.0, sum(d.mask.sum() for d in given)))
    moved = [
        replace(d, advantages=(d.advantages + coefficient * (mean - gap) * d.mask).astype(np.float32))
        for d, gap in zip(given, gaps, strict=True)
    ]
    return Penalised(moved, {"optim/kl_policy_base": mean})
