"""The same step whatever the server divides by, and the same datum on both sides of the wire."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.engine.protocol import Datum, check_datums, check_loss
from moot.engine.remote.units import REDUCTIONS, Scaled, ScaledBatch, check_untempered, from_wire, summed_loss, to_wire
from support.datums import random_datum

tinker = pytest.importorskip("tinker")


def gradient_on(server: str, calls: list[Scaled], slopes: dict[int, np.ndarray]) -> np.ndarray:
    """What a server that adds up in this way makes of the calls. A datum's own gradient is a given vector."""
    total, divisor = np.zeros(3), 0.0
    for call in calls:
        for each, factor in zip(call.datums, call.factors, strict=True):
            own = len(each) if server == "mean" else 1
            total += slopes[id(each)] * factor / own
            divisor += {"sum": 0, "datums": 1, "mean": 1, "tokens": len(each)}[server]
    return total / (divisor or 1)


@pytest.mark.parametrize("server", REDUCTIONS)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8), cuts=st.sets(st.integers(1, 7)))
def test_the_gradient_is_the_sum_however_the_server_divides_and_however_the_datums_are_split(
    server: str, lengths: list[int], cuts: set[int]
) -> None:
    datums = [random_datum(i, length, 0, 0.0) for i, length in enumerate(lengths)]
    slopes = {id(each): np.random.default_rng(i).normal(size=3) for i, each in enumerate(datums)}
    batch, calls = ScaledBatch(REDUCTIONS[server]), []
    for a, b in pairwise([0, *sorted(c for c in cuts if c < len(datums)), len(datums)]):
        calls += batch.add("ppo", None, datums[a:b])
    np.testing.assert_allclose(gradient_on(server, calls, slopes), sum(slopes.values()), rtol=1e-9, atol=1e-9)


def test_two_datums_of_three_and_five_tokens_on_a_server_that_averages_go_out_six_and_ten_times_as_large() -> None:
    (call,) = ScaledBatch(REDUCTIONS["mean"]).add(
        "importance_sampling", None, [random_datum(0, 3, 0, 0.0), random_datum(0, 5, 0, 0.0)]
    )
    assert call.factors == [6.0, 10.0]


def test_cross_entropy_on_a_server_that_averages_goes_out_as_cispo_with_its_clip_range_closed() -> None:
    (call,) = ScaledBatch(REDUCTIONS["mean"]).add("cross_entropy", None, [random_datum(0, 4, 1, 0.0)])
    (sent,), loss, config = to_wire(call, averaged=True)
    assert (loss, config) == ("cispo", {"clip_low_threshold": 1.0, "clip_high_threshold": 1.0})
    assert sent.loss_fn_inputs["advantages"].data == [0.0, 4.0, 4.0, 4.0]
    assert sent.loss_fn_inputs["logprobs"].data == [0.0] * 4


def test_a_datum_survives_the_sdk_and_its_json() -> None:
    item = random_datum(0, 6, 2, 0.0)
    (sent,), loss, config = to_wire(Scaled("ppo", {"clip_low_threshold": 0.9}, [item], [1.0]), averaged=False)
    assert (loss, config) == ("ppo", {"clip_low_threshold": 0.9})
    assert sent.model_input.to_ints() == item.tokens.tolist()
    assert set(sent.loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}
    for name, array in (("target_tokens", item.targets), ("logprobs", item.logprobs), ("advantages", item.advantages)):
        np.testing.assert_array_equal(sent.loss_fn_inputs[name].to_numpy(), array)
    (weighted,), _, _ = to_wire(Scaled("cross_entropy", None, [item], [1.0]), averaged=False)
    assert weighted.loss_fn_inputs["weights"].data == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_losses_by_formula() -> None:
    item = Datum(
        *(np.array([1, 2], np.int32),) * 2, *(np.array(x, np.float32) for x in ([-1.0, -2.0], [2.0, -1.0], [1.0, 1.0]))
    )
    now = np.array([-1.0 + np.log(1.5), -2.0 + np.log(0.5)], np.float32)
    assert summed_loss("cross_entropy", None, item, now) == pytest.approx(3 - np.log(0.75))
    assert summed_loss("importance_sampling", None, item, now) == pytest.approx(-(1.5 * 2 - 0.5))
    assert summed_loss("ppo", None, item, now) == pytest.approx(-(1.2 * 2 - 0.8))
    assert summed_loss("cispo", None, item, now) == pytest.approx(-(1.2 * 2 * now[0] - 0.8 * now[1]), rel=1e-5)
    told = {"logprobs": {"data": now.tolist()}, "elementwise_loss": {"data": [6.0, 4.0]}}
    logprobs, loss = from_wire(Scaled("ppo", None, [item], [2.0]), [told])
    assert loss == 5.0 and logprobs[0].tolist() == now.tolist()


def test_what_a_server_would_take_in_silence_is_refused_here() -> None:
    with pytest.raises(ValueError, match=r"unknown loss 'grpo'; this engine has cross_entropy"):
        check_loss("grpo", None)
    with pytest.raises(ValueError, match=r"loss 'ppo' has no setting \['epsilon'\]"):
        check_loss("ppo", {"epsilon": 0.2})
    with pytest.raises(ValueError, match="has 5 tokens; between 1 and the context of 4"):
        check_datums([random_datum(0, 5, 0, 0.0)], 4)
    with pytest.raises(ValueError, match=r"temperature 0\.7; a remote engine trains at temperature 1"):
        check_untempered([replace(random_datum(0, 3, 0), temperature=0.7)])
    with pytest.raises(ValueError, match="returned 1 logprobs for 3 tokens"):
        from_wire(Scaled("ppo", None, [random_datum(0, 3, 0, 0.0)], [1.0]), [{"logprobs": {"data": [0.5]}}])
