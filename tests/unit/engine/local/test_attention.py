"""The ways of attending that only a GPU uses, against the plain ones, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
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


def test_the_paged_kernel_is_the_paged_plan() -> None:
    """Run by triton's interpreter, which must be chosen before triton is imported: so in a process of its own."""
    script = """
        import torch
        from moot.engine.local.attention import DecodePlan
        from moot.engine.local.paged import paged_attention

        torch.manual_seed(0)
        page, pages = 128, 24
        lists = [[3], [7], [1], [2, 9], [4, 20, 5]]
        positions = torch.tensor([0, 5, 127, 128, 300])
        table = torch.full((5, 4), pages - 1, dtype=torch.int32)
        for row, ids in enumerate(lists):
            table[row, : len(ids)] = torch.tensor(ids)
        for heads, kv_heads, dim in ((9, 3, 64), (14, 2, 64), (4, 4, 16), (8, 2, 80)):
            keys, values = torch.randn(pages, kv_heads, page, dim), torch.randn(pages, kv_heads, page, dim)
            q = torch.randn(5, heads + kv_heads, dim)[:, :heads]  # rows further apart than they are long, as in the network
            k, v = torch.randn(5, kv_heads, dim), torch.randn(5, kv_heads, dim)
            plan = DecodePlan(lists, page, torch.device("cpu"), 2, gather=False)
            expected = plan.attend([keys], [values], positions)(0, q, k, v)  # this also stores k and v
            torch.testing.assert_close(paged_attention(q, keys, values, table, positions), expected, atol=1e-5, rtol=1e-5)
        print("equal")
    """
    assert interpreted("-c", textwrap.dedent(script)) == "equal\n"


def test_decoding_by_graphs_samples_what_plain_steps_sample(make_model: Callable[..., str]) -> None:
    assert interpreted(str(Path(__file__).with_name("graph_decoding.py")), make_model()) == "equal\n"


def interpreted(*arguments: str) -> str:
    pytest.importorskip("triton", reason="the kernel needs triton, which exists for Linux alone")
    done = subprocess.run([sys.executable, *arguments], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
