"""Turns to datums, with made-up tokens: what is merged, what is shifted, what each position carries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.debate.scores import EVERY
from moot.engine.protocol import Datum
from moot.tokens.datums import datums, merge
from moot.tokens.turn import Advantages, SampledTurn
from support.making import debate, v1, v2


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def turn(prompt: Sequence[int], tokens: Sequence[int], extends: bool = False, temperature: float = 1.0) -> SampledTurn:
    """Logprobs are -token/100, so that a misplaced one shows."""
    return SampledTurn(
        prompt=ints(*prompt),
        extends=extends,
        tokens=ints(*tokens),
        logprobs=floats(*(-token / 100 for token in tokens)),
        starts=np.arange(len(tokens), dtype=np.int32),
        temperature=temperature,
    )


def check(datum: Datum, tokens: list[int], targets: list[int], mask: list[int], advantages: list[float]) -> None:
    assert datum.tokens.tolist() == tokens
    assert datum.targets.tolist() == targets
    assert datum.mask.tolist() == mask
    assert datum.advantages.tolist() == advantages
    assert np.allclose(
        datum.logprobs, [-target / 100 if acted else 0 for target, acted in zip(targets, mask, strict=True)]
    )


def test_one_turn_shifted_by_hand() -> None:
    """Sequence 1 2 3 | 7 8: inputs 1 2 3 7, targets 2 3 7 8; the targets 7 and 8 were sampled."""
    (datum,) = merge([turn([1, 2, 3], [7, 8])], [floats(0.5, 0.25)])
    check(datum, [1, 2, 3, 7], [2, 3, 7, 8], [0, 0, 1, 1], [0, 0, 0.5, 0.25])


def test_a_turn_that_extends_brings_only_what_is_new() -> None:
    """1 2 | 7 8 | 3 | 9: one datum."""
    (datum,) = merge([turn([1, 2], [7, 8]), turn([3], [9], extends=True)], [floats(1, 1), floats(2)])
    check(datum, [1, 2, 7, 8, 3], [2, 7, 8, 3, 9], [0, 1, 1, 0, 1], [0, 1, 1, 0, 2])


def test_a_whole_prompt_that_begins_with_all_before_it_goes_on_in_the_same_datum() -> None:
    (datum,) = merge([turn([1, 2], [7, 8]), turn([1, 2, 7, 8, 3], [9])], [floats(1, 1), floats(2)])
    check(datum, [1, 2, 7, 8, 3], [2, 7, 8, 3, 9], [0, 1, 1, 0, 1], [0, 1, 1, 0, 2])


@pytest.mark.parametrize("prompt", [[1, 2, 7, 9, 3], [1, 2, 7], [1, 2], [0, 1, 2, 7, 8], [4]])
def test_any_other_prompt_starts_a_new_one(prompt: list[int]) -> None:
    first, second = merge([turn([1, 2], [7, 8]), turn(prompt, [9])], [floats(1, 1), floats(2)])
    check(first, [1, 2, 7], [2, 7, 8], [0, 1, 1], [0, 1, 1])
    whole = [*prompt, 9]
    check(second, whole[:-1], whole[1:], [0] * (len(whole) - 2) + [1], [0.0] * (len(whole) - 2) + [2.0])


def test_a_new_one_can_be_gone_on_with() -> None:
    found = list(
        merge([turn([1], [7]), turn([2], [8]), turn([3], [9], extends=True)], [floats(1), floats(2), floats(3)])
    )
    assert [datum.targets.tolist() for datum in found] == [[7], [8, 3, 9]]


def test_another_temperature_is_another_datum() -> None:
    """An engine divides by one temperature a datum."""
    first, second = merge(
        [turn([1], [7], temperature=0.6), turn([1, 7, 2], [8], temperature=1.0)], [floats(1), floats(1)]
    )
    assert (first.temperature, second.temperature) == (0.6, 1.0)
    assert second.tokens.tolist() == [1, 7, 2]


def test_a_turn_cannot_extend_one_of_another_temperature() -> None:
    with pytest.raises(ValueError, match="temperature"):
        list(merge([turn([1], [7], temperature=0.6), turn([2], [8], extends=True)], [floats(1), floats(1)]))


def test_no_turns_give_no_datum() -> None:
    assert list(merge([], [])) == []


def test_a_turn_that_sampled_nothing_carries_nothing() -> None:
    (datum,) = merge([turn([1, 2], []), turn([3], [9], extends=True)], [floats(), floats(2)])
    check(datum, [1, 2, 3], [2, 3, 9], [0, 0, 1], [0, 0, 2])


@st.composite
def trajectories(draw: st.DrawFn) -> tuple[list[SampledTurn], list[np.ndarray]]:
    """Random turns of one agent: some extend, some bring the whole prompt, some start anew."""
    token = st.integers(0, 50)
    turns: list[SampledTurn] = []
    context: list[int] = []
    for i in range(draw(st.integers(1, 6))):
        new = draw(st.lists(token, min_size=1, max_size=8))
        said = draw(st.lists(token, min_size=0, max_size=8))
        how = draw(st.sampled_from(["extends", "whole", "anew"])) if i else "anew"
        prompt = new if how != "whole" else [*context, *new]
        # A fresh prompt that happens to begin with the context would be merged, rightly; a token of its own keeps it apart.
        prompt = [99 + i, *prompt] if how == "anew" else prompt
        turns.append(turn(prompt, said, extends=how == "extends"))
        context = ([*context, *new] if how != "anew" else prompt) + said
    values = [
        np.array(draw(st.lists(st.integers(-3, 3), min_size=len(t.tokens), max_size=len(t.tokens))), dtype=np.float32)
        for t in turns
    ]
    return turns, values


@settings(max_examples=300)
@given(trajectories())
def test_datums_carry_exactly_the_tokens_logprobs_and_advantages_of_their_turns(
    given_turns: tuple[list[SampledTurn], list[np.ndarray]],
) -> None:
    turns, values = given_turns
    made = list(merge(turns, values))
    acted = [datum.mask > 0 for datum in made]
    for name, pieces in (
        ("targets", [t.tokens for t in turns]),
        ("logprobs", [t.logprobs for t in turns]),
        ("advantages", values),
    ):
        found = np.concatenate([getattr(datum, name)[mask] for datum, mask in zip(made, acted, strict=True)])
        assert np.array_equal(found, np.concatenate(pieces)), name
    assert all(
        not datum.logprobs[~mask].any() and not datum.advantages[~mask].any()
        for datum, mask in zip(made, acted, strict=True)
    )
    assert len(made) == sum(int(t.prompt[0]) == 99 + i for i, t in enumerate(turns)), (
        "one for each turn that starts anew"
    )


@settings(max_examples=300)
@given(trajectories())
def test_targets_are_the_tokens_one_place_on(given_turns: tuple[list[SampledTurn], list[np.ndarray]]) -> None:
    for datum in merge(*given_turns):
        assert np.array_equal(datum.tokens[1:], datum.targets[:-1])
        lengths = {len(datum.tokens), len(datum.targets), len(datum.logprobs), len(datum.advantages), len(datum.mask)}
        assert lengths == {len(datum)}
        assert (datum.tokens.dtype, datum.logprobs.dtype, datum.mask.dtype) == (np.int32, np.float32, np.float32)


# From a debate


def test_rewards_by_agent_reach_every_token_of_the_agent() -> None:
    """Two agents, two rounds, rebuilt: four datums, agent by agent, 0.5 and -0.5 on whatever was sampled."""
    played = debate(v1(), [["", ""], ["", ""]])
    sampled = [turn([1, i], [7, 8]) for i in range(4)]
    made = datums(played, sampled, Advantages.per_agent((0.5, -0.5)))
    # Turns 0 and 2 are Agent 0's, 1 and 3 Agent 1's.
    assert [datum.tokens.tolist() for datum in made] == [[1, 0, 7], [1, 2, 7], [1, 1, 7], [1, 3, 7]]
    assert [datum.advantages.tolist() for datum in made] == [[0, 0.5, 0.5]] * 2 + [[0, -0.5, -0.5]] * 2


def test_a_users_rewards_by_step_reach_every_token_of_the_step() -> None:
    played = debate(v2(), [["", ""], ["", ""]])
    sampled = [turn([1], [7, 8]), turn([1], [7, 8]), turn([3], [9], extends=True), turn([3], [9], extends=True)]
    made = datums(played, sampled, Advantages({"step": ((1.0, 2.0), (3.0, 4.0))}, {EVERY: "step"}))
    assert [datum.advantages.tolist() for datum in made] == [[1, 1, 0, 2], [3, 3, 0, 4]]


def test_a_datum_of_unequal_arrays_is_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        Datum(ints(1), ints(1), floats(0), floats(0), floats())
