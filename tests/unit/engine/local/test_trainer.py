"""Packing, memory and broken numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moot.engine.local.adapter import lora_parameters
from moot.engine.local.trainer import micro_batches
from moot.engine.protocol import AdamParams, Datum, EngineError
from support.datums import datum


def datums(*sizes: int) -> list[Datum]:
    random = np.random.default_rng(0)
    out = []
    for size in sizes:
        tokens = random.integers(0, 64, size + 1)
        out.append(datum(np.ones(size), tokens[:-1], tokens[1:], -4.0, 1.0))
    return out


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 80))
def test_micro_batches_hold_everything_once_and_keep_the_budget(lengths: list[int], budget: int) -> None:
    batches = micro_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or sum(lengths[i] for i in batch) <= budget for batch in batches)


def test_the_token_budget_does_not_change_the_gradient(make_engine: Callable[..., Any]) -> None:
    results = []
    for budget in (11, 1000):
        engine = make_engine(token_budget=budget)
        out = engine.forward_backward(datums(30, 7, 19, 4), "ppo").result()
        results.append((out, engine._trainer.gradient))
    assert results[0][0].metrics["micro_batches"] == 3  # 30 and 19 alone, 7 and 4 together
    assert results[1][0].metrics["micro_batches"] == 1
    assert results[0][0].loss == pytest.approx(results[1][0].loss, rel=1e-5)
    for name, grad in results[0][1].items():
        torch.testing.assert_close(grad, results[1][1][name], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_out_of_memory_halves_the_micro_batch_and_counts_nothing_twice(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A device that holds 40 tokens: 4 x 20 tokens go in pairs."""
    calm, tight = make_engine(), make_engine()
    expected = calm.forward_backward(datums(20, 20, 20, 20), "ppo").result()
    hidden, grad = tight._network.hidden, torch.autograd.grad
    size = 0

    def limited_hidden(tokens: torch.Tensor, *rest: Any) -> torch.Tensor:
        nonlocal size
        size = len(tokens)
        if where == "forward" and size > 40:
            raise torch.OutOfMemoryError("no room")
        result: torch.Tensor = hidden(tokens, *rest)
        return result

    def limited_grad(*args: Any, **options: Any) -> Any:
        if where == "backward" and size > 40:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return grad(*args, **options)

    monkeypatch.setattr(tight._network, "hidden", limited_hidden)
    monkeypatch.setattr("moot.engine.local.trainer.torch.autograd.grad", limited_grad)
    out = tight.forward_backward(datums(20, 20, 20, 20), "ppo").result()
    assert out.metrics["out_of_memory"] == 1
    assert out.metrics["micro_batches"] == 2
    assert out.loss == pytest.approx(expected.loss, rel=1e-5)
    for name, value in tight._trainer.gradient.items():
        torch.testing.assert_close(value, calm._trainer.gradient[name], atol=1e-4, rtol=1e-3)


def test_a_single_sequence_that_does_not_fit_is_an_engine_error(make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(engine._network, "hidden", full)
    with pytest.raises(EngineError, match="single sequence of 20"):
        engine.forward_backward(datums(20, 20), "ppo").result()


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_skips_the_step_and_is_gone_after(make_engine: Callable[..., Any], broken: float) -> None:
    engine = make_engine()
    (item,) = datums(10)
    bad = Datum(item.tokens, item.targets, item.logprobs, item.advantages * broken, item.mask)
    before = {name: value.clone() for name, value in lora_parameters(engine._wrapped).items()}
    engine.forward_backward([bad], "importance_sampling").result()
    assert engine.optim_step(AdamParams()).result().metrics["skipped"] == 1
    for name, value in lora_parameters(engine._wrapped).items():
        assert torch.equal(value, before[name])
    engine.forward_backward([item], "importance_sampling").result()
    assert engine.optim_step(AdamParams()).result().metrics["skipped"] == 0


def test_adam_takes_the_step_its_formula_says(make_engine: Callable[..., Any]) -> None:
    """First step: p (1 - lr wd) - lr g / (|g| + eps), with g clipped to a global norm of 0.5."""
    engine = make_engine()
    before = {name: value.detach().clone() for name, value in lora_parameters(engine._wrapped).items()}
    engine.forward_backward(datums(30), "cross_entropy").result()
    gradient = {name: value.clone() for name, value in engine._trainer.gradient.items()}
    norm = float(torch.sqrt(sum((value**2).sum() for value in gradient.values())))  # type: ignore[call-overload]
    assert norm > 0.5
    out = engine.optim_step(AdamParams(learning_rate=0.01, weight_decay=0.1, eps=1e-3, grad_clip_norm=0.5)).result()
    assert out.metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    for name, value in lora_parameters(engine._wrapped).items():
        g = gradient[name] * 0.5 / norm
        expected = before[name] * (1 - 0.01 * 0.1) - 0.01 * g / (g.abs() + 1e-3)
        torch.testing.assert_close(value.detach(), expected, atol=1e-6, rtol=1e-4)


def test_logits_exist_only_for_trained_tokens_and_a_chunk_at_a_time(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.engine.local.trainer.HEAD_CHUNK_BYTES", 4 * 64 * 5)
    engine = make_engine()
    (item,) = datums(40)
    mask = np.zeros(40, np.float32)
    mask[10:22] = 1
    rows: list[int] = []
    logits = engine._network.logits
    monkeypatch.setattr(engine._network, "logits", lambda hidden: rows.append(len(hidden)) or logits(hidden))
    out = engine.forward_backward([Datum(item.tokens, item.targets, item.logprobs * mask, mask, mask)], "ppo").result()
    assert rows == [5, 5, 2]
    assert not out.logprobs[0][mask == 0].any() and (out.logprobs[0][mask == 1] < 0).all()


def test_nothing_to_train_on_gives_no_gradient_and_no_trouble(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()
    (item,) = datums(10)
    zero = np.zeros(10, np.float32)
    assert engine.forward_backward([Datum(item.tokens, item.targets, zero, zero, zero)], "ppo").result().loss == 0
    assert engine.optim_step(AdamParams()).result().metrics["skipped"] == 0


def test_a_cancelled_waiter_does_not_take_its_step_out_of_the_queue(make_engine: Callable[..., Any]) -> None:
    engine = make_engine()

    async def main() -> None:
        async def wait() -> None:
            await engine.forward_backward(datums(200) * 5, "cross_entropy")

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        out = await engine.optim_step(AdamParams())
        assert out.metrics["grad_norm"] > 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"tokens": np.full(10, 64, np.int32)}, "tokens"),
        ({"mask": np.zeros(10, np.float32)}, "advantages"),
    ],
    ids=str,
)
def test_a_bad_datum_is_named_at_once(make_engine: Callable[..., Any], change: dict[str, Any], word: str) -> None:
    (item,) = datums(10)
    fields = {name: getattr(item, name) for name in ("tokens", "targets", "logprobs", "advantages", "mask", "temperature")}
    with pytest.raises(ValueError, match=word):
        make_engine().forward_backward([Datum(**{**fields, **change})], "ppo")


def test_bfloat16_trains_and_stays_near_its_sampler(make_engine: Callable[..., Any]) -> None:
    engine = make_engine(dtype="bf16")
    out = [engine.forward_backward(datums(60), "cross_entropy").result().loss]
    for _ in range(8):
        engine.optim_step(AdamParams(learning_rate=0.02))
        out.append(engine.forward_backward(datums(60), "cross_entropy").result().loss)
    assert out[-1] < out[0]
