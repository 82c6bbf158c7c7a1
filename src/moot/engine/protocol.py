"""What runs the model, as everything else sees it. The verbs are those of the Tinker API.

An engine is a `Trainer`, which makes `Sampler`s: frozen copies of its weights. Nothing here imports torch or a server's
SDK.

The training verbs return at once: the call takes its place in the queue, and awaiting what it returns gives the result.
So a loop may enqueue the next step before it looks at the last one's numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from moot.errors import ContextOverflow

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

Stop = tuple[str, ...] | tuple[int, ...]
"""Either strings or token ids, never both: servers refuse the mixture, or take one half of it in silence."""


def in_words(error: BaseException) -> str:
    """An exception of somebody else's in one line: its kind, and what it says."""
    said = " ".join(str(error).split())[:500]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


@dataclass(frozen=True)
class Scene:
    """What is asked for, as facts: for an engine that writes by a script and understands no prompt."""

    agent: int = -1
    """The number that the speaker is known by."""
    eligible: tuple[int, ...] = ()
    """The numbers of those it may judge now."""
    contract: str = "three_tag"
    section: str = ""
    """The one section asked for; empty for a whole turn in tags."""


@dataclass(frozen=True)
class SamplingParams:
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1 means off, as in the Tinker API."""
    stop: Stop = ()
    seed: int | None = None
    scene: Scene | None = field(default=None, compare=False)
    """Beside the prompt, for an engine that cannot read it; others do not look."""


@dataclass(frozen=True)
class Sample:
    tokens: Ints
    """What was sampled, the stop token (or the tokens of the stop string) included."""
    logprobs: Floats
    """One per token, of the distribution that was sampled from: after temperature, top-k and top-p."""
    stop_reason: Literal["stop", "length"]


@dataclass(frozen=True, eq=False)
class Datum:
    """One sequence to train on, already shifted: `targets[t]` is what should follow `tokens[: t + 1]`. All arrays have
    one length."""

    tokens: Ints
    targets: Ints
    logprobs: Floats
    """The sampler's, 0 where the target was not sampled."""
    advantages: Floats
    """0 where the target was not sampled."""
    mask: Floats
    """1 where the target was sampled. For `cross_entropy` these are the weights."""
    temperature: float = 1.0
    """What the tokens were sampled at. An engine that trains tempered divides its logits by it."""

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("tokens", "targets", "logprobs", "advantages", "mask")}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"a datum's arrays must have one length, got {lengths}")

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class AdamParams:
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0
    """0 means no clipping."""


CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
LOSSES: dict[str, dict[str, float]] = {"cross_entropy": {}, "importance_sampling": {}, "ppo": CLIP, "cispo": CLIP}
"""By name: the settings it has, with their defaults."""


@dataclass(frozen=True)
class LossOutput:
    logprobs: list[Floats]
    """The trainer's logprobs of each datum's targets, in the order given, before the step that follows."""
    loss: float
    """Summed over tokens and datums."""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepOutput:
    metrics: dict[str, float] = field(default_factory=dict)
    """`grad_norm` where the engine knows it; `skipped` is 1 when the gradient was not finite and nothing was
    changed."""


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do, so that a run can say at its start what will differ."""

    model: str
    context_length: int
    losses: tuple[str, ...] = tuple(LOSSES)
    tempered_training: bool = False
    stop_types: tuple[Literal["strings", "ids"], ...] = ("strings", "ids")
    reduction: Literal["sum", "mean"] = "sum"
    deterministic: bool = False
    learns: bool = True
    """False for a script: it has no weights, and nothing to say about tokens it did not write."""
    frozen_samplers: bool = True
    """A sampler keeps the weights it was made with. Where it does not, a batch must not be sampled ahead of
    training."""
    shares_prefixes: bool = False
    """What the datums of a call have in common at their beginning is computed once. Other engines compute each datum
    whole."""
    averages: bool = False
    """It can keep a moving average of its weights (`Averaging`)."""
    siblings: bool = False
    """It can make further trainers of the same base model, which share what they can (`Sharing`)."""
    notes: tuple[str, ...] = ()


@runtime_checkable
class Sampler(Protocol):
    """Weights as they were when it was made, however training continues."""

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        """Raises EngineError (ContextOverflow if prompt + max_tokens exceed the context)."""
        ...

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Floats:
        """Of each token given those before it; NaN for the first one, and for those before `start`."""
        ...

    async def score_continuations(
        self, prompt: Sequence[int] | Ints, candidates: Sequence[Sequence[int]], temperature: float = 1.0
    ) -> list[float]:
        """The logprob of each candidate as a whole, right after the prompt. Here each is asked for; an engine may do
        better."""
        check_candidates(candidates)
        first = len(prompt)
        wholes = ([*prompt, *candidate] for candidate in candidates)
        logprobs = await asyncio.gather(*(self.compute_logprobs(whole, temperature, first) for whole in wholes))
        return [float(of_whole[first:].sum()) for of_whole in logprobs]


@runtime_checkable
class Trainer(Protocol):
    tokenizer: Any
    """The model's own, as transformers has them."""

    @property
    def capabilities(self) -> Capabilities: ...

    def forward(self, datums: Sequence[Datum], loss: str = "cross_entropy") -> Awaitable[LossOutput]:
        """The loss and logprobs, no gradient."""
        ...

    def forward_backward(
        self, datums: Sequence[Datum], loss: str, loss_config: dict[str, float] | None = None
    ) -> Awaitable[LossOutput]:
        """Adds to the gradient until the next `optim_step`."""
        ...

    def optim_step(self, params: AdamParams) -> Awaitable[StepOutput]: ...

    def save_state(self, path: str) -> Awaitable[str]:
        """Weights and optimizer; answers with the path to give to `load_state`."""
        ...

    def load_state(self, path: str, optimizer: bool = True) -> Awaitable[None]:
        """Without `optimizer` only the weights, and Adam starts anew."""
        ...

    def snapshot(self, path: str | None = None) -> Awaitable[Sampler]:
        """A sampler with the weights of now; with a path, saved there as well."""
        ...

    def base(self) -> Awaitable[Sampler]:
        """A sampler of the model as it was before any training."""
        ...

    async def close(self) -> None:
        """What is not done fails with EngineError."""
        ...

    def shut(self) -> None:
        """As `close`, for those who are not in an event loop."""
        ...


@runtime_checkable
class Averaging(Protocol):
    """What a `Trainer` with the capability `averages` can do besides. The average is saved and loaded with the
    state."""

    def average(self, decay: float) -> Awaitable[None]:
        """Moves the average: `decay` of it stays, the rest is the weights of now. The first call starts it with
        them."""
        ...

    def averaged(self) -> Awaitable[Sampler]:
        """A sampler of the average as it is now; of the weights of now where there is none yet."""
        ...


@runtime_checkable
class Sharing(Protocol):
    """What a `Trainer` with the capability `siblings` can do besides."""

    def sibling(self, seed: int) -> Trainer:
        """A trainer of the same model with the same settings, that starts as a new engine of this seed would: an
        adapter, an optimizer and samplers of its own. Each is closed by itself; the last one frees what they share.
        Blocks until it is there."""
        ...


# What every engine refuses, in the same words.


def check_loss(name: str, config: Mapping[str, float] | None, losses: Sequence[str] = tuple(LOSSES)) -> None:
    """Raises ValueError for what is not known: a loss is never replaced by another."""
    if name not in losses:
        raise ValueError(f"unknown loss {name!r}; this engine has {', '.join(losses)}")
    if unknown := set(config or {}) - set(LOSSES[name]):
        raise ValueError(f"loss {name!r} has no setting {sorted(unknown)}; it has {list(LOSSES[name]) or 'none'}")


def check_datums(datums: Sequence[Datum], context_length: int) -> None:
    if not datums:
        raise ValueError("no datums given; there is nothing to compute")
    for number, datum in enumerate(datums):
        if not 0 < len(datum) <= context_length:
            raise ValueError(
                f"datum {number} has {len(datum)} tokens; between 1 and the context of {context_length} are allowed"
            )
        if np.any(datum.advantages[datum.mask == 0]):
            raise ValueError(f"datum {number} has advantages where its mask is 0; they would be ignored")


def check_candidates(candidates: Sequence[Sequence[int]]) -> None:
    for number, candidate in enumerate(candidates):
        if not len(candidate):
            raise ValueError(f"candidate {number} has no tokens; nothing always follows")


def by_beginning(candidates: Sequence[Sequence[int]]) -> dict[tuple[int, ...], list[int]]:
    """Of candidates that differ in their last token alone: what they begin with, and the last token of each."""
    check_candidates(candidates)
    ends: dict[tuple[int, ...], list[int]] = {}
    for candidate in candidates:
        *body, end = map(int, candidate)
        ends.setdefault(tuple(body), []).append(end)
    return ends


def check_start(start: int) -> int:
    """The first token whose logprob is wanted: never the very first, which has none."""
    if start < 0:
        raise ValueError(f"start must be 0 or more, got {start}; it counts from the first token")
    return max(1, start)


def check_prompt(tokens: Sequence[int] | Ints, max_tokens: int, context_length: int) -> Ints:
    """The tokens as an array of our own, with room for so many more."""
    array = np.array(tokens, dtype=np.int32)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"a prompt is a non-empty sequence of token ids, got shape {array.shape}")
    if len(array) + max_tokens > context_length:
        raise ContextOverflow(
            f"prompt of {len(array)} tokens and max_tokens {max_tokens} exceed the context of {context_length}"
        )
    return array
