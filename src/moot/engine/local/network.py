"""One forward pass for Llama-shaped models, used by the sampler and the trainer alike.

It runs on the weights transformers loaded, and on the adapter peft made. Tokens come packed, without a batch dimension:
`[T]` ids and their positions. Attention is handed in, because it is all that differs between training, prefill and
decoding.

The adapter is added beside each matrix, never merged into it: in bfloat16 a merged update smaller than half a unit in
the last place of its weight would be rounded away, and the sampler would not move while the trainer does. For the same
reason the residual stream and the logits are float32 whatever the weights are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from moot.engine.local.layer_ops import Heads, steps_for

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [T, heads, D], k [T, kv_heads, D], v) -> [T, heads * D]"""

GROUPS = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate_up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}
"""Matrices with the same input are run as one."""
SLOTS = 8
"""Adapters that one pass may serve."""
ROOM = {"cpu": 0, "cuda": SLOTS}
"""For how many of them there is room behind each matrix. A CPU has nothing to gain by it."""


@dataclass(frozen=True)
class LowRank:
    """An update to one group: `x -> x A' B'`, the scale already in B."""

    a: Tensor  # [ranks of the group's members, in]
    b: Tensor  # [out, ranks]: block diagonal, so that members do not mix
    seated: bool = False
    """`a` stands in the rows behind the group's own matrix, so that one product gives both."""
    others: Tensor | None = None
    """Where adapters stand behind each other in `a` and `b`: `[T, adapters]`, which of them each token has not."""


Adapter = Sequence[Mapping[str, LowRank]]
"""For each layer, the groups that have an update. Empty means the base model."""


@dataclass(frozen=True)
class Linear:
    weight: Tensor
    bias: Tensor | None
    packed: Tensor | None = None
    """The weight once more, in the order the CPU's bfloat16 product wants it; without it every call reorders the matrix
    anew."""
    whole: Tensor | None = None
    """The memory of the weight, with room behind it for adapters' `a`."""
    whole_bias: Tensor | None = None

    @property
    def room(self) -> Tensor | None:
        return None if self.whole is None else self.whole[len(self.weight) :]

    def __call__(self, x: Tensor, update: LowRank | None) -> Tensor:
        if update is not None and torch.is_grad_enabled():
            return _adapted(x, self.weight, self.bias, update)
        if update is not None:
            y, (z, b) = self.apart(x, update)
            return y.addmm_(z, b.t())
        if self.packed is not None and not torch.is_grad_enabled():
            return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], ""))
        return F.linear(x, self.weight, self.bias)

    def apart(self, x: Tensor, update: LowRank) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Without the update, and what is to be added: `[T, ranks]` times `[out, ranks]`. For where no gradient is
        wanted."""
        if update.seated and self.whole is not None:
            sizes = [len(self.weight), len(update.a)]
            bias = None if self.whole_bias is None else self.whole_bias[: sum(sizes)]
            y, z = torch.split(F.linear(x, self.whole[: sum(sizes)], bias), sizes, dim=1)
        else:
            y, z = self(x, None), F.linear(x, update.a)
        if update.others is not None:  # no `where`: it would send its zero to the device, which a capture forbids
            z.view(len(z), update.others.shape[1], -1).masked_fill_(update.others[:, :, None], 0)
        return y, (z, update.b)


class _Adapted(torch.autograd.Function):
    """The two ways through a group of matrices join in one tensor, forward and backward; autograd alone would add
    two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
        z = F.linear(x, a)
        ctx.save_for_backward(x, z, weight, a, b)
        return F.linear(x, weight, bias).addmm_(z, b.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, z, weight, a, b = ctx.saved_tensors
        grad_y = grads[0]
        grad_z = grad_y @ b
        grad_x = (grad_y @ weight).addmm_(grad_z, a) if ctx.needs_input_grad[0] else None
        return grad_x, None, None, grad_z.t() @ x, grad_y.t() @ z


def _adapted(x: Tensor, weight: Tensor, bias: Tensor | None, update: LowRank) -> Tensor:
    result: Tensor = _Adapted.apply(x, weight, bias, update.a, update.b)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class Layer:
    norm_1: Tensor
    norm_2: Tensor
    norms: tuple[Tensor, Tensor] | None
    """Of queries and keys, head by head."""
    linear: Mapping[str, Linear]


def _pack(linear: Linear) -> Linear:
    if linear.weight.device.type != "cpu" or linear.weight.dtype != torch.bfloat16:
        return linear
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight, 16)  # 16: rows, roughly; other numbers work
        torch.ops.mkldnn._linear_pointwise(
            linear.weight.new_zeros(1, linear.weight.shape[1]), packed, linear.bias, "none", [], ""
        )
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):  # not part of torch's promises
        return linear
    return replace(linear, packed=packed)


def _fuse(modules: Sequence[Any]) -> Linear:
    """One matrix for modules that share their input; the modules become views of it, so nothing is held twice."""
    plain = [getattr(module, "base_layer", module) for module in modules]
    room = ROOM["cpu" if plain[0].weight.device.type == "cpu" else "cuda"]
    ranks = room * sum(low.weight.shape[0] for module in modules for low in getattr(module, "lora_A", {}).values())
    weights, biases = [module.weight.detach() for module in plain], [module.bias for module in plain]
    bias = None if biases[0] is None else torch.cat([item.detach() for item in biases])
    if len(plain) == 1 and not ranks:
        return Linear(weights[0], bias)
    sizes = [len(weight) for weight in weights]
    whole = torch.cat([*weights, weights[0].new_zeros(ranks, weights[0].shape[1])])
    for module, part in zip(plain, torch.split(whole, [*sizes, ranks]), strict=False):
        module.weight.data = part
    # .data: what is written behind a matrix is no change of the matrix, and autograd counts changes.
    whole_bias = None if bias is None else F.pad(bias, (0, ranks))
    return Linear(whole.data[: sum(sizes)], bias, None, whole if ranks else None, whole_bias)


def _widens(device: torch.device) -> bool:
    probe = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    try:
        return torch.mm(probe, probe, out_dtype=torch.float32).dtype == torch.float32
    except (RuntimeError, NotImplementedError, TypeError):
        return False


class Network:
    def __init__(self, model: Any, pack: bool = False) -> None:
        """`model`: a transformers causal LM, with or without peft's layers inside.

        `pack` keeps the matrices a second time where that makes sampling faster (bfloat16 on a CPU).
        """
        config, body = model.config, model.model
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.vocab_size: int = model.lm_head.weight.shape[0]
        self.eps: float = config.rms_norm_eps
        self.embed: Tensor = body.embed_tokens.weight.detach()
        self.head: Tensor = model.lm_head.weight.detach()
        self.norm: Tensor = body.norm.weight.detach().float()
        self.device, self.dtype = self.embed.device, self.embed.dtype
        # bfloat16 logits would be rounded by several hundredths, and sampler and trainer would disagree by that. Some
        # devices multiply
        # bfloat16 into float32; the others need the matrix in float32.
        self._wide_head = None if self.dtype == torch.float32 or _widens(self.device) else self.head.float()
        self.layers = [self._layer(layer) for layer in body.layers]
        self.steps = steps_for(
            self.device, self.dtype, Heads(self.heads, self.kv_heads, self.head_dim), self.layers[0].norms is not None
        )
        if pack:
            packed = [{name: _pack(linear) for name, linear in layer.linear.items()} for layer in self.layers]
            self.layers = [replace(layer, linear=linear) for layer, linear in zip(self.layers, packed, strict=True)]
        self._rotary: Any = body.rotary_emb
        self._cos, self._sin = self._rope_table(256)

    def _layer(self, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        owner = {"qkv": attention, "o": attention, "gate_up": mlp, "down": mlp}
        q_norm, k_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        return Layer(
            norm_1=layer.input_layernorm.weight.detach().float(),
            norm_2=layer.post_attention_layernorm.weight.detach().float(),
            norms=None if q_norm is None or k_norm is None else (q_norm.weight.detach(), k_norm.weight.detach()),
            linear={group: _fuse([getattr(owner[group], name) for name in names]) for group, names in GROUPS.items()},
        )

    def _rope_table(self, length: int) -> tuple[Tensor, Tensor]:
        # Not an inference tensor, even when the sampler is the first to need it: the trainer uses it too.
        with torch.inference_mode(False), torch.no_grad():
            probe = torch.empty(1, device=self.device, dtype=torch.float32)
            cos, sin = self._rotary(probe, torch.arange(length, device=self.device)[None])
            half = self.head_dim // 2
            return cos[0, :, None, :half].to(self.dtype), sin[0, :, None, :half].to(self.dtype)

    def reserve(self, length: int) -> None:
        """Positions below `length` may be used from now on."""
        if length > len(self._cos):
            self._cos, self._sin = self._rope_table(max(length, 2 * len(self._cos)))

    def hidden(
        self, tokens: Tensor, positions: Tensor, attend: Attend, adapter: Adapter = (), recompute: bool = False
    ) -> Tensor:
        """Last hidden states `[T, H]`, normed. `recompute` trades time for memory: activations are made again for the
        backward pass."""
        x, added = F.embedding(tokens, self.embed).float(), None
        cos, sin = self._cos[positions], self._sin[positions]
        for index in range(len(self.layers)):
            updates: Mapping[str, LowRank] = adapter[index] if adapter else {}
            if recompute:
                x = checkpoint(self._whole_block, x, index, updates, cos, sin, attend, use_reentrant=False)
            else:
                x, added = self._block(x, added, index, updates, cos, sin, attend)
        return self._add_norm(x, added, self.norm)[1]

    def _add_norm(self, x: Tensor, added: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
        return self.steps.add_norm(x, added, weight, self.eps, self.dtype)

    def _block(
        self,
        x: Tensor,
        added: Tensor | None,
        index: int,
        updates: Mapping[str, LowRank],
        cos: Tensor,
        sin: Tensor,
        attend: Attend,
    ) -> tuple[Tensor, Tensor]:
        """`added`: what the layer before left to be added to x, which is cheaper together with a norm; the same comes
        out."""
        layer = self.layers[index]
        x, normed = self._add_norm(x, added, layer.norm_1)
        row = layer.linear["qkv"](normed, updates.get("qkv"))
        q, k, v = self.steps.rotate(
            row, Heads(self.heads, self.kv_heads, self.head_dim), layer.norms, cos, sin, self.eps
        )
        x, normed = self._add_norm(x, layer.linear["o"](attend(index, q, k, v), updates.get("o")), layer.norm_2)
        return x, layer.linear["down"](
            self._gate(layer.linear["gate_up"], normed, updates.get("gate_up")), updates.get("down")
        )

    def _gate(self, linear: Linear, x: Tensor, update: LowRank | None) -> Tensor:
        if update is None or update.others is not None or torch.is_grad_enabled():
            return self.steps.gate(linear(x, update), None)
        return self.steps.gate(*linear.apart(x, update))

    def _whole_block(self, x: Tensor, *given: Any) -> Tensor:
        x, added = self._block(x, None, *given)
        return x + added

    def seats(self, adapter: Adapter, count: int) -> Adapter:
        """Memory for so many adapters of this shape, behind each other; their values are not yet there."""
        return [
            {name: _seats(low, count, self.layers[index].linear[name].room) for name, low in layer.items()}
            for index, layer in enumerate(adapter)
        ]

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 `[T, V]`: ask for few rows at a time."""
        if self._wide_head is not None:
            return F.linear(hidden.float(), self._wide_head)
        if hidden.dtype == torch.float32:
            return F.linear(hidden, self.head)
        return torch.mm(hidden, self.head.t(), out_dtype=torch.float32)


def _seats(low: LowRank, count: int, room: Tensor | None) -> LowRank:
    ranks, width = count * len(low.a), low.a.shape[1]
    b = low.b.new_zeros(len(low.b), ranks)  # zeros: what is empty is multiplied too, and must be finite
    if room is None or len(room) < ranks or room.shape[1] != width:
        return LowRank(low.a.new_zeros(ranks, width), b)
    return LowRank(room[:ranks], b, seated=True)
