"""Several adapters in one pass, so that sequences of different weights share a batch.

The low-rank matrices of all adapters stand behind each other. Between the two products each token keeps what its own
adapter made of it, and the rest becomes zero. So a step over rows of three runs costs little more than one over as many
rows of one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moot.engine.local.adapter import tensors
from moot.engine.local.memory import upload
from moot.engine.local.network import SLOTS, Adapter, Network

COUNTS = (2, 4, SLOTS)
"""How many adapters a captured step may have room for: each number is captured apart, and empty room costs time."""

Kind = tuple[Any, ...]


@dataclass(eq=False)
class Weights:
    """What one sampler runs. Its identity tells whose cached keys are whose."""

    key: int
    adapter: Adapter
    sound: bool = True
    """All of its numbers are finite. Rows of other weights meet them too, times zero, which infinity would spoil."""


@dataclass(frozen=True)
class Together:
    """The adapters of a pass: one for all of its tokens, or several behind each other."""

    kind: Kind
    """What must be equal for two to share a captured step."""
    adapter: Adapter
    slots: Mapping[int, int] = field(default_factory=dict)
    """Where each stands, by its id. Empty where all tokens have the same."""
    count: int = 1

    def slot(self, adapter: Adapter) -> int:
        """-1 is the base model's."""
        return self.slots.get(id(adapter), -1)

    def of_tokens(self, slots: Tensor) -> Adapter:
        """For tokens whose adapters stand in these slots."""
        others = slots[:, None] != torch.arange(self.count, device=slots.device)
        return [{name: replace(low, others=others) for name, low in layer.items()} for layer in self.adapter]

    def of_sequences(self, adapters: Sequence[Adapter], tokens: int | Sequence[int], device: torch.device) -> Adapter:
        """For sequences of these adapters, each with so many tokens."""
        if not self.slots:
            return self.adapter
        slots = np.repeat([self.slot(adapter) for adapter in adapters], tokens)
        return self.of_tokens(upload(slots.astype(np.int64), device))


def fit_together(weights: Iterable[Weights]) -> bool:
    """Whether they can run in one pass."""
    given = list({item.key: item for item in weights}.values())
    adapters = [item.adapter for item in given if item.adapter]
    alike = len({shape_of(adapter) for adapter in adapters}) < 2
    return len(given) < 2 or (alike and len(adapters) <= SLOTS and all(item.sound for item in given))


def shape_of(adapter: Adapter) -> Kind:
    return tuple(sorted((name, *low.a.shape) for name, low in adapter[0].items())) if adapter else ()


def is_finite(adapter: Adapter) -> bool:
    """With one look at the device."""
    return not adapter or bool(torch.stack(torch._foreach_norm(tensors(adapter))).float().sum().isfinite())


class Seats:
    """The memory in which adapters stand together. What a captured step was captured with stays where it is."""

    def __init__(self, network: Network, captures: bool) -> None:
        """`captures`: even an adapter that is alone is copied to where captured steps read it."""
        self._network, self._captures = network, captures
        self._memory: dict[Kind, Adapter] = {}
        self._kind: Kind = ()
        self.last = Together((), ())
        self._held: list[Adapter | None] = []

    def seat(self, adapters: Iterable[Adapter]) -> Together:
        """Good until other adapters are seated. `()` is the base model."""
        everyone = list(adapters)
        given = {id(adapter): adapter for adapter in everyone if adapter}
        mixed = len(given) > 1 or (bool(given) and not all(everyone))
        if not given or not (mixed or self._captures):
            self.last = Together((), next(iter(given.values()), ()))
            return self.last
        first = next(iter(given.values()))
        count = next(count for count in COUNTS if count >= len(given)) if mixed else 1
        kind = (shape_of(first), count)
        if kind not in self._memory:
            self._memory[kind] = self._network.seats(first, count)
        if self._kind != kind:  # all kinds stand in the same place
            self._kind, self._held = kind, [None] * count
        for adapter in given.values():
            if not any(held is adapter for held in self._held):
                slot = next(slot for slot, held in enumerate(self._held) if id(held) not in given)
                _write(self._memory[kind], slot, adapter)
                self._held[slot] = adapter
        slots = {id(adapter): slot for slot, adapter in enumerate(self._held) if id(adapter) in given}
        self.last = Together(kind, self._memory[kind], slots if mixed else {}, count)
        return self.last


def _write(memory: Adapter, slot: int, adapter: Adapter) -> None:
    places, values = list[Tensor](), list[Tensor]()
    for layer, given in zip(memory, adapter, strict=True):
        for name, low in given.items():
            ranks = len(low.a)
            here = slice(slot * ranks, (slot + 1) * ranks)
            places += [layer[name].a[here], layer[name].b[:, here]]
            values += [low.a, low.b]
    torch._foreach_copy_(places, values)
