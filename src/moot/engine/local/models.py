"""From a name to a model this engine can run: a hub id, a directory, or `smollm2-135m`.

What it cannot run it refuses by name. What it accepts it still checks once against transformers' own forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from moot.engine.local.attention import packed_attention
from moot.engine.local.memory import retry_on_oom
from moot.engine.local.model_files import local_copy, read_config, read_tokenizer, read_weights
from moot.engine.local.network import Network
from moot.engine.local.smollm import find_smollm
from moot.engine.published import SMOLLM
from moot.errors import EngineError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Pre-norm, rotary positions, gated MLP, full causal attention: the one shape network.py runs. SmolLM and SmolLM2 are
llama."""


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class UnsupportedModel(ValueError):
    """An architecture this engine would run wrongly, and so does not run."""


@dataclass(frozen=True)
class Loaded:
    name: str
    model: Any
    tokenizer: Any
    context_length: int
    notes: tuple[str, ...]


def pick_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be auto, cpu, cuda or a number of it like cuda:1, got {device!r}") from None
    if found.type == "cuda" and (found.index or 0) >= (count := torch.cuda.device_count()):
        raise EngineError(
            f"device {device!r} is not here: torch sees {count or 'no'} CUDA device{'s' if count > 1 else ''}; use "
            "auto or cpu"
        )
    return found


def pick_dtype(dtype: str, device: torch.device, deterministic: bool) -> torch.dtype:
    """auto: bfloat16 where the hardware multiplies it faster than float32."""
    if dtype in DTYPES:
        if deterministic and dtype != "fp32":
            raise ValueError(f"deterministic sampling runs in fp32, got dtype={dtype!r}; drop one of the two")
        return DTYPES[dtype]
    if dtype != "auto":
        raise ValueError(f"dtype must be auto, fp32 or bf16, got {dtype!r}")
    fast = torch.cuda.is_bf16_supported() if device.type == "cuda" else _cpu_has_bf16()
    return torch.bfloat16 if fast and not deterministic else torch.float32


def _cpu_has_bf16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text()
        return "avx512_bf16" in flags or "amx_bf16" in flags
    except OSError:
        return False


def load_model(name: str, device: torch.device, dtype: torch.dtype) -> Loaded:
    path, notes = find_smollm() if name == SMOLLM else (name, ())
    if not Path(path).is_dir() and (path.startswith((".", "/", "~")) or path.count("/") > 1):
        raise ValueError(f"model directory {path!r} does not exist")
    path = path if Path(path).is_dir() else local_copy(path)
    config = read_config(path)
    context = check_config(config, name)
    model = read_weights(path, config, dtype)
    tokenizer = read_tokenizer(path, model.get_input_embeddings().num_embeddings)
    model = retry_on_oom(lambda: model.to(device)).eval().requires_grad_(False)  # what has moved already stays there
    return Loaded(name, model, tokenizer, context, notes)


def check_config(config: Any, name: str) -> int:
    """The context length, or UnsupportedModel."""
    kind = getattr(config, "model_type", "unknown")
    if kind not in FAMILIES:
        raise UnsupportedModel(
            f"{name}: architecture {kind!r} is not run by the local engine, which knows {', '.join(FAMILIES)}"
        )
    if getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None):
        raise UnsupportedModel(f"{name}: mixture-of-experts models are not run by the local engine")
    if getattr(config, "quantization_config", None):
        raise UnsupportedModel(f"{name}: quantized weights are not run by the local engine; use the unquantized model")
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type not in ("default", "linear", "llama3", "yarn"):
        raise UnsupportedModel(
            f"{name}: rope type {rope_type!r} changes with the sequence length and is not run by the local engine"
        )
    if getattr(config, "partial_rotary_factor", 1.0) != 1.0 or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModel(f"{name}: partial rotary embeddings are not run by the local engine")
    if getattr(config, "hidden_act", "silu") not in ("silu", "swish"):
        raise UnsupportedModel(f"{name}: activation {config.hidden_act!r} is not run by the local engine")
    context = int(config.max_position_embeddings)
    window = getattr(config, "sliding_window", None)
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ()) or (kind == "mistral" and window)
    # Inside its window sliding attention is full attention, so a shorter context keeps the model exact.
    return min(context, int(window)) if sliding and window else context


def check_forward(model: Any, network: Network) -> None:
    """Our forward pass gives transformers' logits, or the model is refused. Run before peft wraps it."""
    count = 24
    tokens = (torch.arange(count, device=network.device) * 37 + 11) % network.vocab_size
    with torch.no_grad():
        theirs = model(input_ids=tokens[None], use_cache=False).logits[0].float()
        network.reserve(count)
        ours = network.logits(
            network.hidden(
                tokens, torch.arange(count, device=network.device), packed_attention([count], network.device)
            )
        )
    bound = (2e-4 if network.dtype == torch.float32 else 6e-2) * max(1.0, float(theirs.abs().max()))
    difference = float((ours - theirs).abs().max())
    if not difference <= bound:
        raise UnsupportedModel(
            f"{model.config.model_type}: logits differ from transformers' by {difference:.2g} (allowed {bound:.2g}); "
            "the architecture has a part this engine does not know"
        )
