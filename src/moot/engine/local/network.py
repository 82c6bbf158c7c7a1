"""One forward pass for Llama-shaped models, used by the sampler and the trainer alike.

It runs on the weights transformers loaded, and on the adapter peft made. Tokens come packed, without a batch dimension:
`[T]` ids and their positions. Attention is handed in, because it is all that differs between training, prefill and decoding.

The adapter is added beside each matrix, never merged into it: in bfloat16 a merged update smaller than half a unit in the last place of
its weight would be rounded away, and the sampler would not move while the trainer does. For the same reason the residual stream and the
logits are float32 whatever the weights are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [T, heads, D], k [T, kv_heads, D], v) -> [T, heads * D]"""

GROUPS = {"qkv": ("q_proj", "k_proj", "v_proj"), "o": ("o_proj",), "gate_up": ("gate_proj", "up_proj"), "down": ("down_proj",)}
"""Matrices with the same input are run as one."""


@dataclass(frozen=True)
class LowRank:
    """An update to one group: `x -> x A' B'`, the scale already in B."""

    a: Tensor  # [ranks of the group's members, in]
    b: Tensor  # [out, ranks]: block diagonal, so that members do not mix


Adapter = Sequence[Mapping[str, LowRank]]
"""For each layer, the groups that have an update. Empty means the base model."""


@dataclass(frozen=True)
class Linear:
    weight: Tensor
    bias: Tensor | None
    packed: Tensor | None = None
    """The weight once more, in the order the CPU's bfloat16 product wants it; without it every call reorders the matrix anew."""

    def __call__(self, x: Tensor, update: LowRank | None) -> Tensor:
        if self.packed is not None and not torch.is_grad_enabled():
            y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        else:
            y = F.linear(x, self.weight, self.bias)
        if update is not None:
            y = y.addmm_(F.linear(x, update.a), update.b.t())
        return y


@dataclass(frozen=True)
class Layer:
    norm_1: Tensor
    norm_2: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    linear: Mapping[str, Linear]


def _pack(linear: Linear) -> Linear:
    if linear.weight.device.type != "cpu" or linear.weight.dtype != torch.bfloat16:
        return linear
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight, 16)  # 16: rows, roughly; other numbers work
        torch.ops.mkldnn._linear_pointwise(linear.weight.new_zeros(1, linear.weight.shape[1]), packed, linear.bias, "none", [], "")
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):  # not part of torch's promises
        return linear
    return replace(linear, packed=packed)


def _fuse(modules: Sequence[Any]) -> Linear:
    """One matrix for modules that share their input; the modules become views of it, so nothing is held twice."""
    plain = [getattr(module, "base_layer", module) for module in modules]
    if len(plain) == 1:
        return Linear(plain[0].weight.detach(), None if plain[0].bias is None else plain[0].bias.detach())
    weight = torch.cat([module.weight.detach() for module in plain])
    for module, part in zip(plain, torch.split(weight, [module.weight.shape[0] for module in plain]), strict=True):
        module.weight.data = part
    biases = [module.bias for module in plain]
    return Linear(weight, torch.cat([bias.detach() for bias in biases]) if biases[0] is not None else None)


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
        # bfloat16 logits would be rounded by several hundredths, and sampler and trainer would disagree by that. Some devices multiply
        # bfloat16 into float32; the others need the matrix in float32.
        self._wide_head = None if self.dtype == torch.float32 or _widens(self.device) else self.head.float()
        self.layers = [self._layer(layer) for layer in body.layers]
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
            q_norm=None if q_norm is None else q_norm.weight.detach(),
            k_norm=None if k_norm is None else k_norm.weight.detach(),
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

    def hidden(self, tokens: Tensor, positions: Tensor, attend: Attend, adapter: Adapter = (), recompute: bool = False) -> Tensor:
        """Last hidden states `[T, H]`, normed. `recompute` trades time for memory: activations are made again for the backward pass."""
        x = F.embedding(tokens, self.embed).float()
        cos, sin = self._cos[positions], self._sin[positions]
        for index in range(len(self.layers)):
            updates: Mapping[str, LowRank] = adapter[index] if adapter else {}
            if recompute:
                x = checkpoint(self._block, x, index, updates, cos, sin, attend, use_reentrant=False)
            else:
                x = self._block(x, index, updates, cos, sin, attend)
        return self._norm(x, self.norm)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.eps).to(self.dtype)

    def _block(self, x: Tensor, index: int, updates: Mapping[str, LowRank], cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        layer, rows = self.layers[index], len(x)
        normed = self._norm(x, layer.norm_1)
        qkv = layer.linear["qkv"](normed, updates.get("qkv")).view(rows, -1, self.head_dim)
        qk, v = torch.split(qkv, [self.heads + self.kv_heads, self.kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = torch.split(qk, [self.heads, self.kv_heads], dim=1)
            q = F.rms_norm(q, layer.q_norm.shape, layer.q_norm, self.eps)
            k = F.rms_norm(k, layer.k_norm.shape, layer.k_norm, self.eps)
            qk = torch.cat([q, k], dim=1)
        left, right = qk.chunk(2, dim=-1)
        qk = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
        q, k = torch.split(qk, [self.heads, self.kv_heads], dim=1)
        x = x + layer.linear["o"](attend(index, q, k, v), updates.get("o"))
        normed = self._norm(x, layer.norm_2)
        gate, up = layer.linear["gate_up"](normed, updates.get("gate_up")).chunk(2, dim=-1)
        return x + layer.linear["down"](F.silu(gate) * up, updates.get("down"))

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 `[T, V]`: ask for few rows at a time."""
        if self._wide_head is not None:
            return F.linear(hidden.float(), self._wide_head)
        if hidden.dtype == torch.float32:
            return F.linear(hidden, self.head)
        return torch.mm(hidden, self.head.t(), out_dtype=torch.float32)
