"""What a training run will cost in tokens and memory, before it costs anything."""

from __future__ import annotations

from pathlib import Path

from moot.debate.types import Question
from moot.engine.hub import hub_answers
from moot.engine.memory_estimate import (
    ADAM,
    CACHE_PART,
    CPU_PASS,
    GIB,
    PASS_TOKENS,
    Place,
    Shape,
    adapter_bytes,
    cache_bytes,
    cache_taken,
    pass_bytes,
    pass_tokens,
    weights_bytes,
)
from moot.settings.train import TrainConfig

TYPICAL_TURN = 300
"""Tokens of a turn where max_tokens allows more; turns seldom reach a generous limit."""
TYPICAL_JUDGEMENT = 120
"""Tokens of an evaluation that is sampled on its own, where its limit allows more."""

SMOLLM_SHAPE = Shape(hidden=576, layers=30, inner=1536, heads=9, kv_heads=3, head_dim=64, vocabulary=49152, tied=True)
"""No hub has to be asked for it."""


def expected_tokens(config: TrainConfig) -> dict[str, int]:
    """Tokens that a step samples, reads and trains on. Prompts are measured; the length of turns is assumed."""
    d, turn = config.debate, min(config.debate.max_tokens, TYPICAL_TURN)
    debate = config.empty_debate(Question("x" * 200, sides=("x" * 20,) * config.protocol.rules.seats))
    opening = sum(len(message.content) for message in debate.observe(0).conversation()) // 4
    others = (d.num_agents - 1) * turn
    seats = config.optim.batch_size * d.num_agents
    in_parts = config.protocol.rules.sections != "sampled"
    judging = min(d.evaluation_tokens, TYPICAL_JUDGEMENT) + d.evaluation_tokens // 8 if in_parts else 0
    sampled = seats * (d.max_rounds * turn + (d.max_rounds - 1) * judging)
    if config.protocol.rules.layout == "growing":
        read = seats * (opening + (d.max_rounds - 1) * (others + 60))
    elif config.protocol.rules.layout == "shared" and config.model.kind.shares_prefixes:
        # The transcript once for each debate, and each turn's own end of it.
        read = seats // d.num_agents * (opening + (d.max_rounds - 1) * (others + turn)) + seats * d.max_rounds * 60
    else:
        read = seats * sum(opening + (r - 1) * (others + turn) for r in range(1, d.max_rounds + 1))
    longest = opening + d.max_rounds * turn + (d.max_rounds - 1) * (others + judging)
    return {"sampled": sampled, "read": read, "trained on": sampled + read, "longest": longest}


def checks_per_step(config: TrainConfig, rules: int = 1) -> int:
    """How often a step asks judges without a seat about single answers or pairs, at most. `rules`: of a question, where
    each is asked about alone."""
    rule, answers = config.protocol.scoring.rule, config.optim.batch_size * config.debate.num_agents
    answers *= config.debate.max_rounds
    if rule.ballot == "pairs":
        return answers * int(rule.settings.opponents)  # half as many pairs, in both orders
    return answers * int(rule.settings.checks) * rules if rule.ballot == "approval" else 0


def memory_gib(config: TrainConfig, place: Place | None = None) -> dict[str, float] | None:
    """What the local engine needs, part by part and in all: at `place`, with what is free there, or on a GPU that is
    large enough. None where the model's shape cannot be had without downloading it."""
    model, shape = config.model, shape_of(config.model.model)
    if shape is None:
        return None
    place = place or Place("cuda", 4 if model.dtype == "fp32" or model.deterministic else 2)
    weights, adapter = weights_bytes(shape, place.size), adapter_bytes(shape, model.lora_rank)
    a_token = pass_bytes(shape, model.lora_rank, place.size, model.gradient_checkpointing)
    expected = expected_tokens(config)
    sequences = config.optim.batch_size * config.debate.num_agents  # kept for their next turns
    named = int(model.cache_gib * GIB)
    cache = named or cache_bytes(shape, place.size) * expected["longest"] * sequences
    budget, growing = CPU_PASS if place.device == "cpu" else PASS_TOKENS[0], 0
    if place.free is not None:
        left = max(0, place.free - weights - adapter // ADAM * 4)  # Adam comes with the first step
        while named > left > 0:
            named //= 2  # as the engine does
        bound = named or left // CACHE_PART[place.device]
        cache = min(cache, bound)
        if place.device == "cuda":
            if not named:
                cache = cache_taken(cache, bound)
                growing = cache // 2  # the old pages, beside the new ones
            budget = pass_tokens(left - bound, a_token)
    tokens = max(min(model.token_budget or budget, expected["trained on"]), expected["longest"])
    parts = {
        "weights": weights,
        "adapter and Adam": adapter,
        "cache" if named else "cache of all debates": cache,
        f"passes of {tokens:,} tokens": tokens * a_token,
    }
    if growing > tokens * a_token:  # nothing is trained meanwhile
        parts["more while the cache grows"] = growing - tokens * a_token
    return {name: value / GIB for name, value in {**parts, "in all": sum(parts.values())}.items()}


def shape_of(name: str) -> Shape | None:
    from transformers import AutoConfig

    if name == "smollm2-135m":
        return SMOLLM_SHAPE
    try:
        # A dry run waits for nobody: without the hub, only what is on this machine is looked at.
        local = not Path(name).exists() and not hub_answers()
        return Shape.of(AutoConfig.from_pretrained(name, local_files_only=local))
    except Exception:
        return None
