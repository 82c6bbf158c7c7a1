"""A warm start taken over from another run, so that runs to be compared start from the same weights, and it is paid for
once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moot.debate.prompt_texts import Prompts
from moot.debate.rules import Rules
from moot.debate.typed_fields import names_of
from moot.errors import ConfigError
from moot.players.checkpoints import newest_whole
from moot.runs import Run
from moot.settings.changes import differences
from moot.settings.saved import config_of
from moot.settings.train import TrainConfig
from moot.training.parts import trained_tasks

SAME = {
    "engine", "base_url", "model", "tokenizer", "renderer", "thinking", "lora_rank",
    "num_agents", "max_rounds", "prompts", "seed", "task", *names_of(Rules),
} - {"temperature", "on_parse_failure", "both_orders"}  # fmt: skip
"""What a warm start depends on, beside its own settings: the model, the optimizer, and all that its debates show."""
SAMPLED = {"temperature", "max_tokens"}
"""What it depends on as well, where the model writes some of its examples."""


@dataclass(frozen=True)
class WarmStart:
    state: str
    """What the engine loads."""
    rows: list[dict[str, Any]]
    """Its metrics, step by step."""


def warm_start_of(config: TrainConfig) -> WarmStart:
    """What `config.warm.warm_from` names. ConfigError where that run has none, or one of other settings."""
    path = Path(config.warm.warm_from)
    run = Run.open(path)
    theirs = config_of(run)
    if not config.warm_steps:
        raise ConfigError(
            f"warm_from names {path}, but warm_questions is 0: give the settings of its warm start too "
            f"({_asked(theirs)})"
        )
    # Where another task is trained on first, the one that is measured does not matter.
    ours, others = (
        replace(each, debate=replace(each.debate, task=trained_tasks(each)[0])) for each in (config, theirs)
    )
    same = SAME | (SAMPLED if config.warm.warm_solutions == "own" or config.warm.warm_wrong == "sampled" else set())
    for name, own, other in differences(ours, others):
        if name in same or (name.startswith("warm_") and name != "warm_from"):
            own, other = (str(each) if isinstance(each, Prompts) else each for each in (own, other))
            raise ConfigError(
                f"{name} is {own!r} here and {other!r} in {path}, whose warm start is to be taken over; make them equal"
            )
    rows = [row for row in run.metrics() if row["phase"] == "warm"]
    if (last := max((row["step"] for row in rows), default=0)) < config.warm_steps:
        raise ConfigError(
            f"warm_from names {path}, which has not finished its warm start ({last} of {config.warm_steps} steps)"
        )
    if checkpoint := newest_whole(run, config.warm_steps):
        return WarmStart(checkpoint.engine_state, rows)
    raise ConfigError(
        f"warm_from names {path}, whose checkpoint of step {config.warm_steps} is missing or damaged; train that run "
        "again"
    )


def _asked(theirs: TrainConfig) -> str:
    w = theirs.warm
    return f"--warm-questions {w.warm_questions} --warm-epochs {w.warm_epochs} --warm-batch-size {w.warm_batch_size}"
