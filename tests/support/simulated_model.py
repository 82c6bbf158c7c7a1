"""The model of the simulated server: a table whose row for a token holds the logits of the next one. Gradients can be written down."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Manners:
    vocabulary: int = 64
    reduction: str = "sum"
    frozen_samplers: bool = True
    numbered: bool = False
    """A request whose seq_id was seen is answered as it was, and not done again."""
    tells_norm: bool = True
    tells_context: bool = True
    logprobs: bool = True
    losses: tuple[str, ...] = ("cross_entropy", "importance_sampling", "ppo", "cispo")
    stops: tuple[str, ...] = ("strings", "ids")
    latency_s: float = 0.0
    protobuf: bool = False
    """False answers protobuf with 500, as servers do that have never heard of it."""
    canned: tuple[tuple[int, ...], ...] = ()
    """Turns to say instead of sampling, for measuring a client."""


@dataclass
class Model:
    trained: np.ndarray
    first: np.ndarray
    second: np.ndarray
    steps: int = 0
    gradient: np.ndarray | None = None
    divisor: float = 0.0
    loaded: str = ""


class Failed(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Table:
    """The fixed part of the logits; the trained part is each model's own, and starts at 0."""

    def __init__(self, manners: Manners) -> None:
        self.manners = manners
        self.fixed = np.random.default_rng(0).normal(size=(manners.vocabulary,) * 2).astype(np.float64)

    def rows(self, trained: np.ndarray, tokens: list[int]) -> np.ndarray:
        logits = self.fixed[tokens] + trained[tokens]
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def model_pass(self, body: dict[str, Any], model: Model, backward: bool) -> dict[str, Any]:
        loss, config = (
            body["loss_fn"],
            {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2, **(body.get("loss_fn_config") or {})},
        )
        if loss not in self.manners.losses:
            raise Failed(422, f"loss {loss} is not one of {self.manners.losses}")
        outputs = []
        for datum in body["data"]:
            tokens = [t % self.manners.vocabulary for chunk in datum["model_input"]["chunks"] for t in chunk["tokens"]]
            inputs = {
                name: np.asarray(value["data"], dtype=np.float64) for name, value in datum["loss_fn_inputs"].items()
            }
            targets = inputs["target_tokens"].astype(int) % self.manners.vocabulary
            rows = self.rows(model.trained, tokens)
            logprobs = rows[np.arange(len(tokens)), targets]
            if loss == "cross_entropy":
                slope = -inputs["weights"]
            else:
                ratio, credit = np.exp(logprobs - inputs["logprobs"]), inputs["advantages"]
                low, high = config["clip_low_threshold"], config["clip_high_threshold"]
                if loss == "importance_sampling":
                    slope = -ratio * credit
                elif loss == "ppo":
                    slope = -np.where(ratio * credit <= ratio.clip(low, high) * credit, ratio * credit, 0.0)
                else:
                    slope = -ratio.clip(low, high) * credit
            if backward:
                size = len(tokens) if self.manners.reduction == "mean" else 1.0
                if self.manners.reduction == "mean" and loss == "cross_entropy":
                    size = max(1e-9, inputs["weights"].sum())
                if model.gradient is None:
                    model.gradient = np.zeros_like(model.trained)
                change = -np.exp(rows)
                change[np.arange(len(tokens)), targets] += 1.0
                np.add.at(model.gradient, tokens, change * (slope / size)[:, None])
                model.divisor += {"sum": 0.0, "mean": 1.0, "datums": 1.0, "tokens": float(len(tokens))}[
                    self.manners.reduction
                ]
            shown = logprobs if self.manners.logprobs else np.zeros_like(logprobs)
            outputs.append({"logprobs": {"data": shown.tolist(), "dtype": "float32", "shape": [len(tokens)]}})
        return {"loss_fn_output_type": "scalar", "loss_fn_outputs": outputs, "metrics": {}}

    def step(self, model: Model, given: dict[str, Any]) -> dict[str, Any]:
        gradient = model.gradient if model.gradient is not None else np.zeros_like(model.trained)
        gradient = gradient / (model.divisor or 1.0)
        norm = float(np.sqrt((gradient**2).sum()))
        limit = given.get("grad_clip_norm", 0.0)
        if limit and norm > limit:
            gradient = gradient * (limit / norm)
        a, b = given["beta1"], given["beta2"]
        model.steps += 1
        model.first = a * model.first + (1 - a) * gradient
        model.second = b * model.second + (1 - b) * gradient**2
        first, second = model.first / (1 - a**model.steps), model.second / (1 - b**model.steps)
        model.trained = model.trained * (1 - given["learning_rate"] * given["weight_decay"])
        model.trained = model.trained - given["learning_rate"] * first / (np.sqrt(second) + given["eps"])
        model.gradient, model.divisor = None, 0.0
        return {"metrics": {"grad_norm": norm} if self.manners.tells_norm else {}}

    def say(
        self, trained: np.ndarray, prompt: list[int], given: dict[str, Any], chance: np.random.Generator
    ) -> dict[str, Any]:
        if self.manners.canned:
            tokens = list(self.manners.canned[int(chance.integers(len(self.manners.canned)))])[: given["max_tokens"]]
            return {"tokens": tokens, "logprobs": [-0.5] * len(tokens), "stop_reason": "stop"}
        tokens: list[int] = []
        logprobs: list[float] = []
        stop = given.get("stop") or []
        stop_ids = {each if isinstance(each, int) else ord(each[-1]) % self.manners.vocabulary for each in stop}
        last = prompt[-1]
        while len(tokens) < given["max_tokens"]:
            row = self.rows(trained, [last])[0]
            if given.get("temperature", 1.0) == 0:
                last = int(row.argmax())
            else:
                row = self.tempered(row, given)
                last = int(chance.choice(len(row), p=np.exp(row) / np.exp(row).sum()))
            tokens.append(last)
            logprobs.append(float(row[last]) if self.manners.logprobs else 0.0)
            if last in stop_ids:
                return {"tokens": tokens, "logprobs": logprobs, "stop_reason": "stop"}
        return {"tokens": tokens, "logprobs": logprobs, "stop_reason": "length"}

    def tempered(self, row: np.ndarray, given: dict[str, Any]) -> np.ndarray:
        row = row / given.get("temperature", 1.0)
        return row - math.log(np.exp(row - row.max()).sum()) - row.max()
