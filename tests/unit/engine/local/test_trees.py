"""Datums that begin alike are computed as one tree, and nobody can tell but by the count of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moot.engine.local import attention
from moot.engine.local import prefix_packing as trees
from moot.engine.local.prefix_packing import pieces, plant, tree_attention
from moot.engine.protocol import Datum
from support.datums import datum

CPU = torch.device("cpu")


def debate(
    agents: int = 3, rounds: int = 3, opening: int = 90, end: int = 10, said: int = 20, seed: int = 0
) -> list[Datum]:
    """As layout shared has it: all that was said stands in front, then the end of the seat, then its turn, which is trained on."""
    rng = np.random.default_rng(seed)
    transcript, made = rng.integers(0, 64, opening), []
    for round in range(rounds):
        turns = [rng.integers(0, 64, said) for _ in range(agents)]
        for agent, turn in enumerate(turns):
            tokens = np.concatenate([transcript, [agent, round], rng.integers(0, 64, end - 2), turn])
            mask = np.arange(len(tokens) - 1) >= len(transcript) + end - 1
            old, credit = rng.normal(size=(2, len(mask))) * mask
            made.append(
                datum(mask, tokens[:-1], tokens[1:], -4.0 - np.abs(old) * mask, credit, temperature=0.6 + 0.2 * agent)
            )
        transcript = np.concatenate([transcript, *turns])
    return made


def gradients(
    engine: Any, datums: list[Datum], loss: str = "importance_sampling"
) -> tuple[Any, dict[str, torch.Tensor]]:
    out = engine.forward_backward(datums, loss).result()
    found, engine._trainer.gradient = engine._trainer.gradient, {}
    return out, found


def assert_alike(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Within 1e-5 of the largest number of the gradient, everywhere."""
    assert found.keys() == expected.keys()
    largest = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        assert float((found[name] - value).abs().max()) <= 1e-5 * largest, name


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("options", [{}, {"gradient_checkpointing": True}, {"token_budget": 300}], ids=str)
def test_gradients_of_trees_are_those_of_plain_datums(
    make_engine: Callable[..., Any], family: str, options: dict[str, Any]
) -> None:
    engine = make_engine(family, **options)
    with torch.no_grad():
        for parameter in engine._trainer.parameters.values():
            parameter.normal_(
                0, 0.1, generator=torch.Generator().manual_seed(1)
            )  # at the start half of the gradient is 0
    datums = debate()
    tree, in_trees = gradients(engine, datums)
    engine._trainer.share = False
    plain, in_rows = gradients(engine, datums)
    assert tree.metrics["tokens"] == plain.metrics["tokens"] == plain.metrics["computed_tokens"]
    assert tree.metrics["computed_tokens"] < 0.6 * plain.metrics["computed_tokens"]
    assert tree.loss == pytest.approx(plain.loss, rel=1e-5)
    for ours, theirs in zip(tree.logprobs, plain.logprobs, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert_alike(in_trees, in_rows)


def test_a_debate_of_5_agents_and_3_rounds_computes_its_transcript_once(make_engine: Callable[..., Any]) -> None:
    """Opening 100, ends of 10, turns of 20. Plain: 15 datums without their last token, 5 x (129 + 229 + 329). In trees: the transcript up
    to round 3 once, 100 + 200, and 15 times what is a turn's own, 29."""
    engine = make_engine()
    out, _ = gradients(engine, debate(agents=5, opening=100))
    assert out.metrics["tokens"] == 5 * (129 + 229 + 329) == 3435
    assert out.metrics["computed_tokens"] == 300 + 15 * 29 == 735


def test_trained_tokens_may_stand_in_what_is_shared(make_engine: Callable[..., Any]) -> None:
    """The same turn twice, with other advantages: one tree, whose rows are paid twice."""
    engine = make_engine()
    (first,) = debate(agents=1, rounds=1)
    datums = [first, Datum(first.tokens, first.targets, first.logprobs, -0.5 * first.advantages, first.mask, 1.3)]
    tree, in_trees = gradients(engine, datums)
    engine._trainer.share = False
    plain, in_rows = gradients(engine, datums)
    assert tree.metrics["computed_tokens"] == len(first) + 1
    assert tree.loss == pytest.approx(plain.loss, rel=1e-5)
    assert_alike(in_trees, in_rows)


def test_out_of_memory_takes_a_tree_apart(make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    datums = debate()
    calm, expected = gradients(engine, datums)
    hidden = engine._network.hidden

    def limited(tokens: torch.Tensor, *rest: Any) -> Any:
        if len(tokens) > 260:
            raise torch.OutOfMemoryError("no room")
        return hidden(tokens, *rest)

    monkeypatch.setattr(engine._network, "hidden", limited)
    tight, found = gradients(engine, datums)
    assert tight.metrics["out_of_memory"] >= 1 and tight.metrics["micro_batches"] > 1
    assert tight.loss == pytest.approx(calm.loss, rel=1e-5)
    assert_alike(found, expected)


def test_the_deterministic_mode_computes_every_datum_whole(make_engine: Callable[..., Any]) -> None:
    engine = make_engine(deterministic=True)
    assert not engine.capabilities.shares_prefixes
    out, _ = gradients(engine, debate())
    assert out.metrics["computed_tokens"] == out.metrics["tokens"]
    assert make_engine().capabilities.shares_prefixes


# The tree itself


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=8), st.integers(1, 30))
def test_every_token_stands_once_for_all_who_share_what_is_before_it(sequences: list[list[int]], budget: int) -> None:
    arrays = [np.array(sequence, np.int32) for sequence in sequences]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "LEAST_SHARED", 1)
        patch.setattr(trees, "LEAST_PART", 100)
        forest = plant(arrays)
        groups, costs = pieces(arrays, budget)
    rows = np.concatenate([arrays[i][forest.shared[i] :] for i in forest.order])
    assert sum(forest.own) == len(rows)
    for sequence, where in zip(arrays, forest.rows, strict=True):
        assert rows[where].tolist() == sequence.tolist()
    beginnings = {tuple(sequence[: i + 1]) for sequence in sequences for i in range(len(sequence))}
    ends = len(sequences) - len({tuple(sequence) for sequence in sequences})
    assert len(rows) <= len(beginnings) + len(sequences) and len(rows) >= len(beginnings) + ends
    assert sorted(i for group in groups for i in group) == list(range(len(sequences)))
    for group, cost in zip(groups, costs, strict=True):
        assert len(group) == 1 or cost <= max(budget, max(len(sequences[i]) for i in group) + budget // 2)


def test_short_or_small_beginnings_are_left_alone() -> None:
    """63 tokens are too few; 100 of 500 are less than a quarter; 200 of 500 are worth it. What is plain stays in its order."""
    rng = np.random.default_rng(0)

    def pair(shared: int, length: int) -> list[Any]:
        start = rng.integers(0, 64, shared)
        return [
            np.concatenate([start, [first], rng.integers(0, 64, length - shared - 1)]).astype(np.int32)
            for first in (2, 1)
        ]

    for shared, length, expected in ((63, 100, []), (64, 100, [64]), (100, 500, []), (200, 500, [200])):
        forest = plant(pair(shared, length))
        assert [count for count in forest.shared if count] == expected
        assert forest.order == ([1, 0] if expected else [0, 1])


@pytest.mark.parametrize("grouped", [True, False])
def test_on_a_gpu_torchs_function_is_given_fewer_queries_than_keys(
    monkeypatch: pytest.MonkeyPatch, grouped: bool
) -> None:
    """It runs on GPUs alone; in its place one that reads its arguments as the documentation says, the mask at the lower right."""

    def varlen(q: Any, k: Any, v: Any, ends: Any, ends_over: Any, longest: int, longest_over: int) -> torch.Tensor:
        own, whole = ends.diff().tolist(), ends_over.diff().tolist()
        assert (longest, longest_over) == (max(own), max(whole))
        return attention.split_attention(own, whole)(0, q, k, v).view(q.shape)

    monkeypatch.setattr(attention, "_varlen", lambda: (varlen, {}, grouped))
    forest = plant([item.tokens for item in debate()])
    rows, made = sum(forest.own), torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(rows, heads, 8, generator=made) for heads in (4, 2, 2))
    expected = tree_attention(forest, CPU)(0, q, k, v)
    whole = [len(forest.rows[i]) for i in forest.order]
    copies = [x[np.concatenate([forest.rows[i] for i in forest.order])] for x in (k, v)]
    torch.testing.assert_close(attention.ragged_attention(forest.own, CPU, whole)(0, q, *copies), expected)
