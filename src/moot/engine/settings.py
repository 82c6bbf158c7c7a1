"""Which model is run, by which engine, and how. Its docstrings are the help of every command that loads a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ModelConfig:
    model: str = "smollm2-135m"
    """A hub id, a directory with a checkpoint, or smollm2-135m."""
    engine: Literal["local", "tinker", "scripted", "openai"] = "local"
    """What runs the model: this machine, or a server that speaks the Tinker API. openai is a chat server, which can be checked and
    evaluated but not trained. scripted speaks from a script and learns nothing: for trying out a command."""
    base_url: str = ""
    """Where the server of the tinker or openai engine is; for tinker the hosted service if not given (its key in TINKER_API_KEY)."""
    tokenizer: str = ""
    """Where a server's model has its tokenizer, if not under the model's name."""
    context_length: int = 0
    """Longest sequence a server's model takes; 0 asks the server."""
    renderer: str = "auto"
    """The chat format; auto looks it up by the model's id."""
    thinking: bool = False
    """Let the model think before it answers, where its format knows how."""
    lora_rank: int = 16
    """Rank of the trained adapter."""
    lora_alpha: int = 32
    """Its scale."""
    lora_targets: str = "all-linear"
    """Which matrices it adapts: all-linear, or names with commas."""
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the weights; auto is bf16 on a GPU and what is fastest on a CPU."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    deterministic: bool = False
    """fp32 and nothing shared: the same seed gives the same run, also after a kill."""
    gradient_checkpointing: bool = False
    """Trade time for memory in training."""
    cache_gib: float = 0.0
    """Memory for the sampler's cache; 0 takes a quarter of what is free. Set it when several runs share a device."""
    token_budget: int = 0
    """Tokens of one forward and backward pass; 0 chooses by device. Less saves memory."""
