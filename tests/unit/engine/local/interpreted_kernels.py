"""Our kernels under triton's interpreter, which must be chosen before triton is imported: so in a process of its own, one for all of them.

Prints, as JSON, what each is found to be: `equal` to what it stands for, or how it is not.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from unittest import mock

import torch

from moot.engine.local.attention import Continuation, DecodePlan, prefill_attention
from moot.engine.local.fused import FUSED
from moot.engine.local.layer_ops import PLAIN, Heads, tried
from moot.engine.local.paged import Pass, block_rows, paged_attention, paged_prefill
from moot.engine.local.sampling import Picker, pick
from moot.engine.local.sampling_triton import choose
from moot.engine.protocol import SamplingParams


def paged() -> None:
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
        for programs in (1, 4 * 5 * kv_heads, 1024):  # rows whole, in 4 parts, and in more parts than some have blocks
            with mock.patch("moot.engine.local.paged.PROGRAMS", programs):
                torch.testing.assert_close(
                    paged_attention(q, keys, values, table, positions), expected, atol=1e-5, rtol=1e-5
                )


def prefill() -> None:
    torch.manual_seed(0)
    page, pages, device = 128, 12, torch.device("cpu")
    parts = [([3], 0, 5), ([7, 8], 100, 60), ([1, 2], 0, 130), ([5, 9], 128, 1)]
    total = sum(new for _, _, new in parts)
    for heads, kv_heads, dim in ((6, 2, 64), (4, 4, 80)):
        keys, values = torch.randn(pages, kv_heads, page, dim), torch.randn(pages, kv_heads, page, dim)
        own_keys, own_values = keys.clone(), values.clone()
        q = torch.randn(total, heads + kv_heads, dim)[
            :, :heads
        ]  # rows further apart than they are long, as in the network
        k, v = torch.randn(total, kv_heads, dim), torch.randn(total, kv_heads, dim)
        continuations = [Continuation(torch.tensor(ids), done, new) for ids, done, new in parts]
        expected = prefill_attention([keys], [values], continuations)(0, q.contiguous(), k, v)
        plan = Pass.of(parts, page, block_rows(q.dtype), device)
        torch.testing.assert_close(
            paged_prefill([own_keys], [own_values], plan)(0, q, k, v), expected, atol=1e-5, rtol=1e-5
        )
        assert torch.equal(own_keys, keys) and torch.equal(own_values, values)


def picking() -> None:
    torch.manual_seed(0)
    temperatures = [0.0, 0.6, 1.0, 1.7, 0.8, 1.0, 0.0, 1.0]
    scales, rows = torch.tensor(temperatures, dtype=torch.float64), len(temperatures)
    for vocab in (64, 2048, 5000):
        logits, draws = torch.randn(rows, vocab) * 3, torch.rand(rows, dtype=torch.float64)
        draws[2], draws[3] = 0.0, 1 - 2**-53
        logits[7, : vocab // 2] = -torch.inf
        picker = Picker([SamplingParams(1, temperature=t) for t in temperatures], vocab, torch.device("cpu"))
        expected_tokens, expected = picker.pick(logits, draws)
        for way in (choose, pick):
            tokens, logprobs = torch.zeros(rows, dtype=torch.long), torch.full((rows,), torch.nan, dtype=torch.float64)
            way(logits, scales, draws, tokens, logprobs)
            assert tokens.tolist() == expected_tokens.tolist()
            torch.testing.assert_close(logprobs, expected.double(), atol=1e-5, rtol=0)
            broken = logits.clone()
            broken[0, 3], broken[1], broken[5, 7] = torch.nan, torch.nan, torch.inf
            way(broken, scales, draws, tokens, logprobs)
            assert logprobs.isfinite().tolist() == [row not in (0, 1, 5) for row in range(rows)]
            assert int(tokens.min()) >= 0 and int(tokens.max()) < vocab


def fused() -> None:
    """Forward and backward, also with rows further apart than they are long, as behind a product that gives an adapter's part too."""
    for dtype in (torch.float32, torch.bfloat16):
        for heads in (Heads(3, 1, 16), Heads(4, 2, 80), Heads(2, 2, 8)):
            for norms in (False, True):
                expected, found = (tried(steps, torch.device("cpu"), dtype, heads, norms) for steps in (PLAIN, FUSED))
                assert expected.keys() == found.keys()
                for name, each in expected.items():
                    if dtype == torch.bfloat16 and name == "gate with adapter":
                        continue  # the interpreter multiplies matrices of bfloat16 as if they were integers
                    bound = 2e-5 if dtype == torch.float32 else 0.1
                    torch.testing.assert_close(
                        found[name], each, atol=bound, rtol=bound, msg=lambda told, name=name: f"{name}: {told}"
                    )
    torch.manual_seed(0)
    heads, apart = Heads(3, 1, 16), torch.randn(5, 96)
    cos, sin = torch.randn(5, 1, 8), torch.randn(5, 1, 8)
    for found, each in zip(FUSED.rotate(apart[:, :80], heads, None, cos, sin, 1e-6),
                           PLAIN.rotate(apart[:, :80].contiguous(), heads, None, cos, sin, 1e-6), strict=True):  # fmt: skip
        torch.testing.assert_close(found, each)
    torch.testing.assert_close(FUSED.gate(apart[:, :90], None), PLAIN.gate(apart[:, :90], None))
    with torch.no_grad():
        x, weight = torch.randn(5, 60), torch.randn(60)
        theirs, ours = (
            PLAIN.add_norm(x, apart[:, :60], weight, 1e-6, x.dtype),
            FUSED.add_norm(x, apart[:, :60], weight, 1e-6, x.dtype),
        )
        torch.testing.assert_close(ours[0], theirs[0])
        torch.testing.assert_close(ours[1], theirs[1])


def told(check: Callable[[], None]) -> str:
    try:
        check()
        return "equal"
    except Exception:
        return traceback.format_exc()


if __name__ == "__main__":
    print(json.dumps({check.__name__: told(check) for check in (paged, prefill, picking, fused)}))
