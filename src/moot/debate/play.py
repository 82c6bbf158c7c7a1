"""One coroutine plays one debate. Control flow is the protocol: no locks, no callbacks, nothing to deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from moot.debate.state import Debate
from moot.debate.types import Observation, Said

T = TypeVar("T")
Speak = Callable[[Observation], Awaitable[Said]]
"""Anything that answers: a model, a script, a person, an endpoint."""


async def play(debate: Debate, speak: Speak, watch: Callable[[Debate], None] | None = None) -> Debate:
    """Plays to the end. If a speaker raises, the others of its round are cancelled and the exception comes out as it
    is."""
    while not await _over(debate):
        agents = debate.next_speakers
        said = await gather_or_raise(_said(speak, debate, agent) for agent in agents)
        debate = debate.advance(dict(zip(agents, said, strict=True)))
        if watch:
            watch(debate)
    return debate


async def hear(debate: Debate, *judges: Speak) -> Debate:
    """Asks judges who hold no seat, all at once; none sees another's ballot. Where fewer than two agents have an answer
    nobody is asked."""
    if not judges or len(debate.answers()) < 2:
        return debate
    first = len(debate.jury)
    return debate.heard(await gather_or_raise(_judged(speak, debate, first + j) for j, speak in enumerate(judges)))


async def _judged(speak: Speak, debate: Debate, judge: int) -> Said:
    return await _turn(speak, debate, partial(debate.observe_as_judge, judge))


async def _over(debate: Debate) -> bool:
    """A grader with processes of its own is waited for in a thread, and the other debates continue meanwhile."""
    if (debate.stop_when_settled or debate.extra_rounds) and getattr(debate.settled, "workers", 1) > 1:
        return await asyncio.to_thread(lambda: debate.done)
    return debate.done


async def _said(speak: Speak, debate: Debate, agent: int) -> Said:
    return await _turn(speak, debate, partial(debate.observe, agent))


async def _turn(speak: Speak, debate: Debate, observe: Callable[[list[Said]], Observation]) -> Said:
    """One turn, which may be spoken in parts: a speaker answers one request after the other and need not know of the
    turn."""
    said: list[Said] = []
    while True:
        observation = observe(said)
        said.append(await speak(observation))
        if observation.last_part:
            return debate.joined(observation, said)


async def gather_or_raise(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them answer, in order. The first failure ends the others and comes out as it was raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        failure: BaseException = failures
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        raise failure from None
    return [task.result() for task in tasks]
