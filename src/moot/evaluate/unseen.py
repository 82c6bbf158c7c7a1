"""Which held-out questions may be asked of a run: those it has not trained on. What a policy has seen proves
nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moot.debate.types import Question
from moot.errors import ConfigError
from moot.players.checkpoints import newest_whole, split_name
from moot.players.untrusted import is_code
from moot.runs import Run
from moot.settings.question_numbers import Further
from moot.settings.saved import config_of
from moot.settings.train import TrainConfig
from moot.tasks import load as load_task
from moot.tasks.task import Task
from moot.training.parts import trained_tasks
from moot.util.safe_text import counted


def unseen_questions(
    task: Task, trained: TrainConfig | None, step: int, count: int, saved: Any = ()
) -> tuple[list[Question], list[str]]:
    """The first `count` held-out questions without those that the run had trained on by `step`, and notes on what is
    missing.

    `trained` is None for a model without a run. `saved` is what its checkpoint says of questions debated beyond the
    batches.
    Held-out questions of one task may be another's training questions.
    """
    asked = list(task.held_out)[:count]
    seen, notes = (set[str](), list[str]()) if trained is None else _seen(trained, step, saved)
    fresh = [question for question in asked if question.text not in seen]
    if asked and not fresh:
        raise ConfigError(
            f"the run trained on all {len(asked)} held-out questions of task {task.name}; name another task"
        )
    if left_out := len(asked) - len(fresh):
        notes.append(f"{left_out} of {len(asked)} questions are left out because the run trained on them.")
    if len(fresh) < count:
        notes.append(f"the task has only {counted(len(fresh), 'question')} to ask.")
    return fresh, notes


def _seen(
    trained: TrainConfig, step: int, saved: Any, passed: frozenset[Path] = frozenset()
) -> tuple[set[str], list[str]]:
    """All that the weights have learned from, those that the run started from included; `passed` are the runs on the
    way there, which a damaged one may lead back to."""
    seen = _trained_texts(trained, step, saved) if step else set[str]()
    if not trained.start:
        return seen, []
    unknown = f"the run started from {trained.start}, and which of these questions that has seen is not known."
    if (named := split_name(trained.start)) is None or (path := named[0].resolve()) in passed:
        return seen, [unknown]
    source = Run.open(named[0])
    newest, theirs = newest_whole(source), config_of(source)
    if newest is None or any(map(is_code, trained_tasks(theirs))):  # its code is not run for this
        return seen, [unknown]
    earlier, notes = _seen(theirs, newest.step, (newest.state or {}).get("further", ()), passed | {path})
    return seen | earlier, notes


def _trained_texts(trained: TrainConfig, step: int, saved: Any) -> set[str]:
    iterations = max(0, trained.iteration(step))
    played = min(iterations * trained.optim.batch_size, trained.optim.num_train_datapoints)
    warm = trained.warm_questions
    further = Further.from_state(saved)
    numbers = [*range(warm), *map(further.number, range(warm, warm + played)), *further.numbers]
    sources = [load_task(name, trained.seed, trained.eval_questions) for name in trained_tasks(trained)]
    return {source.train(number).text for source in sources for number in numbers}
