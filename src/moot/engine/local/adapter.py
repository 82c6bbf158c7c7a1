"""peft's LoRA parameters, arranged the way the network runs them.

peft decides which matrices are adapted, how they start and how they are stored; only the arithmetic is ours.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import Tensor

from moot.engine.local.network import GROUPS, Adapter, LowRank

NAME = "default"


def add_lora(model: Any, rank: int, alpha: float, targets: str | list[str], seed: int) -> Any:
    """The peft model. Its parameters are float32 whatever the base is, so that small steps are not lost."""
    if rank < 1:
        raise ValueError(f"lora_rank must be at least 1, got {rank}; full fine-tuning is not offered here")
    adaptable = {name for names in GROUPS.values() for name in names}
    names = [targets] if isinstance(targets, str) and targets != "all-linear" else targets
    if names != "all-linear" and not set(names) <= adaptable:
        raise ValueError(f"lora_targets must be 'all-linear' or names from {sorted(adaptable)}, got {targets!r}")
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=names, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        wrapped = get_peft_model(model, config)
    for parameter in wrapped.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return wrapped


def lora_parameters(wrapped: Any) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in wrapped.named_parameters() if parameter.requires_grad}


def arrange(wrapped: Any, dtype: torch.dtype) -> Adapter:
    """Differentiable: gradients of what comes out reach peft's parameters."""
    return [_layer(layer, dtype) for layer in wrapped.base_model.model.model.layers]


def freeze(wrapped: Any, dtype: torch.dtype) -> Adapter:
    """A copy that training does not reach; `()` where the update is exactly zero, which costs nothing to run."""
    with torch.no_grad():
        if not any(bool(value.any()) for name, value in lora_parameters(wrapped).items() if "lora_B" in name):
            return ()
        return [{group: LowRank(low.a.clone(), low.b.clone()) for group, low in layer.items()} for layer in arrange(wrapped, dtype)]


def _layer(layer: Any, dtype: torch.dtype) -> dict[str, LowRank]:
    owner = {"qkv": layer.self_attn, "o": layer.self_attn, "gate_up": layer.mlp, "down": layer.mlp}
    out = {}
    for group, names in GROUPS.items():
        modules = [getattr(owner[group], name) for name in names]
        if (low := _group(modules, dtype)) is not None:
            out[group] = low
    return out


def _group(modules: list[Any], dtype: torch.dtype) -> LowRank | None:
    adapted = [module for module in modules if hasattr(module, "lora_A")]
    if not adapted:
        return None
    ranks = sum(module.lora_A[NAME].weight.shape[0] for module in adapted)
    blocks, column = [], 0
    for module in modules:
        if not hasattr(module, "lora_A"):
            blocks.append(module.weight.new_zeros(module.weight.shape[0], ranks, dtype=dtype))
            continue
        b = module.lora_B[NAME].weight * module.scaling[NAME]
        blocks.append(F.pad(b.to(dtype), (column, ranks - column - b.shape[1])))
        column += b.shape[1]
    a = torch.cat([module.lora_A[NAME].weight for module in adapted]).to(dtype)
    return LowRank(a, torch.cat(blocks))
