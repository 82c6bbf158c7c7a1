"""The forecast of memory against what torch keeps, and what follows from it for a training pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from moot.engine.local.adapter import arrange
from moot.engine.local.attention import packed_attention
from moot.engine.memory_estimate import (
    GIB,
    Place,
    Shape,
    adapter_bytes,
    cache_bytes,
    cache_taken,
    layer_bytes,
    pass_bytes,
    pass_tokens,
    weights_bytes,
)
from moot.engine.protocol import AdamParams, Datum
from moot.rl import cost
from moot.rl.cost import memory_gib
from moot.settings.presets import PRESETS

QWEN3_8B = Shape(
    hidden=4096, layers=36, inner=12288, heads=32, kv_heads=8, head_dim=128, vocabulary=151936, tied=False, norms_heads=True
)  # fmt: skip
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 64}


def kept(engine: Any, tokens: int) -> int:
    """Bytes that a forward pass keeps for the backward pass, weights apart: each block of memory once."""
    own = [engine._network.embed, engine._network.head, *engine._trainer.parameters.values()]
    own += [linear.weight for layer in engine._network.layers for linear in layer.linear.values()]
    known = {tensor.untyped_storage().data_ptr() for tensor in own}
    blocks: dict[int, int] = {}
    held: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        block = tensor.untyped_storage()
        if block.data_ptr() not in known:
            blocks[block.data_ptr()] = block.nbytes()
            held.append(tensor)  # or its place would be taken by another
        return tensor

    ids = torch.arange(tokens) % 64
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        adapter = arrange(engine._wrapped, engine._network.dtype, trained=True)
        engine._network.hidden(ids, torch.arange(tokens), packed_attention([tokens], torch.device("cpu")), adapter)
    return sum(blocks.values())


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_what_a_layer_keeps_of_a_token_is_what_torch_keeps(make_engine: Callable[..., Any], family: str) -> None:
    engine = make_engine(family, WIDE)
    shape = Shape.of(engine._wrapped.config)
    measured = (kept(engine, 200) - kept(engine, 100)) / 100
    ends = 4 * shape.hidden + 4 * shape.head_dim  # before the last norm; sines and cosines
    assert measured == pytest.approx(shape.layers * layer_bytes(shape, 4, 4) + ends, rel=0.1)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_weights_adapter_and_cache_are_what_they_are(make_engine: Callable[..., Any], family: str) -> None:
    engine = make_engine(family, {"tie_word_embeddings": False})
    shape = Shape.of(engine._wrapped.config)
    matrices = sum(p.nbytes for name, p in engine._wrapped.named_parameters() if p.ndim == 2 and "lora" not in name)
    assert weights_bytes(shape, 4) == matrices
    tokens, ones = np.arange(20, dtype=np.int32), np.ones(20, np.float32)
    engine.forward_backward([Datum(tokens, tokens, -ones, ones, ones)], "ppo").result()
    gradient = sum(value.nbytes for value in engine._trainer.gradient.values())
    engine.optim_step(AdamParams()).result()
    trained = sum(value.nbytes for value in engine._trainer.parameters.values())
    adam = sum(x.nbytes for state in engine._trainer.optimizer.state.values() for x in state.values() if x.ndim)
    assert adapter_bytes(shape, 4) == trained + gradient + adam
    assert engine._store.count * 128 * cache_bytes(shape, 4) == engine._store._all.nbytes * engine._store.count // (
        engine._store.count + 1
    )


def test_8b_trains_inside_80_gb() -> None:
    """Weights 15.3 GiB. A cache takes up to half of what is left; passes take what then fits, or all 16,384 tokens where activations are
    recomputed."""
    card = 80 * 10**9 - GIB  # the driver's own
    weights, adapter = weights_bytes(QWEN3_8B, 2), adapter_bytes(QWEN3_8B, 16)
    assert weights / GIB == pytest.approx(15.25, abs=0.05)
    free = (card - weights) // 2
    plain, recomputed = (pass_bytes(QWEN3_8B, 16, 2, recompute) for recompute in (False, True))
    assert 5.6e6 < plain < 6.2e6 and recomputed < 1.1e6
    assert pass_tokens(free, plain) == 4096
    assert pass_tokens(free, recomputed) == 16384
    for tokens, each in ((4096, plain), (16384, recomputed)):
        assert weights + adapter + (card - weights) // 2 + tokens * each < card
    assert pass_tokens(4 * GIB, plain) == 2048, "the least; what does not fit then is halved as it runs out"


@pytest.mark.parametrize(("recompute", "tokens"), [(False, 4096), (True, 16384)])
def test_a_dry_run_on_a_card_of_80_gb_says_what_8b_takes_there(
    monkeypatch: pytest.MonkeyPatch, recompute: bool, tokens: int
) -> None:
    """5 agents on 16 questions: 80 sequences of some 4,000 tokens, 147,456 bytes each, are 43 GiB, more than half of what is left."""
    monkeypatch.setattr(cost, "shape_of", lambda _: QWEN3_8B)
    config = replace(
        PRESETS["hard"], model=replace(PRESETS["hard"].model, model="8b", gradient_checkpointing=recompute)
    )
    free = 80 * 10**9 - GIB
    parts = memory_gib(config, Place("cuda", 2, free))
    assert parts is not None
    bound = (free - weights_bytes(QWEN3_8B, 2) - adapter_bytes(QWEN3_8B, 16) // 4) // 2
    assert parts["cache of all debates"] == pytest.approx(bound / GIB)
    assert f"passes of {tokens:,} tokens" in parts
    assert parts["in all"] < free / GIB


def test_a_dry_run_on_a_cpu_counts_its_short_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(PRESETS["demo"], model=replace(PRESETS["demo"].model, model="smollm2-135m"))
    parts = memory_gib(config, Place("cpu", 4, 20 * GIB))
    assert parts is not None and "passes of 1,536 tokens" in parts
    assert parts["weights"] == pytest.approx(0.50, abs=0.005)


def test_a_cache_doubles_from_a_part_of_its_bound_until_it_has_enough() -> None:
    assert [cache_taken(needed, 3200) for needed in (0, 100, 101, 399, 400, 1601, 3200, 9000)] == [
        100,
        100,
        200,
        400,
        400,
        3200,
        3200,
        3200,
    ]


def test_while_a_cache_grows_its_old_pages_count_too() -> None:
    """SmolLM2 in bf16 with a huge batch: 30 GiB of cache are needed, the bound is about 64, so it grows from 16 to 32 beside the old 16;
    a short pass takes less."""
    demo = PRESETS["demo"]
    config = replace(
        demo,
        model=replace(demo.model, model="smollm2-135m", token_budget=512),
        optim=replace(demo.optim, batch_size=900),
    )
    parts = memory_gib(config, Place("cuda", 2, 130 * GIB))
    assert parts is not None
    *others, whole = parts.values()
    cache = parts["cache of all debates"]
    assert 30 < cache < 33
    assert (
        whole == pytest.approx(parts["weights"] + parts["adapter and Adam"] + 1.5 * cache) == pytest.approx(sum(others))
    )


def test_a_model_that_does_not_fit_has_no_part_below_nothing() -> None:
    """Weights of 0.25 GiB on a device with 0.1 free; then a cache of 8 GiB is asked for where 2 fit: the engine halves it twice."""
    model = replace(PRESETS["demo"].model, model="smollm2-135m")
    parts = memory_gib(replace(PRESETS["demo"], model=model), Place("cuda", 2, GIB // 10))
    assert parts is not None and all(value >= 0 for value in parts.values()) and parts["in all"] > 0.1
    named = memory_gib(replace(PRESETS["demo"], model=replace(model, cache_gib=8.0)), Place("cuda", 2, 5 * GIB // 2))
    assert named is not None and named["cache"] == 2.0


def test_a_dry_run_adds_its_parts_up() -> None:
    config = replace(
        PRESETS["demo"],
        model=replace(PRESETS["demo"].model, model="smollm2-135m", cache_gib=2.0, token_budget=4096, dtype="bf16"),
    )
    parts = memory_gib(config)
    assert parts is not None
    assert list(parts) == ["weights", "adapter and Adam", "cache", "passes of 4,096 tokens", "in all"]
    *others, whole = parts.values()
    assert whole == pytest.approx(sum(others)) and parts["cache"] == 2.0
