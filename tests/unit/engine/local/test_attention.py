"""The ways of attending that only a GPU uses, against the plain ones, on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moot.engine.local.attention import packed_attention, padded_attention

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.sampled_from([1, 3]), st.integers(0, 99))
def test_padded_attention_is_packed_attention(lengths: list[int], groups: int, seed: int) -> None:
    made = torch.Generator().manual_seed(seed)
    total, kv_heads = sum(lengths), 2
    shapes = [(total, kv_heads * groups, 8), (total, kv_heads, 8), (total, kv_heads, 8)]
    given_ = [torch.randn(*shape, generator=made, dtype=torch.float64, requires_grad=True) for shape in shapes]
    weight = torch.randn(total, kv_heads * groups * 8, generator=made, dtype=torch.float64)
    outs = []
    for attend in (packed_attention(lengths, CPU), padded_attention(lengths, CPU)):
        out = attend(0, *given_)
        outs.append((out.detach(), *torch.autograd.grad((out * weight).sum(), given_)))
    for plain, padded in zip(*outs, strict=True):
        torch.testing.assert_close(padded, plain)


@pytest.mark.parametrize("grouped", [True, False])
def test_ragged_attention_gives_torchs_function_what_it_needs(monkeypatch: pytest.MonkeyPatch, grouped: bool) -> None:
    """The function itself runs on GPUs alone; in its place one that reads its arguments as the documentation says."""
    from moot.engine.local import attention

    def varlen(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends: torch.Tensor, ends_k: torch.Tensor, *longest: int
    ) -> torch.Tensor:
        assert longest == (6, 6) and ends.dtype == torch.int32 and ends.tolist() == ends_k.tolist() == [0, 3, 9, 10]
        assert k.shape[1] == (2 if grouped else 6)
        parts = zip(*(torch.split(x, ends.diff().tolist()) for x in (q, k, v)), strict=True)
        return torch.cat([attention.causal(*part) for part in parts]).view(q.shape)

    monkeypatch.setattr(attention, "_varlen", lambda: (varlen, {}, grouped))
    made = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(10, heads, 8, generator=made) for heads in (6, 2, 2))
    lengths = [3, 6, 1]
    found = attention.ragged_attention(lengths, CPU)(0, q, k, v)
    torch.testing.assert_close(found, attention.split_attention(lengths)(0, q, k, v))
    attention.offers_ragged.cache_clear()
    assert attention.offers_ragged(CPU, torch.float32, 8) is False


def test_what_torch_does_not_run_is_padded_instead_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    from moot.engine.local import attention

    def broken(*_: object, **__: object) -> torch.Tensor:
        raise NotImplementedError("no such kernel")

    monkeypatch.setattr(attention, "_varlen", lambda: (broken, {}, True))
    attention.offers_ragged.cache_clear()
    with pytest.warns(UserWarning, match="no such kernel"):
        assert attention.offers_ragged(CPU, torch.bfloat16, 8) is False
    attention.offers_ragged.cache_clear()


@pytest.mark.slow
def test_the_paged_kernel_is_the_paged_plan() -> None:
    assert kernels()["paged"] == "equal"


def test_the_prefill_kernel_is_attention_part_by_part() -> None:
    """New prompts, one that goes on in the middle of a page, and a single token that opens a page, in one pass."""
    assert kernels()["prefill"] == "equal"


def test_the_picking_kernels_pick_what_the_picker_picks() -> None:
    """At several temperatures and the ends of the range of draws; and a number that is none stays visible in its own row alone."""
    assert kernels()["picking"] == "equal"


def test_the_kernels_between_products_are_what_they_stand_for() -> None:
    assert kernels()["fused"] == "equal"


@pytest.mark.slow  # half a minute under the interpreter
def test_decoding_by_graphs_samples_what_plain_steps_sample(make_model: Callable[..., str]) -> None:
    assert interpreted(str(Path(__file__).with_name("graph_decoding.py")), make_model()) == "equal\n"


@cache
def kernels() -> dict[str, str]:
    return dict(json.loads(interpreted(str(Path(__file__).with_name("interpreted_kernels.py")))))


def interpreted(*arguments: str) -> str:
    pytest.importorskip("triton", reason="the kernel needs triton, which exists for Linux alone")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
