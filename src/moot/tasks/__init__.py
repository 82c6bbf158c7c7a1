"""Where questions come from. A task is a stream of training questions, a held-out set, and a way to tell right from wrong.

To add one: a file with a function (spec, seed, held_out) -> Task, and a line in TASKS. `gsm8k.py` shows a published set,
`arithmetic.py` a generator.
"""

from __future__ import annotations

from collections.abc import Callable

from moot import users
from moot.debate.types import ConfigError
from moot.tasks import aime, arithmetic, files, gsm8k, gym, longwriter, math_set
from moot.tasks.spec import Spec
from moot.tasks.task import Task

__all__ = ["TASKS", "Task", "load"]

TASKS: dict[str, Callable[[Spec, int, int], Task]] = {
    "arithmetic": arithmetic.task,
    "gsm8k": gsm8k.task,
    "math": math_set.task,
    "aime24": aime.task,
    "reasoning-gym": gym.task,
    "longwriter": longwriter.task,
}


def load(name: str, seed: int = 0, held_out: int = 64) -> Task:
    """A task by its name and settings, a .jsonl or .txt file, or path.py:function, which is called with seed and held_out."""
    spec = Spec.read(name)
    if spec.name in TASKS:
        return TASKS[spec.name](spec, seed, held_out)
    if spec.name.endswith((".jsonl", ".json", ".txt")):
        return files.task(spec, seed, held_out)
    if spec.name.endswith(".py"):
        made = users.load(name, "task")(seed, held_out)
        if not isinstance(made, Task):
            raise ConfigError(f"task {name!r} must return a moot.tasks.Task, got {type(made).__name__}")
        return made
    raise ConfigError(f"task must be one of {', '.join(TASKS)}, a .jsonl or .txt file, or path.py:function, got {name!r}")
