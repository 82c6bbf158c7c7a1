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


@pytest.mark.parametrize("grouped", [True, False])
def test_ragged_attention_gives_torchs_function_what_it_needs(monkeypatch: pytest.MonkeyPatch, grouped: bool) -> None:
    """The function itself runs on GPUs alone; in its place one that reads its arguments as the documentation says."""
    from moot.engine.local import attention

    def varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends: torch.Tensor, ends_k: torch.Tensor, *longest: int) -> torch.Tensor:
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


def test_the_prefill_kernel_is_attention_part_by_part() -> None:
    """New prompts, one that goes on in the middle of a page, and a single token that opens a page, in one pass."""
    script = """
        import torch
        from moot.engine.local.attention import Continuation, prefill_attention
        from moot.engine.local.paged import Pass, block_rows, paged_prefill

        torch.manual_seed(0)
        page, pages, device = 128, 12, torch.device("cpu")
        parts = [([3], 0, 5), ([7, 8], 100, 60), ([1, 2], 0, 130), ([5, 9], 128, 1)]
        total = sum(new for _, _, new in parts)
        for heads, kv_heads, dim in ((6, 2, 64), (4, 4, 80)):
            keys, values = torch.randn(pages, kv_heads, page, dim), torch.randn(pages, kv_heads, page, dim)
            own_keys, own_values = keys.clone(), values.clone()
            q = torch.randn(total, heads + kv_heads, dim)[:, :heads]  # rows further apart than they are long, as in the network
            k, v = torch.randn(total, kv_heads, dim), torch.randn(total, kv_heads, dim)
            continuations = [Continuation(torch.tensor(ids), done, new) for ids, done, new in parts]
            expected = prefill_attention([keys], [values], continuations)(0, q.contiguous(), k, v)
            plan = Pass.of(parts, page, block_rows(q.dtype), device)
            torch.testing.assert_close(paged_prefill([own_keys], [own_values], plan)(0, q, k, v), expected, atol=1e-5, rtol=1e-5)
            assert torch.equal(own_keys, keys) and torch.equal(own_values, values)
        print("equal")
    """
    assert interpreted("-c", textwrap.dedent(script)) == "equal\n"


def test_the_picking_kernels_pick_what_the_picker_picks() -> None:
    """At several temperatures and the ends of the range of draws; and a number that is none stays visible in its own row alone."""
    script = """
        import torch
        from moot.engine.local.choosing import choose
        from moot.engine.local.picking import Picker, pick
        from moot.engine.protocol import SamplingParams

        torch.manual_seed(0)
        temperatures = [0.0, 0.6, 1.0, 1.7, 0.8, 1.0, 0.0, 1.0]
        heat, rows = torch.tensor(temperatures, dtype=torch.float64), len(temperatures)
        for vocab in (64, 2048, 5000):
            logits, draws = torch.randn(rows, vocab) * 3, torch.rand(rows, dtype=torch.float64)
            draws[2], draws[3] = 0.0, 1 - 2**-53
            logits[7, : vocab // 2] = -torch.inf
            picker = Picker([SamplingParams(1, temperature=t) for t in temperatures], vocab, torch.device("cpu"))
            expected_tokens, expected = picker.pick(logits, draws)
            for way in (choose, pick):
                tokens, logprobs = torch.zeros(rows, dtype=torch.long), torch.full((rows,), torch.nan, dtype=torch.float64)
                way(logits, heat, draws, tokens, logprobs)
                assert tokens.tolist() == expected_tokens.tolist()
                torch.testing.assert_close(logprobs, expected.double(), atol=1e-5, rtol=0)
                broken = logits.clone()
                broken[0, 3], broken[1], broken[5, 7] = torch.nan, torch.nan, torch.inf
                way(broken, heat, draws, tokens, logprobs)
                assert logprobs.isfinite().tolist() == [row not in (0, 1, 5) for row in range(rows)]
                assert 0 <= int(tokens.min()) and int(tokens.max()) < vocab
        print("equal")
    """
    assert interpreted("-c", textwrap.dedent(script)) == "equal\n"


@pytest.mark.slow  # half a minute under the interpreter
def test_decoding_by_graphs_samples_what_plain_steps_sample(make_model: Callable[..., str]) -> None:
    assert interpreted(str(Path(__file__).with_name("graph_decoding.py")), make_model()) == "equal\n"


def interpreted(*arguments: str) -> str:
    pytest.importorskip("triton", reason="the kernel needs triton, which exists for Linux alone")
    done = subprocess.run([sys.executable, *arguments], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
