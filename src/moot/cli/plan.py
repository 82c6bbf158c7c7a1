"""`moot train --dry-run`: what a run would cost, before it costs anything."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from moot.cli.console import Terminal
from moot.rl.config import TrainConfig

TYPICAL_TURN = 300
"""Tokens of a turn where max_tokens allows more; turns seldom reach a generous limit."""


def expected_tokens(config: TrainConfig) -> dict[str, int]:
    """Tokens an iteration samples, reads and trains on. The prompts' own words are measured; the turns' length is assumed."""
    from moot.debate.state import Debate
    from moot.debate.types import Question

    d, turn = config.debate, min(config.debate.max_tokens, TYPICAL_TURN)
    first = Debate(Question("x" * 200), d.num_agents, d.max_rounds, config.protocol.rules).observe(0)
    opening = sum(len(message.content) for message in first.conversation()) // 4
    others = (d.num_agents - 1) * turn
    seats = config.optim.batch_size * d.num_agents
    sampled = seats * d.max_rounds * turn
    if config.protocol.rules.layout == "growing":
        read = seats * (opening + (d.max_rounds - 1) * (others + 60))
    else:
        read = seats * sum(opening + (r - 1) * (others + turn) for r in range(1, d.max_rounds + 1))
    return {
        "sampled": sampled,
        "read": read,
        "trained on": sampled + read,
        "longest": opening + d.max_rounds * turn + (d.max_rounds - 1) * others,
    }


def memory_gib(config: TrainConfig) -> dict[str, float] | None:
    """Weights, adapter with Adam, and cache. None where the model's shape cannot be had without downloading it."""
    from transformers import AutoConfig

    name = config.model.model
    shapes = {"smollm2-135m": (576, 30, 1536, 9, 3, 64, 49152, True)}
    if name in shapes:
        hidden, layers, inner, heads, kv, dim, vocab, tied = shapes[name]
    else:
        try:
            c = AutoConfig.from_pretrained(name)
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
    sequences = min(config.debate.concurrency, config.optim.batch_size) * config.debate.num_agents
    cache = 2 * layers * kv * dim * size * expected_tokens(config)["longest"] * sequences
    return {"weights": weights * size / 2**30, "adapter and Adam": adapter * 16 / 2**30, "cache of all debates": cache / 2**30}


def show_plan(config: TrainConfig, path: Path, console: Terminal) -> None:
    tokens, d, o = expected_tokens(config), config.debate, config.optim
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("run", str(path))
    table.add_row("model", f"{config.model.model} on the {config.model.engine} engine, LoRA rank {config.model.lora_rank}")
    table.add_row("task", d.task)
    rules, scoring = config.protocol.rules, config.protocol.scoring
    table.add_row(
        "debates",
        f"{d.num_agents} agents, {d.max_rounds} rounds, {rules.schedule}, {rules.contract}, turns of at most {d.max_tokens} tokens",
    )
    table.add_row("reward", f"{scoring.reward}, advantages by {scoring.estimator}")
    if config.warm_steps:
        taken = f", taken over from {config.warm.warm_from}" if config.warm.warm_from else ""
        table.add_row("warm start", f"{config.warm.warm_questions} labelled questions, {config.warm_steps} optimizer steps{taken}")
    table.add_row(
        "self-play", f"{config.iterations} iterations of {o.batch_size} questions, learning rate {o.learning_rate:g} {o.lr_schedule}"
    )
    turn = min(d.max_tokens, TYPICAL_TURN)
    table.add_row("tokens an iteration", ", ".join(f"{tokens[k]:,} {k}" for k in ("sampled", "read", "trained on")) + f" (turns of {turn})")
    table.add_row(
        "tokens in all", f"{tokens['sampled'] * config.iterations:,} sampled, {tokens['trained on'] * config.iterations:,} trained on"
    )
    table.add_row("longest sequence", f"about {tokens['longest']:,} tokens, at most {d.max_rounds * d.max_tokens * d.num_agents + 2000:,}")
    memory = memory_gib(config) if config.model.engine == "local" else None
    if memory:
        table.add_row("memory", ", ".join(f"{value:.1f} GiB {name}" for name, value in memory.items()))
    elif config.model.engine == "local":
        table.add_row("memory", "unknown: the model's configuration is not at hand")
    console.print(table)
    console.say("Nothing was started: this was a dry run.")
