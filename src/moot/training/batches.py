"""Which questions a step debates, and by how many agents."""

from __future__ import annotations

from collections.abc import Sequence

from moot.training.state import BatchQuestion, Progress, Setup

MOST_BATCHES = 4
"""How often as many questions as a batch has are looked at, at most, before a step is taken with what there is."""


def questions(setup: Setup, progress: Progress, step: int) -> list[BatchQuestion]:
    """What parts want debated again, and the next questions of the task."""
    config = setup.config
    first = (config.iteration(step) - 1) * config.optim.batch_size
    count = min(config.optim.batch_size, config.optim.num_train_datapoints - first)
    again = [question for part in setup.parts for question in part.again(step)]
    # The warm start took the first questions; self-play continues behind them.
    first += config.warm_questions
    return [*again, *numbered(setup, [progress.further.number(place) for place in range(first, first + count)])]


def numbered(setup: Setup, numbers: Sequence[int]) -> list[BatchQuestion]:
    """Questions of the task at hand."""
    level = max((part.level() for part in setup.parts), default=0)
    fresh = [BatchQuestion(level, number, setup.config.debate.num_agents) for number in numbers]
    for part in setup.parts:
        fresh = [part.fresh(setup, question) for question in fresh]
    return fresh


def further_questions(setup: Setup, progress: Progress, count: int) -> list[BatchQuestion]:
    """Unused questions, numbered after the planned ones."""
    config = setup.config
    return numbered(setup, progress.further.take(config.warm_questions + config.optim.num_train_datapoints, count))
