"""peft's LoRA parameters, arranged the way the network runs them.

peft decides which matrices are adapted, how they start and how they are stored; only the arithmetic is ours.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
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
    config = LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=names, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]), without_old_names():
        torch.manual_seed(seed)
        wrapped = get_peft_model(model, config)
    for parameter in wrapped.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return wrapped


@contextlib.contextmanager
def without_old_names() -> Iterator[None]:
    """peft asks for a name that transformers has renamed. A user can do nothing about that warning, and it was the
    first line of a run."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield


def lora_parameters(wrapped: Any) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in wrapped.named_parameters() if parameter.requires_grad}


def arrange(wrapped: Any, dtype: torch.dtype, trained: bool = False) -> Adapter:
    """Copies of peft's parameters. `trained`: each with a gradient of its own, which `rearrange` brings home. To let
    autograd do that in each pass would be thousands of the smallest kernels."""
    with torch.no_grad():
        layers = [_layer(layer, dtype) for layer in wrapped.base_model.model.model.layers]
    for low in (low for layer in layers for low in layer.values()) if trained else ():
        low.a.requires_grad_()
        low.b.requires_grad_()
    return layers


def tensors(adapter: Adapter) -> list[Tensor]:
    return [tensor for layer in adapter for name in sorted(layer) for tensor in (layer[name].a, layer[name].b)]


def rearrange(wrapped: Any, arranged: Sequence[Tensor]) -> dict[str, Tensor]:
    """By name of peft's parameter, its gradient from the gradients of what `arrange` made, in the order of
    `tensors`."""
    names = {id(parameter): name for name, parameter in lora_parameters(wrapped).items()}
    found, left = {}, iter(arranged)
    for layer in wrapped.base_model.model.model.layers:
        for _, modules in sorted(_groups(layer).items()):
            if not any(hasattr(module, "lora_A") for module in modules):
                continue
            of_a, of_b = next(left), next(left)
            row = column = 0
            for module in modules:
                size = module.weight.shape[0]
                if hasattr(module, "lora_A"):
                    a, b = module.lora_A[NAME].weight, module.lora_B[NAME].weight
                    found[names[id(a)]] = of_a[column : column + len(a)].clone()
                    found[names[id(b)]] = of_b[row : row + size, column : column + len(a)] * module.scaling[NAME]
                    column += len(a)
                row += size
    return found


def freeze(wrapped: Any, dtype: torch.dtype) -> Adapter:
    """As the parameters are now; `()` where the update is exactly zero, which costs nothing to run."""
    with torch.no_grad():
        if not any(bool(value.any()) for name, value in lora_parameters(wrapped).items() if "lora_B" in name):
            return ()
        return arrange(wrapped, dtype)


def _groups(layer: Any) -> dict[str, list[Any]]:
    owner = {"qkv": layer.self_attn, "o": layer.self_attn, "gate_up": layer.mlp, "down": layer.mlp}
    return {group: [getattr(owner[group], name) for name in names] for group, names in GROUPS.items()}


def _layer(layer: Any, dtype: torch.dtype) -> dict[str, LowRank]:
    found = {group: _group(modules, dtype) for group, modules in _groups(layer).items()}
    return {group: low for group, low in found.items() if low is not None}


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
