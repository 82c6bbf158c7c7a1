"""Functions for Python: play a debate with any function as speaker, score it, train. `import moot` offers them lazily;
docs/api.md has examples.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from moot.debate.play import Speak, hear
from moot.debate.play import play as play_debate
from moot.debate.protocols import V2, Protocol
from moot.debate.rewards import Reward, as_reward, register
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.engine.protocol import Datum
from moot.errors import ConfigError
from moot.rl.advantages import with_advantages
from moot.rl.lookup import find_estimator, find_reward
from moot.tasks.answer_classes import Grader
from moot.tasks.answers import exact, grade
from moot.tokens.datums import datums as datums_of
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.teacher_forcing import dictated

if TYPE_CHECKING:
    from moot.runs import Run
    from moot.settings.train import TrainConfig

T = TypeVar("T")
GivenReward = str | Reward | Callable[..., Any]
"""The name of a reward, path.py:function, a `Reward`, or a function of a debate (and its grades)."""
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

    A plain function is called for one agent at a time, in speaking order; a coroutine function for all agents of a
    parallel round at once. `judges` hold no seat and vote when the debate is over.
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
    speakers = [_speaking(seat) for seat in seats]

    async def speak(observation: Observation) -> Said:
        return await speakers[observation.agent](observation)

    played = await play_debate(Debate(asked, num_agents, max_rounds, protocol.rules), speak)
    return await hear(played, *map(_speaking, judges))


@overload
def score(
    debate: Debate | PlayedDebate, protocol: Protocol = V2, reward: GivenReward | None = None, equal: Grader = exact
) -> PlayedDebate: ...
@overload
def score(
    debate: Iterable[Debate | PlayedDebate],
    protocol: Protocol = V2,
    reward: GivenReward | None = None,
    equal: Grader = exact,
) -> list[PlayedDebate]: ...
def score(
    debate: Debate | PlayedDebate | Iterable[Debate | PlayedDebate],
    protocol: Protocol = V2,
    reward: GivenReward | None = None,
    equal: Grader = exact,
) -> PlayedDebate | list[PlayedDebate]:
    """Rewards and advantages by the votes of one debate, or of several that are one batch to the estimator.

    `protocol` says how votes count; `reward` is paid instead of the one it names: another name, or a function of
    your own. `equal` tells whether two answers are the same, where the right one is known.
    """
    given: Iterable[Any] = [debate] if isinstance(debate, Debate | PlayedDebate) else debate
    batch = [item if isinstance(item, PlayedDebate) else PlayedDebate(item) for item in given]
    paid = _reward(protocol.scoring.reward if reward is None else reward)
    scoring = replace(protocol.scoring, reward=paid.name)
    if lost := next((played for played in batch if played.error is not None), None):
        raise ConfigError(f"a debate that the engine lost cannot be scored ({lost.error}); leave it out")
    scored = [played.scored(scoring, grade(played.debate, equal), paid) for played in batch]
    taught = with_advantages(scored, find_estimator(scoring)) if scored else []
    return taught[0] if isinstance(debate, Debate | PlayedDebate) else taught


def datums(played: PlayedDebate | Iterable[PlayedDebate], tokenizer: Any = None) -> list[Datum]:
    """What an engine trains on: token sequences with an advantage for each token.

    Debates that an engine sampled have tokens. For others name a `tokenizer` with a chat template: the texts are
    encoded in its format, and the logprobs of the sampler are 0, because nobody sampled these tokens.
    """
    made: list[Datum] = []
    rendering = None
    for spoken in [played] if isinstance(played, PlayedDebate) else played:
        if spoken.advantages is None:
            raise ConfigError("datums need advantages; score the debate first")
        sampled = spoken.sampled
        if not any(len(turn.tokens) for turn in sampled):
            if tokenizer is None:
                raise ConfigError("this debate has texts and no tokens; name a tokenizer to encode them")
            rendering = rendering or Rendering(tokenizer)
            sampled = run(dictated(spoken.debate, rendering))
        made += datums_of(spoken.debate, sampled, spoken.advantages)
    return made


def _speaking(speaker: Speaker) -> Speak:
    async def speak(observation: Observation) -> Said:
        said: Any = speaker(observation)
        if inspect.isawaitable(said):
            said = await said
        if not isinstance(said, str | Said):
            raise TypeError(
                f"a speaker must return a string or Said, and {getattr(speaker, '__name__', speaker)!r} returned "
                f"{said!r:.80}"
            )
        return Said(said) if isinstance(said, str) else said

    return speak


def config(preset: str = "demo", **settings: Any) -> TrainConfig:
    """The settings of a preset, with some of them changed by the names they have in `moot train`:
    `config("math", learning_rate=1e-5)`.

    `reward` may be a function of your own or a `Reward`. One that stands in a file is found there when the run
    continues elsewhere.
    """
    from moot.settings.file import with_settings
    from moot.settings.presets import find_preset

    if callable(given := settings.get("reward")):
        settings["reward"] = register(_reward(given)).name
    return with_settings(find_preset(preset), settings)


def _reward(given: GivenReward) -> Reward:
    if isinstance(given, str):
        return find_reward(given)
    return register(given) if isinstance(given, Reward) else as_reward(given)


def train(
    config: TrainConfig,
    path: str | Path,
    watch: Callable[[dict[str, Any]], object] | None = None,
    restart: bool = False,
) -> Run:
    """Trains as `moot train` does, without printing anything, and gives the run. Where `path` holds an unfinished run
    of the same settings, that run is continued; with `restart` it is moved aside instead. `watch` is called with
    each row of the metrics."""
    from moot.training.setup import train_async  # heavy: engines, evaluation

    return run(train_async(config, path, watch, restart))


def train_together(
    runs: Iterable[tuple[TrainConfig, str | Path]],
    watch: Callable[[Run, dict[str, Any]], object] | None = None,
    restart: bool = False,
) -> list[Run]:
    """Trains several runs at once, each as `train` does, on one copy of their model. What ends one of them early harms
    no other; once all have ended it is raised, in an ExceptionGroup. `watch` is called with the run and the row."""
    from moot.training.together import train_together_async

    return run(train_together_async(runs, watch, restart))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Waits for it, also inside a notebook, where a loop is running already and this thread must not start another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
