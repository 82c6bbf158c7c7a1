"""Our datums to the SDK's, in such units that every server takes the same step.

The Tinker API sums the loss over tokens and datums, and so does the local engine. Some servers average instead. What an
average divides by is known before the call, so the advantages are multiplied by it, and the gradient comes out as the
sum:

    sum        nothing is divided
    datums     by the number of datums since the last step
    mean       by the datum's own length, then by the number of datums
    tokens     by the number of tokens since the last step

All losses here grow in proportion to positive factors on their advantages, clipping included. Cross-entropy has weights
instead, and a server that divides by their sum takes no notice of a factor on them; but with its clip range closed to
1, `cispo` is cross-entropy with advantages for weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from moot.engine.protocol import CLIP, Datum, Floats
from moot.errors import EngineError

CLOSED = {"clip_low_threshold": 1.0, "clip_high_threshold": 1.0}


@dataclass(frozen=True)
class Reduction:
    """How a server divides: each datum by `own`, and all by the sum of `share` since the last step."""

    own: Callable[[Datum], float]
    share: Callable[[Datum], float] | None


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(lambda d: 1.0, None),
    "datums": Reduction(lambda d: 1.0, lambda d: 1.0),
    "mean": Reduction(lambda d: float(len(d)), lambda d: 1.0),
    "tokens": Reduction(lambda d: 1.0, lambda d: float(len(d))),
}


@dataclass(frozen=True, eq=False)
class Scaled:
    """One call as it goes out: a loss, its settings, and each datum with the factor on its advantages."""

    loss: str
    config: Mapping[str, float] | None
    datums: Sequence[Datum]
    factors: Sequence[float]


@dataclass
class ScaledBatch:
    """The datums since the last optimizer step, so that a second call before it keeps the sum a sum.

    What the server divides by grows with each call, so what was sent before weighs too little by then: it is sent again
    with the difference. That costs a second pass, and happens only to callers who accumulate on a server that averages.
    """

    reduction: Reduction
    sent: list[Scaled] = field(default_factory=list)
    total: float = 0.0

    def add(self, loss: str, config: Mapping[str, float] | None, datums: Sequence[Datum]) -> list[Scaled]:
        """The calls to make, the one asked for last."""
        own, share = self.reduction.own, self.reduction.share
        if share is None:
            return [Scaled(loss, config, datums, [own(d) for d in datums])]
        resent = [(call, d) for call in self.sent for d in call.datums]
        before, self.total = self.total, self.total + sum(share(d) for _, d in resent) + sum(share(d) for d in datums)
        more = self.total - before
        calls = [replace(call, factors=[own(d) * more for d in call.datums]) for call in self.sent]
        new = Scaled(loss, config, datums, [own(d) * self.total for d in datums])
        self.sent.append(new)
        return [*calls, new]


def check_untempered(datums: Sequence[Datum]) -> None:
    for number, datum in enumerate(datums):
        if datum.temperature != 1:
            told = f"datum {number} has temperature {datum.temperature}"
            raise ValueError(f"{told}; a remote engine trains at temperature 1")


def to_wire(call: Scaled, averaged: bool) -> tuple[list[Any], str, dict[str, float] | None]:
    """The SDK's datums, loss name and settings."""
    from tinker import types

    as_cispo = call.loss == "cross_entropy" and averaged
    made = []
    for datum, factor in zip(call.datums, call.factors, strict=True):
        inputs: dict[str, Any] = {"target_tokens": types.TensorData.from_numpy(datum.targets.astype(np.int64))}
        if call.loss == "cross_entropy" and not averaged:
            inputs["weights"] = types.TensorData.from_numpy(datum.mask.astype(np.float32))
        else:
            credit = datum.mask if as_cispo else datum.advantages
            old = np.zeros(len(datum), np.float32) if as_cispo else datum.logprobs
            inputs["logprobs"] = types.TensorData.from_numpy(old.astype(np.float32))
            inputs["advantages"] = types.TensorData.from_numpy((credit * factor).astype(np.float32))
        made.append(types.Datum(model_input=types.ModelInput.from_ints(datum.tokens.tolist()), loss_fn_inputs=inputs))
    if as_cispo:
        return made, "cispo", dict(CLOSED)
    return made, call.loss, dict(call.config) if call.config else None


def from_wire(call: Scaled, outputs: Sequence[Mapping[str, Any]]) -> tuple[list[Floats], float]:
    """The logprobs of each datum, and the loss as the sum it would be: the server's own token by token where it tells,
    else by formula."""
    logprobs, loss = [], 0.0
    for datum, factor, output in zip(call.datums, call.factors, outputs, strict=True):
        if output.get("logprobs") is None:
            raise EngineError("the server returns no logprobs from training; importance weights need them")
        row = _array(output["logprobs"])
        if len(row) != len(datum):
            raise ValueError(f"the server returned {len(row)} logprobs for {len(datum)} tokens")
        logprobs.append(row)
        if (told := output.get("elementwise_loss")) is not None:
            loss += float(_array(told).sum(dtype=np.float64)) / factor
        else:
            loss += summed_loss(call.loss, call.config, datum, row)
    return logprobs, loss


def summed_loss(name: str, config: Mapping[str, float] | None, datum: Datum, logprobs: Floats) -> float:
    """The loss of one datum as the Tinker API defines it."""
    at, limits = datum.mask > 0, {**CLIP, **(config or {})}
    now, old, credit = (array[at].astype(np.float64) for array in (logprobs, datum.logprobs, datum.advantages))
    ratio = np.exp(now - old)
    clipped = ratio.clip(limits["clip_low_threshold"], limits["clip_high_threshold"])
    match name:
        case "cross_entropy":
            return -float((now * datum.mask[at]).sum())
        case "importance_sampling":
            return -float((ratio * credit).sum())
        case "ppo":
            return -float(np.minimum(ratio * credit, clipped * credit).sum())
        case _:
            return -float((clipped * now * credit).sum())


def _array(tensor: Any) -> Floats:
    """Of the SDK's TensorData, or of plain JSON."""
    data = tensor.to_numpy() if hasattr(tensor, "to_numpy") else tensor["data"]
    return np.asarray(data, dtype=np.float32).reshape(-1)
