"""Gradients and Adam steps on packed sequences.

Sequences lie one after the other in micro-batches of a token budget, each attending to itself; only attention may be
padded, and only on a GPU. What sequences have in common at their beginning is computed once (prefix_packing.py). Logits
exist only for trained tokens, and only a chunk of them at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from moot.engine.local.adapter import arrange, lora_parameters, rearrange, tensors
from moot.engine.local.attention import packed_attention
from moot.engine.local.losses import Given
from moot.engine.local.memory import free_failed, leaving, out_of_memory, pause, release_if_tight, retry_on_oom, upload
from moot.engine.local.network import Adapter, Attend, Network
from moot.engine.local.prefix_packing import Forest, pieces, plant, tree_attention
from moot.engine.protocol import AdamParams, Datum, Floats, LossOutput, StepOutput, in_words
from moot.errors import EngineError

HEAD_CHUNK_BYTES = 32 << 20
"""Logits held at a time, in float32: small enough to stay out of the way, large enough for a full-speed product. A GPU
takes more."""
GPU_CHUNKS = 8
CALLS_WITHOUT_TROUBLE = 8
"""Calls without trouble after which a pass is tried with twice the tokens again, and at last without recomputing."""

T = TypeVar("T")
LossFunction = Callable[[Tensor, Given], Tensor]


@dataclass(frozen=True)
class Packed:
    """Datums one after the other, on the device."""

    forest: Forest
    lengths: list[int]
    tokens: Tensor
    positions: Tensor
    trained: Tensor
    """Where the mask is not 0: `[M]` indices into the tokens of all datums."""
    rows: Tensor
    """Where these stand among the tokens that are computed."""
    targets: Tensor
    temperatures: Tensor
    given: Given


def pack(datums: Sequence[Datum], device: torch.device, share: bool) -> Packed:
    def join(arrays: Sequence[Any], dtype: torch.dtype) -> Tensor:
        return upload(np.concatenate(arrays), device).to(dtype)

    mask = np.concatenate([datum.mask for datum in datums])
    chosen = np.flatnonzero(mask)
    forest = plant([datum.tokens for datum in datums], share)
    starts = [(datums[i], forest.shared[i]) for i in forest.order]

    def pick(name: str) -> Tensor:
        return join([np.concatenate([getattr(datum, name) for datum in datums])[chosen]], torch.float32)

    return Packed(
        forest=forest,
        lengths=[len(datum) for datum in datums],
        tokens=join([datum.tokens[start:] for datum, start in starts], torch.long),
        positions=join([np.arange(start, len(datum)) for datum, start in starts], torch.long),
        trained=upload(chosen, device),
        rows=upload(np.concatenate(forest.rows)[chosen], device),
        targets=join([np.concatenate([datum.targets for datum in datums])[chosen]], torch.long),
        temperatures=join(
            [np.concatenate([np.full(len(datum), datum.temperature) for datum in datums])[chosen]], torch.float32
        ),
        given=Given(pick("logprobs"), pick("advantages"), pick("mask")),
    )


class _TargetLogprobs(torch.autograd.Function):
    """Logprobs of targets from hidden states, chunk by chunk.

    The gradient of a token's logprob by its hidden state does not depend on the loss but for a factor. So it is made in
    the same pass, `[M, H]`, and the backward pass only scales it: the logits are computed once and never kept.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, network: Network, targets: Tensor, temperatures: Tensor) -> Tensor:
        logprobs, gradient = _chunked(hidden, network, targets, temperatures, need_gradient=True)
        ctx.save_for_backward(gradient)
        return logprobs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return (gradient * grads[0][:, None]).to(gradient.dtype), None, None, None


def _chunked(
    hidden: Tensor, network: Network, targets: Tensor, temperatures: Tensor, need_gradient: bool
) -> tuple[Tensor, Tensor]:
    logprobs = torch.empty(len(hidden), device=hidden.device, dtype=torch.float32)
    gradient = torch.empty_like(hidden) if need_gradient else hidden
    rows = chunk_rows(hidden, network)
    for low in range(0, len(hidden), rows):
        part = slice(low, low + rows)
        scale, target = temperatures[part, None], targets[part, None]
        logits = network.logits(hidden[part]).div_(scale)
        total = logits.logsumexp(-1, keepdim=True)
        logprobs[part] = (logits.gather(1, target) - total).squeeze(1)
        if need_gradient:
            probabilities = logits.sub_(total).exp_()
            expected = probabilities.to(hidden.dtype) @ network.head
            gradient[part] = (network.head[targets[part]] - expected) / scale
    return logprobs, gradient


def chunk_rows(hidden: Tensor, network: Network) -> int:
    """Places whose logits may exist at a time."""
    held = HEAD_CHUNK_BYTES if hidden.device.type == "cpu" else GPU_CHUNKS * HEAD_CHUNK_BYTES
    return max(1, held // (4 * network.vocab_size))


def target_logprobs(hidden: Tensor, network: Network, targets: Tensor, temperatures: Tensor) -> Tensor:
    """float32 `[M]`: log of softmax(logits / temperature) at the targets."""
    if torch.is_grad_enabled() and hidden.requires_grad:
        result: Tensor = _TargetLogprobs.apply(hidden, network, targets, temperatures)  # type: ignore[no-untyped-call]
        return result
    return _chunked(hidden, network, targets, temperatures, need_gradient=False)[0]


class LoraTrainer:
    """peft's parameters, their gradient and their optimizer. Everything here runs in the worker's thread."""

    def __init__(self, wrapped: Any, network: Network, token_budget: int, recompute: bool, share: bool = True) -> None:
        """`share`: compute once what datums have in common at their beginning."""
        self.wrapped, self.network = wrapped, network
        self.token_budget, self.recompute, self.share = token_budget, recompute, share
        self.parameters = lora_parameters(wrapped)
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=0.0)
        self.gradient: dict[str, Tensor] = {}
        self.average: dict[str, Tensor] = {}
        """A moving average of the parameters, where one is kept."""
        self.poisoned = False
        self.make_room: Callable[[], bool] = lambda: False
        """Asked first when memory runs out; False where nothing can be given up."""
        self.before_pass: Callable[[], None] = lambda: None
        self.out_of_memory = 0
        """How often it did."""
        self._most, self._recompute_asked, self._calm = token_budget, recompute, 0

    def run(self, datums: Sequence[Datum], loss: LossFunction, backward: bool) -> LossOutput:
        results: list[tuple[list[int], Tensor, Tensor, int]] = []  # read at the end: to read is to wait for the device
        halved = 0
        attempts = 0  # of a single sequence
        adapter = retry_on_oom(
            lambda: arrange(self.wrapped, self.network.dtype, trained=backward), make_room=self.make_room
        )
        gradient: list[Tensor] = []
        todo = self._batches(datums, range(len(datums)))
        while todo:
            self.before_pass()
            batch = todo.pop(0)
            try:
                results.append(
                    (batch, *self._pass([datums[i] for i in batch], loss, adapter, gradient if backward else None))
                )
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                halved += 1
                free_failed(error)
                if self.make_room():
                    todo = [batch, *todo]
                elif len(batch) == 1 and self.recompute and pause(attempts):
                    attempts += 1
                    todo = [batch, *todo]
                else:
                    todo = self._smaller(datums, [batch, *todo], error)
                continue
            attempts = 0
        if gradient:
            self._add(retry_on_oom(lambda: rearrange(self.wrapped, gradient), make_room=self.make_room))
        logprobs: list[Floats] = [np.zeros(0, np.float32)] * len(datums)
        total = 0.0
        for batch, value, joined, _ in results:
            total += float(value)
            ends = np.cumsum([len(datums[i]) for i in batch])[:-1]
            for index, part in zip(batch, np.split(joined.cpu().numpy(), ends), strict=True):
                logprobs[index] = np.array(part)
        release_if_tight()
        self.out_of_memory += halved
        self._grow_back(halved)
        if backward and not math.isfinite(total):
            self.poisoned = True
        metrics = {
            "tokens": sum(len(datum) for datum in datums),
            "computed_tokens": sum(computed for *_, computed in results),
            "trained_tokens": sum(int(np.count_nonzero(datum.mask)) for datum in datums),
            "micro_batches": len(results),
            "padding": 0,
            "out_of_memory": halved,
        }
        return LossOutput(logprobs, total, {name: float(number) for name, number in metrics.items()})

    def _pass(
        self, datums: list[Datum], loss: LossFunction, adapter: Adapter, gradient: list[Tensor] | None
    ) -> tuple[Tensor, Tensor, int]:
        """The loss and the logprobs of all tokens, still on the device; and how many tokens were computed. What is
        found of the adapter's gradient is added to the one given."""
        backward = gradient is not None
        packed = pack(datums, self.network.device, self.share)
        self.network.reserve(max(packed.lengths))
        with torch.set_grad_enabled(backward):
            recompute = self.recompute and backward
            plain = not any(packed.forest.shared)
            attend = (
                packed_attention(packed.lengths, self.network.device)
                if plain
                else tree_attention(packed.forest, self.network.device)
            )
            hidden = self.network.hidden(packed.tokens, packed.positions, leaving_between(attend), adapter, recompute)
            logprobs = target_logprobs(hidden[packed.rows], self.network, packed.targets, packed.temperatures)
            value = loss(logprobs, packed.given)
            everywhere = torch.zeros(sum(packed.lengths), device=self.network.device)
            everywhere[packed.trained] = logprobs.detach()
            if gradient is not None and len(packed.trained):
                # Not .backward(): a pass that runs out of memory half way must leave no half gradient behind. And
                # nothing may fail once the
                # gradient is added: the pass would be taken again, and count twice.
                found = torch.autograd.grad(value, tensors(adapter))
                if gradient:
                    torch._foreach_add_(gradient, found)
                else:
                    gradient.extend([item.float() for item in found])
        return value.detach(), everywhere, len(packed.tokens)

    def _batches(self, datums: Sequence[Datum], indices: Sequence[int]) -> list[list[int]]:
        """Micro-batches of some of the datums; those that share their beginning stay together where the budget
        allows."""
        groups, costs = pieces([datums[i].tokens for i in indices], self.token_budget, self.share)
        return [[indices[i] for at in batch for i in groups[at]] for batch in micro_batches(costs, self.token_budget)]

    def _add(self, new: dict[str, Tensor]) -> None:
        # In the order of the parameters: a norm is summed in this order.
        self.gradient = {
            name: self.gradient[name].add_(new[name]) if name in self.gradient else new[name]
            for name in self.parameters
        }

    def _smaller(self, datums: Sequence[Datum], todo: list[list[int]], error: BaseException) -> list[list[int]]:
        """What is left to do, in smaller pieces."""
        left = [index for batch in todo for index in batch]
        if len(todo[0]) == 1:
            if self.recompute:
                longest = len(datums[todo[0][0]])
                told = f"out of memory with a single sequence of {longest} tokens, activations recomputed"
                raise EngineError(f"{told}: {in_words(error)}") from error
            self.recompute = True
        computed = sum(plant([datums[i].tokens for i in todo[0]], self.share).own)
        self.token_budget = max(1, min(self.token_budget, computed) // 2)
        smaller = self._batches(datums, left)
        if len(todo[0]) > 1 and sorted(todo[0]) in map(sorted, smaller):
            # No budget parts a sequence from one that it is the beginning of: together they cost no more than the
            # longer.
            smaller = [[index] for index in todo[0]] + [batch for batch in smaller if sorted(batch) != sorted(todo[0])]
        return smaller

    def _grow_back(self, halved: int) -> None:
        """What others held may be free again."""
        self._calm = 0 if halved else self._calm + 1
        if self._calm == CALLS_WITHOUT_TROUBLE:
            self._calm = 0
            if self.token_budget < self._most:
                self.token_budget = min(self._most, 2 * self.token_budget)
            else:
                self.recompute = self._recompute_asked

    def step(self, params: AdamParams) -> StepOutput:
        norm = retry_on_oom(self._ready, make_room=self.make_room)  # where there is no room, the gradient stays
        gradient, self.gradient = self.gradient, {}
        poisoned, self.poisoned = self.poisoned, False
        if not gradient:
            return StepOutput({"grad_norm": 0.0, "skipped": float(poisoned)})
        if poisoned or not math.isfinite(norm):
            return StepOutput({"grad_norm": norm, "skipped": 1.0})
        shrink = min(1.0, params.grad_clip_norm / norm) if params.grad_clip_norm > 0 and norm > 0 else 1.0
        for name, parameter in self.parameters.items():
            grad = gradient.get(name)
            parameter.grad = None if grad is None else grad.mul_(shrink)
        for group in self.optimizer.param_groups:
            group.update(
                lr=params.learning_rate,
                betas=(params.beta1, params.beta2),
                eps=params.eps,
                weight_decay=params.weight_decay,
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return StepOutput({"grad_norm": norm, "skipped": 0.0})

    def _ready(self) -> float:
        """The gradient's norm. And what a step will take is taken, and given back to torch, who keeps it: a step that
        runs out of memory half way has changed some of Adam's numbers, and cannot be taken again."""
        if not self.gradient:
            return 0.0
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(self.gradient.values())))))
        times = 1 if self.optimizer.state else 3  # a root for each number; the first time also its two averages
        blocks = [torch.empty_like(parameter) for parameter in self.parameters.values() for _ in range(times)]
        del blocks
        return norm


def leaving_between(attend: Attend) -> Attend:
    """The same attention, and between layers, forward and backward, a look whether anybody still waits for the pass."""
    check = leaving()

    def checked(index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        check()
        if q.requires_grad:
            q.register_hook(lambda grad: check())  # type: ignore[no-untyped-call]
        return attend(index, q, k, v)

    return checked


def move_average(trainer: LoraTrainer, decay: float) -> None:
    with torch.no_grad():
        for name, parameter in trainer.parameters.items():
            if name in trainer.average:
                trainer.average[name].lerp_(parameter, 1 - decay)
            else:
                trainer.average[name] = parameter.detach().clone()


def averaged_weights(trainer: LoraTrainer, make: Callable[[], T]) -> T:
    """What `make` makes of the model while it holds the average instead of its own parameters."""
    own = {name: parameter.data for name, parameter in trainer.parameters.items()}
    try:
        for name, parameter in trainer.parameters.items():
            parameter.data = trainer.average.get(name, parameter.data)
        return make()
    finally:
        for name, parameter in trainer.parameters.items():
            parameter.data = own[name]


def micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices packed first-fit, longest first, so that few batches are needed; one that exceeds the budget goes
    alone."""
    bins: list[tuple[int, list[int]]] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        for at, (used, members) in enumerate(bins):
            if used + lengths[index] <= budget:
                bins[at] = (used + lengths[index], [*members, index])
                break
        else:
            bins.append((lengths[index], [index]))
    return [members for _, members in bins]
