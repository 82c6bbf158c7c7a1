"""Our forward pass and gradients against transformers and peft."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from moot.engine.local import UnsupportedModel
from moot.engine.local.adapter import freeze, lora_parameters
from moot.engine.local.attention import packed_attention
from moot.engine.local.losses import LOSSES, Given, find_loss
from moot.engine.local.models import check_config
from moot.engine.protocol import Datum
from support.datums import datum

FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": False, "tie_word_embeddings": True}),
    ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0, "original_max_position_embeddings": 256}}),
    ("qwen2", {}),
    ("qwen3", {}),
    ("mistral", {"sliding_window": None}),
]  # fmt: skip


def stir(engine: Any) -> None:
    """An adapter starts as nothing; make it something."""
    torch.manual_seed(1)
    for parameter in lora_parameters(engine._wrapped).values():
        torch.nn.init.normal_(parameter, 0.0, 0.2)


def random_datums(sizes: list[int], temperature: float = 0.8) -> list[Datum]:
    random = np.random.default_rng(0)
    out = []
    for size in sizes:
        tokens = random.integers(0, 64, size + 1)
        mask = random.random(size) < 0.4
        mask[-1] = True
        advantages = random.normal(size=size) * mask
        out.append(
            datum(mask, tokens[:-1], tokens[1:], (-4 + random.normal(size=size) * 0.5) * mask, advantages, temperature)
        )
    return out


@pytest.mark.parametrize(("family", "changes"), FAMILIES)
def test_logits_are_those_of_transformers_with_the_adapter_on(
    make_engine: Callable[..., Any], family: str, changes: dict[str, Any]
) -> None:
    engine = make_engine(family, changes)
    stir(engine)
    tokens = torch.randint(0, 64, (90,), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = engine._wrapped(input_ids=tokens[None]).logits[0]
        adapter = freeze(engine._wrapped, torch.float32)
        ours = engine._network.logits(
            engine._network.hidden(tokens, torch.arange(90), packed_attention([90], tokens.device), adapter)
        )
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"], ["k_proj", "up_proj", "down_proj"]], ids=str)
def test_any_choice_of_targets_is_run_as_peft_runs_it(make_engine: Callable[..., Any], targets: Any) -> None:
    engine = make_engine("qwen2", lora_targets=targets, lora_alpha=7)
    stir(engine)
    tokens = torch.arange(40) % 64
    with torch.no_grad():
        theirs = engine._wrapped(input_ids=tokens[None]).logits[0]
        adapter = freeze(engine._wrapped, torch.float32)
        ours = engine._network.logits(
            engine._network.hidden(tokens, torch.arange(40), packed_attention([40], tokens.device), adapter)
        )
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_gradients_are_those_of_autograd_through_transformers_and_peft(
    make_engine: Callable[..., Any], loss: str, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed, chunked and selected, three sequences of different lengths, against one plain sequence at a time."""
    monkeypatch.setattr("moot.engine.local.trainer.HEAD_CHUNK_BYTES", 4 * 64 * 7)
    engine = make_engine("qwen3", gradient_checkpointing=recompute)
    stir(engine)
    datums = random_datums([33, 70, 12])
    out = engine.forward_backward(datums, loss).result()
    parameters = lora_parameters(engine._wrapped)
    total = torch.zeros(())
    for number, item in enumerate(datums):
        logits = engine._wrapped(input_ids=torch.from_numpy(item.tokens).long()[None]).logits[0] / item.temperature
        logprobs = logits.log_softmax(-1).gather(1, torch.from_numpy(item.targets).long()[:, None]).squeeze(1)
        np.testing.assert_allclose(out.logprobs[number], logprobs.detach().numpy() * (item.mask != 0), atol=1e-4)
        given = Given(*(torch.from_numpy(array) for array in (item.logprobs, item.advantages, item.mask)))
        total = total + find_loss(loss, None)(logprobs, given)
    assert out.loss == pytest.approx(float(total.detach()), rel=1e-4)
    expected = torch.autograd.grad(total, list(parameters.values()))
    for name, theirs in zip(parameters, expected, strict=True):
        torch.testing.assert_close(engine._trainer.gradient[name], theirs, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("family", "changes", "word"),
    [
        ("mixtral", {"num_local_experts": 2}, "mixtral"),
        ("gemma2", {}, "gemma2"),
        ("gpt2", {"n_embd": 32, "n_layer": 1, "n_head": 2}, "gpt2"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}, "dynamic"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(family: str, changes: dict[str, Any], word: str) -> None:
    config = transformers.AutoConfig.for_model(family, **changes)
    with pytest.raises(UnsupportedModel, match=word):
        check_config(config, "a model")


def test_loading_a_model_warns_of_nothing_that_a_user_could_not_mend(make_engine: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_engine("qwen2")


def test_a_sliding_window_shortens_the_context_instead_of_being_ignored(make_engine: Callable[..., Any]) -> None:
    assert make_engine("mistral", {"sliding_window": 200}).capabilities.context_length == 200
