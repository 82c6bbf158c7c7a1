"""The numbers of a configuration: the least and the most that each count may be, and what no rate may be."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from moot.debate.prompt_texts import Prompts
from moot.errors import ConfigError

LEAST = {
    "max_rounds": 1, "max_tokens": 1, "evaluation_tokens": 1,
    "batch_size": 1, "num_train_datapoints": 0,
    "warm_questions": 0,
    "eval_every": 0, "save_every": 0, "lora_rank": 1, "token_budget": 0,
}  # fmt: skip

MOST = {"lora_rank": 1024, "num_agents": 1000, "max_rounds": 1000, "cache_gib": 10_000}
"""A run may be somebody else's, and memory is taken by these before anything else of it is looked at."""


def check_numbers(config: Any) -> None:
    """Every count has its least value, and some a most. Every rate, clip, weight and coefficient is a number, and none
    but a bonus is
    below 0."""
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value) and not isinstance(value, Prompts):
            check_numbers(value)
        elif f.name in LEAST and value < LEAST[f.name]:
            raise ConfigError(f"{f.name} must be at least {LEAST[f.name]}, got {value}")
        elif f.name in MOST and value > MOST[f.name]:
            raise ConfigError(f"{f.name} must be at most {MOST[f.name]}, got {value}")
        elif isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{f.name} must be a number, got {value}")
        elif isinstance(value, float) and value < 0 and f.name != "correct_bonus":
            raise ConfigError(f"{f.name} must be 0 or more, got {value}")
