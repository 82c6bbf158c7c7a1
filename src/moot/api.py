"""Functions for Python: play a debate with any function as speaker, train from a configuration. `import moot` offers them lazily;
docs/api.md has examples.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from moot.debate.play import Speak, hear
from moot.debate.play import play as play_debate
from moot.debate.protocol import V2, Protocol
from moot.debate.state import Debate
from moot.debate.types import ConfigError, Observation, Question, Said

if TYPE_CHECKING:
    from moot.records import Run
    from moot.rl.config import TrainConfig

T = TypeVar("T")
Speaker = Callable[[Observation], str | Said | Awaitable[str | Said]]
"""Any function that answers: it is given what the agent sees and returns its turn, at once or as a coroutine."""


def play(
    question: str | Question,
    speaker: Speaker | Sequence[Speaker],
    num_agents: int = 3,
    max_rounds: int = 2,
    protocol: Protocol = V2,
    judges: Sequence[Speaker] = (),
) -> Debate:
    """Plays one debate to its end. One speaker speaks for every seat; a list has one for each seat.

    A plain function is called for one agent at a time, in speaking order; a coroutine function for all agents of a parallel round at once.
    `judges` hold no seat and vote when the debate is over.
    """
    return run(play_async(question, speaker, num_agents, max_rounds, protocol, judges))


async def play_async(
    question: str | Question,
    speaker: Speaker | Sequence[Speaker],
    num_agents: int = 3,
    max_rounds: int = 2,
    protocol: Protocol = V2,
    judges: Sequence[Speaker] = (),
) -> Debate:
    """As `play`, to be awaited: for many debates at once."""
    asked = Question(question) if isinstance(question, str) else question
    seats = [speaker] * num_agents if callable(speaker) else list(speaker)
    if len(seats) != num_agents:
        raise ConfigError(f"speaker must be one function or one per seat, got {len(seats)} for {num_agents} agents")
    speakers = [_speaking(each) for each in seats]

    async def speak(observation: Observation) -> Said:
        return await speakers[observation.agent](observation)

    played = await play_debate(Debate(asked, num_agents, max_rounds, protocol.rules), speak)
    return await hear(played, *map(_speaking, judges))


def _speaking(speaker: Speaker) -> Speak:
    async def speak(observation: Observation) -> Said:
        said: Any = speaker(observation)
        if inspect.isawaitable(said):
            said = await said
        if not isinstance(said, str | Said):
            raise TypeError(f"a speaker must return a string or Said, and {getattr(speaker, '__name__', speaker)!r} returned {said!r:.80}")
        return Said(said) if isinstance(said, str) else said

    return speak


def train(config: TrainConfig, path: str | Path, watch: Callable[[dict[str, Any]], object] | None = None, restart: bool = False) -> Run:
    """Trains as `moot train` does, without printing anything, and gives the run. Where `path` holds an unfinished run of the same settings,
    that run is continued; with `restart` it is moved aside instead. `watch` is called with each row of the metrics."""
    from moot.training import train_async  # heavy: engines, evaluation

    return run(train_async(config, path, watch, restart))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Waits for it, also inside a notebook, where a loop is running already and this thread must not start another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
