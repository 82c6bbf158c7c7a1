"""A debate that another trainer's loop plays: every seat is an episode of its own there, and moot says what each is
asked.

No foreign package is imported here. A host samples; prompts, votes, rewards and credit are moot's own, by the code that
`moot train` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np

from moot import tasks
from moot.debate.play import play
from moot.debate.protocols import Protocol, preset
from moot.debate.state import Debate
from moot.debate.types import Observation, Question, Said
from moot.engine.protocol import Floats, Ints, Sample, Sampler, SamplingParams, Stop
from moot.errors import ConfigError, EngineError
from moot.rl.advantages import with_advantages
from moot.rl.lookup import find_estimator, find_reward
from moot.rl.rollout import Table
from moot.tasks import Task
from moot.tasks.answers import grade_all_async
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import TokenSpeaker, kept_turns
from moot.tokens.turn import SampledTurn

load_task = cache(tasks.load)
UNLIMITED = 1 << 20
"""How many tokens a turn may have is the host's to say."""


@dataclass(frozen=True)
class Setting:
    """What is debated, and how. Plain data, so that a host can send it to another process."""

    task: str = "arithmetic"
    num_agents: int = 3
    max_rounds: int = 2
    protocol: str = "v2"
    """A preset, such as v1, v2 or v2_literal."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Choices of the protocol that differ from the preset's."""
    seed: int = 0
    held_out: int = 64

    def __post_init__(self) -> None:
        rules, scoring = self.chosen.rules, self.chosen.scoring
        if rules.sections == "given":
            cut = "sections 'given' cuts what was sampled, and a host trains on all of it"
            raise ConfigError(f"{cut}; use sections sampled or asked")
        seats = "a host's group has only seats"
        if rules.needs_judge:
            raise ConfigError(
                f"positions {rules.positions!r} needs a judge without a seat, and {seats}; use positions none"
            )
        if not scoring.agents_count:
            raise ConfigError(f"voters 'judges' needs judges without a seat, and {seats}; use voters agents")

    @cached_property
    def chosen(self) -> Protocol:
        return preset(self.protocol).with_choices(self.choices)

    @property
    def loaded_task(self) -> Task:
        return load_task(self.task, self.seed, self.held_out)

    def debate(self, question: Question) -> Debate:
        return Debate(question, self.num_agents, self.max_rounds, self.chosen.rules)

    async def scored(self, played: PlayedDebate) -> PlayedDebate:
        """With grades, rewards, and the advantages of a batch that is this one debate."""
        task, scoring = self.loaded_task, self.chosen.scoring
        (grades,) = await grade_all_async([played.debate], task.equal, task.extract, task.check)
        paid = played.scored(scoring, grades, find_reward(scoring.reward))
        return with_advantages([paid], find_estimator(scoring))[0]


@cache
def rendering_of(model: str, renderer: str = "auto", thinking: bool = False) -> Rendering:
    from transformers import AutoTokenizer

    return Rendering(AutoTokenizer.from_pretrained(model), model, renderer, thinking)


# The seats


@dataclass(frozen=True, eq=False)
class Request:
    """What a seat is asked for next."""

    prompt: Ints
    stop: Stop


class _Seat(Sampler):
    """A sampler whose tokens come from the host."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Request | None] = asyncio.Queue()
        self.replies: asyncio.Queue[Sample] = asyncio.Queue()
        self.rounds: list[int] = []
        """The round of each request."""

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        self.requests.put_nowait(Request(np.asarray(prompt, dtype=np.int32), params.stop))
        return [await self.replies.get()]

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Floats:
        raise NotImplementedError("a host samples for a seat, and computes no logprobs for it")


class HostedDebate:
    """One debate, whose seats the host's loop plays at once: `request` asks, `reply` answers, to the end."""

    def __init__(self, debate: Debate, rendering: Rendering) -> None:
        self._debate = debate
        self._seats = [_Seat() for _ in range(debate.num_agents)]
        params = SamplingParams(max_tokens=UNLIMITED, temperature=debate.rules.temperature)
        speakers = [TokenSpeaker(seat, rendering, params, tempered=False) for seat in self._seats]
        self._table = Table(None, dict(enumerate(speakers)))
        self._playing: asyncio.Task[Debate] | None = None
        self._given_up = False

    async def request(self, seat: int) -> Request | None:
        """What the seat is asked for; None when the debate is over. Waits for the seats that speak before it."""
        if self._playing is None and not self._given_up:
            self._playing = asyncio.create_task(play(self._debate, self._speak))
            # Not in the task: one that is cancelled before its first step does nothing.
            self._playing.add_done_callback(self._over)
        request = await self._seats[seat].requests.get()
        if request is None:
            self._seats[seat].requests.put_nowait(None)  # who asks again hears it again
            if self._playing is None or self._playing.cancelled():
                raise EngineError("the debate was given up, because another of its seats could not be played")
            await self._playing
        return request

    def reply(self, seat: int, tokens: Sequence[int] | Ints, stop_reason: Literal["stop", "length"] = "stop") -> None:
        """Logprobs are the host's, and it keeps them."""
        ids = np.asarray(tokens, dtype=np.int32)
        self._seats[seat].replies.put_nowait(Sample(ids, np.zeros(len(ids), dtype=np.float32), stop_reason))

    def give_up(self) -> None:
        """Ends the debate for every seat. Whoever waits for a request is told by an EngineError."""
        if self._playing is not None:
            self._playing.cancel()
        elif not self._given_up:
            self._given_up = True
            self._over()

    @property
    def played(self) -> PlayedDebate:
        if self._playing is None or not self._playing.done() or self._playing.cancelled():
            raise EngineError("the debate is not over; play all of its seats to their end")
        debate = self._playing.result()
        return PlayedDebate(debate, kept_turns(self._table, debate))

    def _over(self, _: object = None) -> None:
        for seat in self._seats:
            seat.requests.put_nowait(None)

    async def _speak(self, observation: Observation) -> Said:
        self._seats[observation.agent].rounds.append(observation.round)
        return await self._table(observation)

    def turn_of_each_reply(self, seat: int) -> list[int | None]:
        """For each reply of a seat, which of its turns it belongs to; None where the debate ended before that."""
        kept = [turn.round for turn in self.played.debate.turns if turn.agent == seat]
        return [kept.index(round) if round in kept else None for round in self._seats[seat].rounds]


async def replay(
    debate: Debate, rendering: Rendering, replies: Sequence[Sequence[tuple[Sequence[int], bool]]]
) -> HostedDebate | None:
    """A debate that was played in text, anew from its tokens: per seat, what it sampled, and whether that was cut at
    its limit.

    None where the tokens say something else than the text did, as they do where a host takes a model's thinking out.
    """
    hosted = HostedDebate(replace(debate, turns=(), jury=()), rendering)

    async def play_seat(seat: int) -> None:
        for tokens, cut in replies[seat]:
            if await hosted.request(seat) is None:
                return
            hosted.reply(seat, tokens, "length" if cut else "stop")
        if await hosted.request(seat) is not None:
            hosted.give_up()

    await asyncio.gather(*(play_seat(seat) for seat in range(debate.num_agents)), return_exceptions=True)
    try:
        replayed = hosted.played.debate
    except EngineError:
        return None
    return hosted if [turn.text for turn in replayed.turns] == [turn.text for turn in debate.turns] else None


# What a host is paid in


def turn_rewards(played: PlayedDebate) -> list[list[float]] | None:
    """Per seat, the reward of each turn: the weighted sum of its streams. None where a reward is the whole debate's."""
    scores = played.scores
    assert scores is not None, "score the debate first"
    if scores.per == "agent":
        return None
    streams = scores.streams.values()
    return [
        [sum(stream.weight * stream.values[seat][turn] for stream in streams) for turn in range(len(turns))]
        for seat, turns in enumerate(played.debate.turns_by_agent())
    ]


def seat_rewards(played: PlayedDebate) -> list[float]:
    """Per seat, what it earned in the whole debate."""
    by_turn = turn_rewards(played)
    if by_turn is not None:
        return [sum(row) for row in by_turn]
    assert played.scores is not None, "score the debate first"
    return list(played.scores.returns)


def seat_metrics(played: PlayedDebate, seat: int) -> dict[str, float]:
    own = [i for i, turn in enumerate(played.debate.turns) if turn.agent == seat]
    metrics = {
        "seat": float(seat),
        "turns": float(len(own)),
        "failed_turns": float(sum(played.debate.turns[i].failed for i in own)),
        "won": float(played.winner == seat),
    }
    if played.answer_known:
        metrics["correct"] = float(played.correct(played.debate.answers().get(seat)))
    return metrics


def with_logprobs(turn: SampledTurn, logprobs: Sequence[float]) -> SampledTurn:
    """The turn with the host's logprobs on the tokens that were sampled."""
    values = np.zeros(len(turn.tokens), dtype=np.float32)
    values[turn.sampled] = np.asarray(logprobs, dtype=np.float32)
    return replace(turn, logprobs=values)
