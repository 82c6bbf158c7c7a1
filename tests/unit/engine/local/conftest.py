"""A tiny random model of any family the engine knows, made on the fly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

import torch
import transformers

from support.one_thread import one_thread as one_thread

SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 1024, "initializer_range": 0.3,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., str]:
    def make(family: str = "llama", **changes: Any) -> str:
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(family, **{**SHAPE, **changes})
        model = transformers.AutoModelForCausalLM.from_config(config)
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                torch.nn.init.normal_(
                    parameter, 1.0 if "norm" in name else 0.0, 0.3
                )  # their defaults would hide that they are ignored
        path = tmp_path / family
        model.save_pretrained(path)
        return str(path)

    return make


@pytest.fixture
def make_engine(make_model: Callable[..., str]) -> Iterator[Callable[..., Any]]:
    from moot.engine.local import LocalEngine

    made: list[LocalEngine] = []

    def make(family: str = "llama", changes: dict[str, Any] | None = None, **options: Any) -> LocalEngine:
        model = make_model(family, **(changes or {}))
        made.append(
            LocalEngine.create(
                model, **{"dtype": "fp32", "device": "cpu", "lora_rank": 4, "max_cache_gib": 0.02, **options}
            )
        )
        return made[-1]

    yield make
    for engine in made:
        asyncio.run(engine.close())
