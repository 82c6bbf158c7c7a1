"""Continuing a run: what may be changed on the way, and whether there is anything left to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from moot.debate.prompt_texts import Prompts
from moot.errors import ConfigError
from moot.runs import Run, write_atomically
from moot.runs.run import tokens_spent
from moot.settings.limits import changeable
from moot.settings.rate import rate_settings
from moot.settings.saved import config_of
from moot.settings.train import TrainConfig


def differences(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, old and new value of every setting that differs."""
    for f in fields(a):
        old, new = getattr(a, f.name), getattr(b, f.name)
        if is_dataclass(old) and not isinstance(old, Prompts):
            yield from differences(old, new)
        elif f.name == "parts" and old != new:
            yield "with", " ".join(old) or "nothing", " ".join(new) or "nothing"
        elif old != new:
            yield ("from" if f.name == "start" else f.name), old, new


def told(changed: list[tuple[str, Any, Any]]) -> str:
    """The first few, as `name old -> new`."""
    return ", ".join(f"{name} {old} -> {new}" for name, old, new in changed[:3]) + (", …" if len(changed) > 3 else "")


def change_settings(run: Run, wanted: TrainConfig, write: bool = True) -> list[str]:
    """Writes what may change into the run, and answers with notes on it. Refuses all else by name."""
    before = config_of(run)
    changed = list(differences(before, wanted))
    free = set(changeable(wanted))
    if fixed := [change for change in changed if change[0] not in free]:
        raise ConfigError(
            f"--resume cannot change {told(fixed)} of {run.path}; leave it out, or start another run from its weights: "
            f"moot train --config {run.path}/run.json --from {run.path} --run NEW, with what is to change"
        )
    done = played_questions(run, before)
    if wanted.optim.num_train_datapoints < done:
        raise ConfigError(
            f"num_train_datapoints must be at least {done}, got {wanted.optim.num_train_datapoints}: that many were "
            "debated already"
        )
    if changed and write:
        write_atomically(
            run.path / "run.json", json.dumps({**run.header, "config": wanted.as_dict()}, indent=1).encode()
        )
    longer = [name for name, _, _ in changed if name in ("num_train_datapoints", "max_sampled_tokens")]
    notes = [f"{name} is {new} from here on; it was {old}." for name, old, new in changed]
    if longer and (shape := rate_settings(wanted.parts).shape) != "constant":
        notes.append(f"the learning rate's {shape} schedule now ends with the longer run.")
    return notes


def played_questions(run: Run, config: TrainConfig) -> int:
    last = max((row["step"] for row in run.metrics() if row.get("phase") == "self_play"), default=config.warm_steps)
    return min(config.iteration(last) * config.optim.batch_size, config.optim.num_train_datapoints)


def is_finished(run: Run, config: TrainConfig) -> bool:
    """Whether all steps are done (or all tokens spent) and the last evaluation is there."""
    rows = run.metrics()
    last = max((row["step"] for row in rows if row.get("phase") in ("warm", "self_play")), default=0)
    spent = 0 < config.recipe.max_sampled_tokens <= max(tokens_spent(rows).values(), default=0.0)
    if last < config.total_steps and not (spent and last >= config.warm_steps):
        return False
    return not config.eval_every or any(row["step"] == last and row.get("phase") == "eval" for row in rows)
