"""Datums to the engine: the optimizer steps of an iteration, and what they did."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moot.engine.protocol import AdamParams, Datum, Floats, LossOutput, Trainer
from moot.rl.metrics import Metrics, optim_metrics
from moot.training.state import Progress, Stopped

MEASURED = 64
"""Datums on which a step is measured, at most: one forward pass over a part of the batch."""


async def optimise(
    engine: Trainer,
    progress: Progress,
    datums: Sequence[Datum],
    loss: str,
    rate: float,
    measured: bool = False,
    beside: Sequence[Datum] = (),
) -> Metrics:
    """One optimizer step, or none where there are no datums. Everything is enqueued before the first result is
    awaited, so the engine never waits for us.

    `measured` asks once more, after the step, for logprobs that were computed before it.
    `beside` is looked at and not learned: what was sampled and carries no gradient is part of how far trainer and
    sampler are from each other.
    """
    seeing = engine.forward(beside, loss) if beside else None
    learning = engine.forward_backward(datums, loss) if datums else None
    stepping = engine.optim_step(AdamParams(rate)) if datums else None
    looked_at = datums[:MEASURED] if measured else []
    looking = engine.forward(looked_at, loss) if looked_at else None
    learned = await learning if learning is not None else LossOutput([], 0.0)
    step = (await stepping).metrics if stepping is not None else {}
    after = (await looking).logprobs if looking is not None else []
    seen = (await seeing).logprobs if seeing is not None else []
    if datums:
        progress.skipped = progress.skipped + 1 if step.get("skipped") else 0
        if progress.skipped == 3:
            raise Stopped(
                f"three optimizer steps in a row had no finite gradient; lower learning_rate (now {rate:g}) or use fp32"
            )
    return {
        **optim_metrics([*beside, *datums], [*seen, *learned.logprobs]),
        "optim/loss": learned.loss if datums else None,
        "optim/grad_norm": step.get("grad_norm"),
        "optim/steps_skipped": float(bool(step.get("skipped"))),
        "optim/trained_tokens": float(sum(datum.mask.sum() for datum in datums)),
        **({"optim/kl_step": kl_step(looked_at, learned.logprobs[:MEASURED], after)} if measured else {}),
    }


def kl_step(datums: Sequence[Datum], before: Sequence[Floats], after: Sequence[Floats]) -> float | None:
    """Mean over action tokens of logprob before minus after: an estimate of the KL from the old policy to the new
    one."""
    gaps = [(old - new)[datum.mask > 0] for datum, old, new in zip(datums, before, after, strict=True)]
    joined = np.concatenate(gaps).astype(np.float64) if gaps else np.zeros(0)
    return float(joined.mean()) if len(joined) else None
