"""Which questions a step debates, and by how many agents; and what its debates say about them for later."""

from __future__ import annotations

from collections.abc import Sequence

from moot.loop.state import Loop
from moot.records.played import PlayedDebate
from moot.rl.remedies import BatchQuestion, found_easy, still_open


def questions(loop: Loop, step: int) -> list[BatchQuestion]:
    """The next ones of the task, and those that ended in disagreement before."""
    config = loop.config
    first = (config.iteration(step) - 1) * config.optim.batch_size
    count = min(config.optim.batch_size, config.optim.num_train_datapoints - first)
    # The warm start took the first questions; self-play continues behind them.
    first += config.warm.warm_questions
    return [*loop.reopened.get(step, ()), *numbered(loop, [loop.further.number(place) for place in range(first, first + count)])]


def numbered(loop: Loop, numbers: Sequence[int]) -> list[BatchQuestion]:
    """Questions of the task at hand, with fewer agents for those that were easy when they last came by."""
    level, usual, fewer = loop.curriculum.level, loop.config.debate.num_agents, loop.config.recipe.easy_agents
    task = loop.curriculum.tasks[level]
    easy = [bool(fewer) and loop.curriculum.key(level, task.train(number)) in loop.easy for number in numbers]
    return [BatchQuestion(level, number, fewer if is_easy else usual) for number, is_easy in zip(numbers, easy, strict=True)]


def further_questions(loop: Loop, count: int) -> list[BatchQuestion]:
    """From behind all batches, none twice."""
    config = loop.config
    return numbered(loop, loop.further.take(config.warm.warm_questions + config.optim.num_train_datapoints, count))


def look_back(loop: Loop, step: int, asked: Sequence[BatchQuestion], taught: Sequence[PlayedDebate]) -> None:
    """What the debates say about their questions: which to debate again by more agents, and which were easy."""
    recipe = loop.config.recipe
    loop.reopened = {later: each for later, each in loop.reopened.items() if later > step}
    if recipe.hard_agents:
        # The batches up to this one are being sampled, or are about to be.
        following = step + 1 + loop.config.optim.max_staleness
        loop.reopened[following] = list(dict.fromkeys(still_open(asked, taught, recipe.hard_agents)))
    if recipe.easy_agents:
        keys = [loop.curriculum.key(question.level, each.debate.question) for question, each in zip(asked, taught, strict=True)]
        loop.easy = found_easy(loop.easy, keys, taught)
