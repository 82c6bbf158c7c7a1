"""Where questions come from. A task is a stream of training questions, a held-out set, and a way to tell right from
wrong.

To add one: a file with a function (spec, seed, held_out) -> Task, and a line in TASKS. `gsm8k.py` shows a published
set, `arithmetic.py` a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moot.debate.typed_fields import near
from moot.errors import ConfigError
from moot.tasks import aime, arithmetic, code_set, constraints, countdown, files, gsm8k, gym, longwriter, math_set
from moot.tasks.sets import without
from moot.tasks.spec import Spec
from moot.tasks.task import Task
from moot.util import user_code as users

__all__ = ["TASKS", "Task", "check_name", "load", "load_trained"]

TASKS: dict[str, Callable[[Spec, int, int], Task]] = {
    "arithmetic": arithmetic.task,
    "countdown": countdown.task,
    "constraints": constraints.task,
    "gsm8k": gsm8k.task,
    "math": math_set.task,
    "aime24": aime.task,
    "reasoning-gym": gym.task,
    "longwriter": longwriter.task,
    "humaneval": code_set.humaneval,
    "code": code_set.code,
}


def load(name: str, seed: int = 0, held_out: int = 64) -> Task:
    """A task by its name and settings, a .jsonl, .csv or .txt file, or path.py:function of (seed, held_out)."""
    spec = Spec.read(name)
    if spec.name in TASKS:
        return TASKS[spec.name](spec, seed, held_out)
    if spec.name.endswith((".jsonl", ".json", ".csv", ".txt")):
        return files.task(spec, seed, held_out)
    if spec.name.endswith(".py"):
        made = users.load(name, "task")(seed, held_out)
        if not isinstance(made, Task):
            raise ConfigError(f"task {name!r} must return a moot.tasks.Task, got {type(made).__name__}")
        return made
    names = f"{', '.join(TASKS)}, a .jsonl, .csv or .txt file, or path.py:function"
    raise ConfigError(f"task must be one of {names}, got {name!r}{near(spec.name, TASKS)}")


def check_name(name: str, seed: int = 0, held_out: int = 64) -> Task | None:
    """Refuses a name that `load` would refuse, without asking the hub for a set; any other task is loaded."""
    return None if Spec.read(name).name in TASKS else load(name, seed, held_out)


def load_trained(names: Sequence[str], measured: Task, seed: int = 0, held_out: int = 64) -> list[Task]:
    """The tasks to train on, while `measured` is evaluated on. No names mean that `measured` itself is trained on.

    A set without questions to train on is found now. A question that `measured` holds out is trained on in none of
    them.
    """
    tasks = [without(load(name, seed, held_out), measured.held_out, seed) for name in names] or [measured]
    for task in tasks:
        task.train(0)
    return tasks
