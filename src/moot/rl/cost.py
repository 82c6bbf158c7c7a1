"""What a training run will cost in tokens and memory, before it costs anything."""

from __future__ import annotations

from pathlib import Path

from moot.debate.state import Debate
from moot.debate.types import Question
from moot.rl.config import TrainConfig

TYPICAL_TURN = 300
"""Tokens of a turn where max_tokens allows more; turns seldom reach a generous limit."""
TYPICAL_JUDGEMENT = 120
"""Tokens of an evaluation that is sampled on its own, where its limit allows more."""

SMOLLM_SHAPE = (576, 30, 1536, 9, 3, 64, 49152, True)
"""Hidden size, layers, inner size, heads, key-value heads, head size, vocabulary, tied: no hub has to be asked."""


def expected_tokens(config: TrainConfig) -> dict[str, int]:
    """Tokens that a step samples, reads and trains on. The prompts' own words are measured; the turns' length is assumed."""
    d, turn = config.debate, min(config.debate.max_tokens, TYPICAL_TURN)
    first = Debate(Question("x" * 200), d.num_agents, d.max_rounds, config.protocol.rules, prompts=config.prompts).observe(0)
    opening = sum(len(message.content) for message in first.conversation()) // 4
    others = (d.num_agents - 1) * turn
    seats = config.optim.batch_size * d.debates_per_question * d.num_agents
    in_parts = config.protocol.rules.sections != "sampled"
    judging = min(d.evaluation_tokens, TYPICAL_JUDGEMENT) + d.comparison_tokens // 2 if in_parts else 0
    sampled = seats * (d.max_rounds * turn + (d.max_rounds - 1) * judging)
    if config.protocol.rules.layout == "growing":
        read = seats * (opening + (d.max_rounds - 1) * (others + 60))
    else:
        read = seats * sum(opening + (r - 1) * (others + turn) for r in range(1, d.max_rounds + 1))
    return {
        "sampled": sampled,
        "read": read,
        "trained on": sampled + read,
        "longest": opening + d.max_rounds * turn + (d.max_rounds - 1) * (others + judging),
    }


def memory_gib(config: TrainConfig) -> dict[str, float] | None:
    """Weights, adapter with Adam, and cache. None where the model's shape cannot be had without downloading it."""
    from transformers import AutoConfig

    name = config.model.model
    if name == "smollm2-135m":
        hidden, layers, inner, heads, kv, dim, vocab, tied = SMOLLM_SHAPE
    else:
        try:
            # A dry run waits for nobody: without the hub, only what is on this machine is looked at.
            c = AutoConfig.from_pretrained(name, local_files_only=not Path(name).exists() and not hub_answers())
            heads = c.num_attention_heads
            hidden, layers, inner, kv = c.hidden_size, c.num_hidden_layers, c.intermediate_size, c.num_key_value_heads
            dim = getattr(c, "head_dim", None) or hidden // heads
            vocab, tied = c.vocab_size, bool(c.tie_word_embeddings)
        except Exception:
            return None
    shapes_in_layer = [(hidden, heads * dim), (hidden, kv * dim), (hidden, kv * dim), (heads * dim, hidden)]
    shapes_in_layer += [(hidden, inner), (hidden, inner), (inner, hidden)]
    weights = layers * sum(a * b for a, b in shapes_in_layer) + vocab * hidden * (1 if tied else 2)
    adapter = layers * sum(config.model.lora_rank * (a + b) for a, b in shapes_in_layer)
    size = 4 if config.model.dtype == "fp32" or config.model.deterministic else 2
    sequences = min(config.debate.concurrency, config.optim.batch_size * config.debate.debates_per_question) * config.debate.num_agents
    cache = 2 * layers * kv * dim * size * expected_tokens(config)["longest"] * sequences
    return {"weights": weights * size / 2**30, "adapter and Adam": adapter * 16 / 2**30, "cache of all debates": cache / 2**30}


def hub_answers(wait_s: float = 2.0) -> bool:
    """Whether the hub can be reached at all; its own client tries for half a minute before it says no."""
    import os
    import socket
    from urllib.parse import urlsplit

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    if any(name in os.environ for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True  # a proxy may reach what we cannot
    place = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((place.hostname or "", place.port or 443), timeout=wait_s).close()
    except OSError:
        return False
    return True
