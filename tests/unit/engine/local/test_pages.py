"""The store of pages: who has which, what is free, and what a shared page outlives."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.engine.local.batch import least_of_use
from moot.engine.local.pages import PAGE, Cached, OutOfPages, PageStore, page_size


def make(pages: int = 12, first_part: int = 1) -> PageStore:
    return PageStore(1, 1, 2, torch.float32, torch.device("cpu"), pages * 2 * PAGE * 2 * 4, first_part)


def write(store: PageStore, item: Cached, prompt: np.ndarray) -> None:
    """As a prefill does: the keys of a token are the token, here."""
    at = torch.arange(len(item.tokens), len(prompt))
    store.keys[0][torch.tensor(item.pages)[at // PAGE], 0, at % PAGE] = torch.from_numpy(prompt)[at, None].float()
    item.tokens, item.reusable = prompt, len(prompt)


def stored(store: PageStore, item: Cached) -> list[int]:
    kept: list[int] = (
        store.keys[0][torch.tensor(item.pages, dtype=torch.long), 0, :, 0].flatten()[: len(item.tokens)].int().tolist()
    )
    return kept


def check(store: PageStore) -> None:
    users = [page for item in store._sequences for page in item.pages]
    running = {page for item in store._sequences if item.active for page in item.pages}
    assert sorted(store._free) == sorted(set(range(1, store.held + 1)) - set(users))
    assert store.free_pages == (store.held if store._resting() else store.count) - len(running)
    assert [users.count(page) for page in range(store.count + 1)] == store._users


def test_a_second_sequence_has_the_whole_pages_of_the_first_and_a_copy_of_the_last() -> None:
    """300 tokens are two pages and 44 tokens. The first goes, and what the second reads stays."""
    store, prompt = make(), np.arange(300)
    first = store.start(0, prompt, None, 0)
    write(store, first, prompt)
    other = np.append(prompt, [7, 8])
    second = store.start(0, other, first, 300, share=True)
    write(store, second, other)
    assert second.pages[:2] == first.pages[:2] and second.pages[2] != first.pages[2]
    assert store.free_pages == 12 - 4
    check(store)
    store.drop(first, scrub=True)
    check(store)
    assert store.free_pages == 12 - 3
    assert stored(store, second) == other.tolist()


def test_what_does_not_fit_changes_nothing() -> None:
    store, prompt = make(4), np.arange(300)
    first = store.start(0, prompt, None, 0)
    write(store, first, prompt)
    with pytest.raises(OutOfPages):
        store.start(0, np.arange(520), first, 300, share=True)
    check(store)
    assert store.free_pages == 1 and len(store._sequences) == 1


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 420)), max_size=25),
    st.booleans(),
    st.sampled_from([1, 6]),
)
def test_whatever_comes_and_goes_every_sequence_reads_what_it_wrote(
    steps: list[tuple[int, int, int]], share: bool, first_part: int
) -> None:
    """Also where the store begins with 2 of its 12 pages, and takes more as they are needed."""
    store, running = make(first_part=first_part), list[Cached]()
    texts = [np.append(np.arange(280) % 50, np.full(300, kind)) for kind in (50, 51, 52)]
    for action, which, length in steps:
        if action == 0 and running:
            store.retire(running.pop(which % len(running)))
        elif action == 1 and running:
            store.drop(running.pop(which % len(running)), scrub=True)
        else:
            prompt = texts[which % 3][:length]
            source, keep = store.find(0, prompt)
            try:
                item = store.start(0, prompt, source, min(keep, length - 1), share)
            except OutOfPages:
                pass
            else:
                write(store, item, prompt)
                running.append(item)
        check(store)
        for item in store._sequences:
            assert stored(store, item) == item.tokens.tolist()


def test_a_store_grows_before_it_forgets_and_forgets_where_it_cannot_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 pages of 12 at first. Idle sequences are kept while there is memory; then the oldest go; memory is asked for again later."""
    from moot.engine.local import pages

    store, zeros, room, now = make(first_part=6), pages._zeros, 5, 100.0
    monkeypatch.setattr(pages.time, "monotonic", lambda: now)

    def limited(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        if shape[2] > room:
            raise torch.OutOfMemoryError("no room")
        return zeros(shape, dtype, device)

    monkeypatch.setattr(pages, "_zeros", limited)
    assert (store.held, store.free_pages, store.tokens) == (2, 12, 12 * PAGE)
    assert store.to_come == 10 * page_size(1, 1, 2, torch.float32)
    first = store.start(0, np.arange(200), None, 0)
    write(store, first, np.arange(200))
    store.retire(first)
    second = store.start(0, np.arange(1000, 1200), None, 0)
    write(store, second, np.arange(1000, 1200))
    assert (store.held, store.version, store.evictions) == (4, 1, 0) and stored(store, first) == list(range(200))
    third = store.start(0, np.arange(2000, 2200), None, 0)  # no memory for 8 pages: the idle one goes
    assert (store.held, store.version, store.evictions) == (4, 1, 1)
    with pytest.raises(OutOfPages):
        store.grow(third, 300)
    assert store.refused == 1, "it is not asked for at every turn"
    check(store)
    room, now = 13, 100 + pages.REST
    store.grow(third, 300)
    assert (store.held, store.version) == (8, 2) and stored(store, second) == list(range(1000, 1200))
    check(store)


def test_a_store_that_cannot_double_takes_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 of 12 pages, and memory for 6: one page more is found, 4 more are not."""
    from moot.engine.local import pages

    store, zeros = make(first_part=3), pages._zeros

    def limited(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        if shape[2] > 7:
            raise torch.OutOfMemoryError("no room")
        return zeros(shape, dtype, device)

    monkeypatch.setattr(pages, "_zeros", limited)
    item = store.start(0, np.arange(4 * PAGE), None, 0)
    write(store, item, np.arange(4 * PAGE))
    assert store.grow(item, 4 * PAGE + 1)
    assert (store.held, store.refused) == (5, 0) and stored(store, item) == list(range(4 * PAGE))
    check(store)


@pytest.mark.parametrize("count", [1000, 3263, 6401])
def test_the_last_growth_doubles_like_the_others(count: int) -> None:
    """From 1,616 to 3,232 and then to 3,263 pages: that step had to hold twice the bound to gain 31 pages."""
    store = make(count, first_part=32)
    sizes = [store.held]
    while store._enlarge(1):
        sizes.append(store.held)
    assert sizes[-1] == count and len(sizes) == 6
    assert all(larger >= 1.5 * smaller for smaller, larger in pairwise(sizes[:-1])) and sizes[-2] <= 0.6 * count


def test_a_store_gives_back_what_only_idle_sequences_have_and_grows_again() -> None:
    store = make(first_part=6)
    idle = [store.start(0, np.arange(1000 * number, 1000 * number + 200), None, 0) for number in range(3)]
    for number, item in enumerate(idle):
        write(store, item, np.arange(1000 * number, 1000 * number + 200))
        store.retire(item)
    held, version = store.held, store.version
    assert held == 8
    running = store.start(0, np.arange(5000, 5100), None, 0)
    assert not store.shrink(), "somebody reads it"
    store.retire(running)
    assert (
        store.shrink()
        and (store.held, store.version) == (2, version + 1)
        and store.find(0, np.arange(200)) == (None, 0)
    )
    assert not store.shrink(), "there is no more to give"
    check(store)
    again = store.start(0, np.arange(700), None, 0)
    write(store, again, np.arange(700))
    assert store.held == 8 and stored(store, again) == list(range(700))
    check(store)


def test_a_sequence_whose_copy_finds_no_memory_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make()
    source = store.start(0, np.arange(200), None, 0)
    write(store, source, np.arange(200))
    source.reusable = 200
    store.retire(source)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(store, "_copy", full)
    with pytest.raises(torch.OutOfMemoryError):
        store.start(0, np.arange(300), source, 150)
    assert store._sequences == [source] and not source.active
    check(store)


def test_the_oldest_nobody_waits_for_is_forgotten_then_the_one_whose_turn_is_last() -> None:
    store = make()
    kept = [store.start(0, np.arange(100 * number, 100 * number + 50), None, 0) for number in range(6)]
    for item in kept:
        item.tokens = np.arange(100 * kept.index(item), 100 * kept.index(item) + 50)
        item.reusable = 50
        store.retire(item)
    queue: deque[Any] = deque()
    for number in (2, 0, 3, 2, 4, 9):  # two continue the third; the last begins anew
        known = np.arange(100 * number, 100 * number + 90)
        queue.append(
            SimpleNamespace(weights=SimpleNamespace(key=0), known=lambda known=known: known, source=None, sought=False)
        )
    order, left = list[int](), list(kept)
    while left:
        left.remove(chosen := least_of_use(queue, store, left))
        order.append(kept.index(chosen))
    assert order == [1, 5, 4, 3, 0, 2]
