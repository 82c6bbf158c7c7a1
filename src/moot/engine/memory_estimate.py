"""What the local engine needs in memory, from a model's shape alone: the forecast of a dry run, and the size of a
training pass.

The activations are counted as network.py keeps them for the backward pass; a test holds the count to what torch keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

GIB = 1 << 30
ADAM = 16
"""Bytes for each trained number: itself, its gradient and Adam's two, in float32."""
PASS_TOKENS = (16384, 2048)
"""Tokens of a training pass on a GPU: as many as fit, from the most that is of use to the least that keeps it busy."""
CPU_PASS = 1536
"""The same on a CPU: what its caches like."""
PART_OF_FREE = 0.8
"""What a pass may take of the memory that is free: kernels need room too, and freed blocks do not always fit again."""
CACHE_PART = {"cpu": 4, "cuda": 2}
"""A cache that nobody gave a size may have one in so many bytes of what the weights leave free. On a CPU other programs
live there too."""
FIRST_PART = 32
"""On a GPU such a cache begins with one in so many of the pages it may come to have. Several runs leave each other room
that way."""


@dataclass(frozen=True)
class Place:
    """Where a model would run."""

    device: Literal["cpu", "cuda"]
    size: int
    """Bytes of a number, 2 for bf16."""
    free: int | None = None
    """Bytes; None where nobody looked."""


@dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    norms_heads: bool = False
    """Queries and keys are normed, head by head."""

    @classmethod
    def of(cls, config: Any) -> Shape:
        """From a configuration of transformers."""
        heads = config.num_attention_heads
        return cls(
            hidden=config.hidden_size,
            layers=config.num_hidden_layers,
            inner=config.intermediate_size,
            heads=heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            vocabulary=config.vocab_size,
            tied=bool(config.tie_word_embeddings),
            norms_heads=config.model_type == "qwen3",
        )

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """Of one layer."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [(self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden)]
        return [*attention, (self.hidden, self.inner), (self.hidden, self.inner), (self.inner, self.hidden)]


def weights_bytes(shape: Shape, size: int) -> int:
    """`size`: bytes of a number, 2 for bf16."""
    return size * (
        shape.layers * sum(a * b for a, b in shape.matrices)
        + shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    )


def adapter_bytes(shape: Shape, rank: int) -> int:
    """With Adam, on all matrices."""
    return ADAM * shape.layers * sum(rank * (a + b) for a, b in shape.matrices)


def cache_bytes(shape: Shape, size: int) -> int:
    """Keys and values of one token."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * size


def layer_bytes(shape: Shape, rank: int, size: int) -> int:
    """What one layer keeps of one token for the backward pass."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    residual = 2 * (4 * shape.hidden + 4)  # float32, before each norm
    kept = 2 * shape.hidden  # normed
    kept += 2 * queries + 2 * keys  # queries, keys, values and what attention gave
    kept += queries + 2 * keys if shape.norms_heads else 0  # before their norms
    kept += 3 * shape.inner  # gate and up, and what comes out of the gate
    kept += 7 * rank
    return residual + size * kept + 4 * shape.heads


def pass_bytes(shape: Shape, rank: int, size: int, recompute: bool) -> int:
    """For each token of a training pass, at its peak: when the backward pass enters the last layer."""
    layer = layer_bytes(shape, rank, size)
    kept = shape.layers * 4 * shape.hidden + layer if recompute else shape.layers * layer
    ends = (
        4 * shape.hidden + 3 * size * shape.hidden
    )  # before the last norm, after it, and the gradient of the logprobs
    gradients = size * 3 * shape.inner + 8 * shape.hidden  # of one layer
    return kept + ends + gradients


def pass_tokens(free: int, per_token: int) -> int:
    """The tokens of a pass on a GPU with so many bytes free."""
    tokens, least = PASS_TOKENS
    while tokens > least and tokens * per_token > PART_OF_FREE * free:
        tokens //= 2
    return tokens


def cache_taken(needed: int, bound: int) -> int:
    """Bytes of a GPU's cache that began small and doubled until it had what is needed, or all that it may have."""
    taken = bound / FIRST_PART
    while taken < needed and taken < bound:
        taken *= 2
    return int(min(taken, bound))
