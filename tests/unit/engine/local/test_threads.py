"""As many threads as the others leave cores for. Who runs beside us, and the clock, are the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from moot.engine.local import shared, threads
from moot.engine.local.threads import Threads, Times, look
from moot.engine.protocol import SamplingParams


class Machine:
    """Cores of which others use so many from one look to the next, while we use two."""

    def __init__(self, others: float = 0.0) -> None:
        self.others, self.now = others, Times(0.0, 0.0, 0.0)

    def __call__(self) -> Times:
        self.now = Times(self.now.clock + 1, self.now.ours + 2, self.now.everyone + 2 + self.others)
        return self.now


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """What was set, on a machine of eight cores. Nothing is changed for the other tests."""
    made, chosen = [], [8]
    monkeypatch.setattr(Threads, "_set", None)
    monkeypatch.setattr(threads, "_cores", lambda: set(range(8)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: chosen[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: (made.append(count), chosen.__setitem__(0, count)))
    yield made


@pytest.mark.parametrize(
    ("others", "count"), [(0.0, 8), (0.2, 8), (0.5, 7), (1.0, 7), (1.2, 7), (2.0, 6), (7.9, 1), (30.0, 1), (-0.1, 8)]
)
def test_each_core_that_others_use_costs_a_thread_and_the_last_one_stays(
    counts: list[int], others: float, count: int
) -> None:
    following = Threads(Machine(others))
    following.follow()
    following.follow()
    assert following.count == count and counts == ([count] if count < 8 else [])


def test_threads_come_back_when_the_others_are_done(counts: list[int]) -> None:
    machine = Machine(4.0)
    following = Threads(machine)
    following.follow()
    machine.others = 0.0
    following.follow()
    assert counts == [4, 8]


def test_a_second_engine_knows_how_many_there_were_before_the_first_one(counts: list[int]) -> None:
    """A new thread of torch's begins with what was set last."""
    Threads(Machine(5.0)).follow()
    assert Threads(Machine()).most == 8
    torch.set_num_threads(2)  # somebody's wish
    assert Threads(Machine()).most == 2


def test_nothing_is_looked_at_twice_within_a_moment_nor_with_one_thread(
    counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(5.0)
    following = Threads(machine)
    monkeypatch.setattr(threads, "time", type("Clock", (), {"monotonic": staticmethod(lambda: 1.4)}))
    following.follow()
    assert machine.now.clock == 1.0
    torch.set_num_threads(1)
    single = Threads(machine)
    monkeypatch.undo()
    single.follow()
    assert machine.now.clock == 2.0


def test_a_system_that_does_not_tell_is_left_alone(counts: list[int]) -> None:
    def silent() -> Times:
        raise FileNotFoundError("/proc/stat")

    Threads(silent).follow()
    assert counts == []


def test_a_real_look_counts_our_own_work_among_everybodys() -> None:
    before = look()
    while look().ours - before.ours < 0.2:
        pass
    after = look()
    assert after.clock > before.clock
    assert after.everyone - before.everyone > 0.1


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_engine_follows_between_steps_and_passes_but_not_where_bits_matter(
    make_engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    followed: list[int] = []

    class Counting:
        def follow(self) -> None:
            followed.append(1)

    monkeypatch.setattr(shared, "Threads", Counting)
    engine = make_engine(deterministic=deterministic)
    sampler = engine.snapshot().result()
    followed.clear()
    asyncio.run(sampler.sample([1, 2, 3], SamplingParams(max_tokens=10, seed=0)))
    assert (len(followed) >= 9) is not deterministic
