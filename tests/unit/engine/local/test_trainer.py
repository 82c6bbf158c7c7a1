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
from moot.engine.local.attention import packed_attention
from moot.engine.local.trainer import CALLS_WITHOUT_TROUBLE, micro_batches
from moot.engine.protocol import AdamParams, Datum
from moot.errors import EngineError
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
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"
            )
        return grad(*args, **options)

    monkeypatch.setattr(tight._network, "hidden", limited_hidden)
    monkeypatch.setattr("moot.engine.local.trainer.torch.autograd.grad", limited_grad)
    out = tight.forward_backward(datums(20, 20, 20, 20), "ppo").result()
    assert out.metrics["out_of_memory"] == 1
    assert out.metrics["micro_batches"] == 2
    assert out.loss == pytest.approx(expected.loss, rel=1e-5)
    for name, value in tight._trainer.gradient.items():
        torch.testing.assert_close(value, calm._trainer.gradient[name], atol=1e-4, rtol=1e-3)


def test_out_of_memory_at_the_end_of_a_pass_does_not_count_its_gradient_twice(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, tight = make_engine(), make_engine()
    calm.forward_backward(datums(20, 20, 20, 20), "ppo").result()
    zeros, tries = torch.zeros, 0

    def limited(*given: Any, **options: Any) -> torch.Tensor:
        nonlocal tries
        tries += given == (80,)  # the logprobs of all tokens
        if given == (80,) and tries == 1:
            raise torch.OutOfMemoryError("planted")
        return zeros(*given, **options)

    monkeypatch.setattr(torch, "zeros", limited)
    assert tight.forward_backward(datums(20, 20, 20, 20), "ppo").result().metrics["out_of_memory"] == 1
    assert tries == 1
    for name, grad in calm._trainer.gradient.items():
        torch.testing.assert_close(tight._trainer.gradient[name], grad, atol=1e-5, rtol=1e-4)


def test_one_that_is_the_beginning_of_another_is_parted_from_it_where_both_do_not_fit(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they cost no more than the longer, so no budget parts them. It used to try the pair for ever."""
    engine, seen = make_engine(), []
    passed = engine._trainer._pass

    def limited(given: list[Datum], *rest: Any) -> Any:
        seen.append(len(given))
        assert len(seen) < 50
        if len(given) > 1:
            raise torch.OutOfMemoryError("planted")
        return passed(given, *rest)

    monkeypatch.setattr(engine._trainer, "_pass", limited)
    long, other = datums(150, 90)
    begins = datum(np.ones(100), long.tokens[:100], long.targets[:100], -4.0, 1.0)
    out = engine.forward_backward([long, begins, other], "ppo").result()
    assert [len(each) for each in out.logprobs] == [150, 100, 90]
    assert not engine._trainer.recompute and seen[-3:] == [1, 1, 1]


def test_passes_grow_back_after_some_calls_without_trouble(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that first holds 20 tokens and then all: a single sequence of 30 has to be recomputed, and later does not."""
    engine = make_engine(token_budget=64)
    hidden, room = engine._network.hidden, 20

    def limited(
        tokens: torch.Tensor, positions: Any, attend: Any, adapter: Any, recompute: bool = False
    ) -> torch.Tensor:
        if len(tokens) > room and not recompute:
            raise torch.OutOfMemoryError("planted")
        return hidden(tokens, positions, attend, adapter, recompute)

    monkeypatch.setattr(engine._network, "hidden", limited)
    assert engine.forward_backward(datums(30), "ppo").result().metrics["out_of_memory"] == 1
    trainer, room = engine._trainer, 1000
    assert (trainer.token_budget, trainer.recompute) == (15, True)
    sizes = []
    for _ in range(4 * CALLS_WITHOUT_TROUBLE):
        engine.forward_backward(datums(4), "ppo").result()
        sizes.append((trainer.token_budget, trainer.recompute))
    assert list(dict.fromkeys(sizes)) == [(15, True), (30, True), (60, True), (64, True), (64, False)]
    assert engine.faults == {"out_of_memory": 1}


def test_a_pass_without_room_takes_the_cache_that_nobody_reads_before_it_is_halved(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    hidden, given_up = engine._network.hidden, []

    def limited(tokens: torch.Tensor, *rest: Any) -> torch.Tensor:
        if not given_up:
            raise torch.OutOfMemoryError("planted")
        return hidden(tokens, *rest)

    def shrink() -> bool:
        given_up.append(1)
        return len(given_up) == 1

    monkeypatch.setattr(engine._network, "hidden", limited)
    assert engine._trainer.make_room == engine._store.shrink
    engine._trainer.make_room = shrink
    out = engine.forward_backward(datums(20, 20), "ppo").result()
    assert (out.metrics["out_of_memory"], out.metrics["micro_batches"], len(given_up)) == (1, 1, 1)


def test_a_step_that_finds_no_room_keeps_its_gradient_and_can_be_taken_later(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, tight = make_engine(), make_engine()
    for engine in (calm, tight):
        engine.forward_backward(datums(20), "ppo").result()

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty_like", full)
        with pytest.raises(EngineError, match="out of memory"):
            tight.optim_step(AdamParams(1e-2)).result()
    steps = [engine.optim_step(AdamParams(1e-2)).result().metrics for engine in (calm, tight)]
    assert steps[0] == steps[1] and steps[0]["grad_norm"] > 0
    for ours, theirs in zip(
        lora_parameters(calm._wrapped).values(), lora_parameters(tight._wrapped).values(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_a_step_without_room_takes_the_cache_that_nobody_reads(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, empty_like, given_up = make_engine(), torch.empty_like, []

    def limited(*given: Any) -> torch.Tensor:
        if not given_up:
            raise torch.OutOfMemoryError("planted")
        return empty_like(*given)

    engine.forward_backward(datums(20), "ppo").result()
    engine._trainer.make_room = lambda: given_up.append(1) or len(given_up) == 1
    monkeypatch.setattr(torch, "empty_like", limited)
    assert engine.optim_step(AdamParams(1e-2)).result().metrics["grad_norm"] > 0
    assert given_up == [1]


def test_a_single_sequence_that_does_not_fit_is_an_engine_error(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(engine._network, "hidden", full)
    with pytest.raises(EngineError, match="single sequence of 20"):
        engine.forward_backward(datums(20, 20), "ppo").result()


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_skips_the_step_and_is_gone_after(
    make_engine: Callable[..., Any], broken: float
) -> None:
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


@pytest.mark.parametrize("moment", ["between passes", "forward", "backward"])
@pytest.mark.parametrize("recompute", [False, True])
def test_an_engine_that_is_closed_leaves_a_pass_in_its_middle(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, moment: str, recompute: bool
) -> None:
    engine = make_engine(token_budget=20, gradient_checkpointing=recompute)
    counted = {"between passes": 0, "forward": 0, "backward": 0}

    def reached(where: str, times: int = 1) -> None:
        """At this moment it is closed, as Ctrl-C does from another thread."""
        counted[where] += 1
        if where == moment and counted[where] == times:
            engine._worker._closing = True

    def attention(lengths: Any, device: Any) -> Any:
        attend = packed_attention(lengths, device)

        def noted(index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            reached("forward")
            q.register_hook(lambda grad: reached("backward"))
            return attend(index, q, k, v)

        return noted

    monkeypatch.setattr("moot.engine.local.trainer.packed_attention", attention)
    engine._trainer.before_pass = lambda: reached("between passes", 2)
    with pytest.raises(EngineError, match="closed in the middle of a pass"):
        engine.forward_backward(datums(20, 20, 20), "ppo").result(60)
    assert not engine._trainer.gradient, "half a gradient is none"
    assert counted["forward"] < 3 * len(engine._network.layers), "three passes were asked for"


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
    fields = {
        name: getattr(item, name) for name in ("tokens", "targets", "logprobs", "advantages", "mask", "temperature")
    }
    with pytest.raises(ValueError, match=word):
        make_engine().forward_backward([Datum(**{**fields, **change})], "ppo")


def test_bfloat16_trains_and_stays_near_its_sampler(make_engine: Callable[..., Any]) -> None:
    engine = make_engine(dtype="bf16")
    out = [engine.forward_backward(datums(60), "cross_entropy").result().loss]
    for _ in range(8):
        engine.optim_step(AdamParams(learning_rate=0.02))
        out.append(engine.forward_backward(datums(60), "cross_entropy").result().loss)
    assert out[-1] < out[0]
