"""Datums to the engine: the optimizer steps of an iteration, and what they did."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import numpy as np

from moot.engine.protocol import AdamParams, Datum, Floats, LossOutput, StepOutput, Trainer
from moot.rl.metrics import Metrics, optim_metrics
from moot.training.state import Progress, Stopped

MEASURED = 64
"""Datums on which a step is measured, at most: one forward pass over a part of the batch."""


async def optimise(
    engine: Trainer,
    progress: Progress,
    chunks: list[list[Datum]],
    loss: str,
    rate: float,
    measured: bool = False,
    beside: Sequence[Datum] = (),
) -> Metrics:
    """Everything is enqueued before the first result is awaited, so the engine never waits for us.

    `measured` asks once more, after all steps, for logprobs of the first chunk, which were computed before any of them.
    `beside` is looked at and not learned: what was sampled and carries no gradient is part of how far trainer and
    sampler are from each other.
    """
    adam = AdamParams(rate)
    seeing = engine.forward(beside, loss) if beside else None
    queued: list[tuple[Awaitable[LossOutput], Awaitable[StepOutput]]] = []
    for chunk in chunks:
        queued.append((engine.forward_backward(chunk, loss), engine.optim_step(adam)))
    looked_at = chunks[0][:MEASURED] if measured and chunks else []
    looking = engine.forward(looked_at, loss) if looked_at else None
    outputs = [(await losses, await steps) for losses, steps in queued]
    after = (await looking).logprobs if looking is not None else []
    seen = (await seeing).logprobs if seeing is not None else []
    for _, done in outputs:
        progress.skipped = progress.skipped + 1 if done.metrics.get("skipped") else 0
        if progress.skipped == 3:
            raise Stopped(
                f"three optimizer steps in a row had no finite gradient; lower learning_rate (now {rate:g}) or use fp32"
            )
    norms = [done.metrics["grad_norm"] for _, done in outputs if "grad_norm" in done.metrics]
    learned = [logprobs for losses, _ in outputs for logprobs in losses.logprobs]
    return {
        **optim_metrics([*beside, *(datum for chunk in chunks for datum in chunk)], [*seen, *learned]),
        "optim/loss": sum(losses.loss for losses, _ in outputs) if outputs else None,
        "optim/grad_norm": sum(norms) / len(norms) if norms else None,
        "optim/steps_skipped": float(sum(bool(done.metrics.get("skipped")) for _, done in outputs)),
        "optim/trained_tokens": float(sum(d.mask.sum() for chunk in chunks for d in chunk)),
        **(
            {"optim/kl_step": kl_step(looked_at, outputs[0][0].logprobs[:MEASURED] if outputs else [], after)}
            if measured
            else {}
        ),
    }


def kl_step(datums: Sequence[Datum], before: Sequence[Floats], after: Sequence[Floats]) -> float | None:
    """Mean over action tokens of logprob before minus after: an estimate of the KL from the old policy to the new
    one."""
    gaps = [(old - new)[datum.mask > 0] for datum, old, new in zip(datums, before, after, strict=True)]
    joined = np.concatenate(gaps).astype(np.float64) if gaps else np.zeros(0)
    return float(joined.mean()) if len(joined) else None
