"""The key-value cache: one bounded store of fixed pages, owned by sequences.

A finished sequence stays until its pages are needed, so that the next turn of its debate prefills only what is new.
A second sequence with the same beginning has the same pages where the decoder can read them so, counted, up to the last
one, which both
will write to. Where it cannot, and for that last page, it gets a copy, which costs a thousandth of computing it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from moot.engine.local.memory import free_failed, out_of_memory, retry_on_oom, upload
from moot.engine.protocol import Ints

REST = 2.0
"""Seconds for which a store does not try to grow after it was refused: to try takes time too, and others keep memory
for longer."""
PAGE = 128
"""Tokens a page. Long enough for one matrix product, short enough that the unused half of the last one does not
matter."""


class OutOfPages(Exception):
    """Nothing idle is left to evict."""


@dataclass(eq=False)
class Cached:
    """One sequence's share of the store."""

    owner: int
    """Whose weights made it: keys of other weights are of no use."""
    tokens: Ints
    """Those whose keys and values are stored, in order."""
    pages: list[int] = field(default_factory=list)
    reusable: int = 0
    """How many of them another sequence may take over."""
    active: bool = True
    used: int = 0


class PageStore:
    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        max_bytes: int,
        first_part: int = 1,
    ) -> None:
        """`first_part`: begin with one in so many pages, and take more as they are needed."""
        page_bytes = page_size(layers, kv_heads, head_dim, dtype)
        self.count = max_bytes // page_bytes
        if self.count < 2:
            raise ValueError(
                f"the cache bound of {max_bytes} bytes holds {self.count} pages of {page_bytes} bytes; at least 2 are "
                "needed"
            )
        self.scratch = 0
        """One page more, which nobody owns: a place for what is never read."""
        self.held = self._first = max(2, -(-self.count // first_part))  # rounded up: the last doubling is a whole one
        """Pages that there is memory for by now."""
        self.version = 0
        """Another one where the pages stand in other memory."""
        self._all = _zeros((layers, 2, self.held + 1, kv_heads, PAGE, head_dim), dtype, device)
        self.refused = 0
        """How often there was no memory to grow."""
        self._rests_until = 0.0
        self.keys: list[Tensor] = [layer[0] for layer in self._all]
        self.values: list[Tensor] = [layer[1] for layer in self._all]
        self._free = list(range(1, self.held + 1))  # a heap: low pages first keeps them dense
        self._users, self._active = [0] * (self.count + 1), [0] * (self.count + 1)
        """Of each page: the sequences that have it, and those of them that run."""
        self._idle = 0
        """Pages that only idle sequences have."""
        self._sequences: list[Cached] = []
        self.least_of_use: Callable[[PageStore, list[Cached]], Cached] = lambda _, idle: min(
            idle, key=lambda item: item.used
        )
        """Whom to forget. Who knows what will be asked for next may say better than that it is the oldest."""
        self._clock = 0
        self.evictions = 0

    @property
    def tokens(self) -> int:
        """How long a single sequence may be."""
        return self.count * PAGE

    @property
    def to_come(self) -> int:
        """Bytes that it may still take."""
        return (self.count - self.held) * (self._all.nbytes // (self.held + 1))

    @property
    def free_pages(self) -> int:
        """Free, or idle and so free for the asking, or not yet taken from the device where it may have them."""
        return len(self._free) + self._idle + (0 if self._resting() else self.count - self.held)

    def find(self, owner: int, prompt: Ints) -> tuple[Cached | None, int]:
        """The sequence that shares the longest beginning with the prompt, and how long that is."""
        best, length = None, 0
        for item in self._sequences:
            if item.owner != owner or item.reusable <= length:
                continue
            if length == len(prompt) or item.tokens[length] != prompt[length]:
                continue  # most end here: what is not longer than the best so far need not be measured
            shared = common_prefix(item.tokens[: item.reusable], prompt)
            if shared > length:
                best, length = item, shared
        return best, length

    def start(self, owner: int, prompt: Ints, source: Cached | None, keep: int, share: bool = False) -> Cached:
        """A sequence that holds the first `keep` tokens of `source` and has room for the prompt. `share`: whole pages
        of them are the source's own, not copies. Raises OutOfPages, changing nothing."""
        if source is not None and not source.active and keep == source.reusable:
            item = source  # nobody else needs its end: take it over
            self._set_active(item, True)
            before = item.tokens
            item.tokens = prompt[:keep]
            try:
                self.grow(item, len(prompt))
            except BaseException:
                self._set_active(item, False)
                item.tokens = before
                raise
            return item
        item = Cached(owner, prompt[:keep])
        if source is None or not keep:
            self.grow(item, len(prompt))
        else:
            whole, pages = keep // PAGE if share else 0, -(-keep // PAGE)
            self._add(item, source.pages[:whole])
            idle = not source.active
            if idle:
                self._set_active(source, True)  # not to be evicted while it is being copied
            try:
                self.grow(item, len(prompt))
                if pages > whole:
                    self._copy(source.pages[whole:pages], item.pages[whole:pages])
            except BaseException:
                self._cut(item, 0)
                raise
            finally:
                if idle:
                    self._set_active(source, False)
                    self._touch(source)
        self._sequences.append(item)
        return item

    def grow(self, item: Cached, length: int) -> bool:
        """Pages for `length` tokens, evicting idle sequences if needed; True if any were added. Raises OutOfPages,
        changing nothing."""
        needed = -(-length // PAGE) - len(item.pages)
        if needed <= 0:
            self._cut(item, len(item.pages) + needed)
            return needed < 0
        while len(self._free) < needed:
            if self._enlarge(needed):
                continue
            idle = [other for other in self._sequences if not other.active]
            if idle:
                self.drop(self.least_of_use(self, idle))
                self.evictions += 1
            else:
                raise OutOfPages
        self._add(item, [heapq.heappop(self._free) for _ in range(needed)])
        return True

    def _enlarge(self, needed: int) -> bool:
        """Take twice the memory, up to the bound. False where there is no more; then idle sequences go."""
        if self.held == self.count or self._resting():
            return False
        least = min(self.count, self.held + needed)
        for held in dict.fromkeys((min(self.count, max(2 * self.held, least)), least)):
            larger = self._made(held)
            if larger is not None:
                larger[:, :, : self.held + 1] = self._all
                for page_id in range(self.held + 1, held + 1):
                    heapq.heappush(self._free, page_id)
                self._move(larger, held)
                return True
        self.refused += 1
        self._rests_until = time.monotonic() + REST
        return False

    def shrink(self) -> bool:
        """Forget all and give the memory back, but for the first part. False where somebody reads it, or there is no
        more than that."""
        if self.held == self._first or any(item.active for item in self._sequences):
            return False
        smaller = self._made(self._first)
        if smaller is None:
            return False
        for item in list(self._sequences):
            self.drop(item)
        self._free = list(range(1, self._first + 1))
        self._move(smaller, self._first)
        return True

    def _made(self, held: int) -> Tensor | None:
        """So many pages, empty; None where there is no memory for them."""
        layers, two, _, *page = self._all.shape
        try:
            with torch.inference_mode(False):
                return _zeros((layers, two, held + 1, *page), self._all.dtype, self._all.device)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            free_failed(error)
            return None

    def _move(self, pages: Tensor, held: int) -> None:
        self._all, self.held = pages, held
        self.keys, self.values = [layer[0] for layer in pages], [layer[1] for layer in pages]
        self.version += 1

    def _resting(self) -> bool:
        return time.monotonic() < self._rests_until

    def retire(self, item: Cached) -> None:
        """Done for now; kept until its pages are needed."""
        self._cut(item, -(-len(item.tokens) // PAGE))
        self._set_active(item, False)
        self._touch(item)

    def drop(self, item: Cached, scrub: bool = False) -> None:
        """Free its pages. `scrub` clears those that nobody else has: a value that is not finite would outlive its
        owner."""
        own = [page for page in item.pages if self._users[page] == 1]
        for page in own if scrub else ():
            self._all[:, :, page] = 0  # one by one: this takes no memory, of which there may be none
        self._cut(item, 0)
        item.active = False
        if item in self._sequences:
            self._sequences.remove(item)

    def forget(self, owner: int) -> None:
        """Its weights are gone: what they made is of no use."""
        for item in [item for item in self._sequences if item.owner == owner and not item.active]:
            self.drop(item)

    def _touch(self, item: Cached) -> None:
        self._clock += 1
        item.used = self._clock

    def _add(self, item: Cached, pages: Sequence[int]) -> None:
        for page in pages:
            self._count(page, 1, int(item.active))
        item.pages.extend(pages)

    def _cut(self, item: Cached, length: int) -> None:
        """Give up the pages from this one on."""
        for page in item.pages[length:]:
            self._count(page, -1, -int(item.active))
            if not self._users[page]:
                heapq.heappush(self._free, page)
        del item.pages[length:]

    def _set_active(self, item: Cached, active: bool) -> None:
        for page in item.pages:
            self._count(page, 0, int(active) - int(item.active))
        item.active = active

    def _count(self, page: int, users: int, active: int) -> None:
        before = self._users[page] > 0 and not self._active[page]
        self._users[page] += users
        self._active[page] += active
        self._idle += (self._users[page] > 0 and not self._active[page]) - before

    def _copy(self, source: Sequence[int], target: Sequence[int]) -> None:
        device = self._all.device
        self._all[:, :, upload(np.array(target), device)] = self._all[:, :, upload(np.array(source), device)]


def page_size(layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Bytes of a page."""
    return layers * 2 * kv_heads * PAGE * head_dim * dtype.itemsize


def make_store(
    layers: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    max_bytes: int,
    first_part: int = 1,
) -> tuple[PageStore, tuple[str, ...]]:
    """A store within the bound, or a smaller one where others took the memory in the meantime, and a note that says
    so."""
    bound, least = max_bytes, min(max_bytes, 2 * page_size(layers, kv_heads, head_dim, dtype))
    while bound > least:
        try:
            store = PageStore(layers, kv_heads, head_dim, dtype, device, bound, first_part)
            break
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            free_failed(error)
            bound = max(least, bound // 2)
    else:
        what = f"there is no room for a cache of {least / (1 << 20):.3g} MiB: "
        store = retry_on_oom(lambda: PageStore(layers, kv_heads, head_dim, dtype, device, least), what)
    if bound == max_bytes:
        return store, ()
    return store, (f"out of memory: the cache has {bound / (1 << 30):.2g} GiB instead of {max_bytes / (1 << 30):.2g}",)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, not empty: what is masked still passes through a product, and 0 times garbage must stay 0."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy asks the system for zeroed memory, which is not taken before it is written; torch would write it all.
    return torch.from_numpy(np.zeros(int(np.prod(shape)) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)


def begin_alike(left: Ints, right: Ints, count: int) -> bool:
    """For at least so many tokens. Most that do not differ in the last of them, which is quickly seen."""
    return (
        min(len(left), len(right)) >= count
        and left[count - 1] == right[count - 1]
        and bool((left[:count] == right[:count]).all())
    )


def common_prefix(left: Ints, right: Ints) -> int:
    size = min(len(left), len(right))
    differ = np.flatnonzero(left[:size] != right[:size])
    return int(differ[0]) if len(differ) else size
