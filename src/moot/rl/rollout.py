"""Many debates are played at once, by the policy and by whoever else holds a seat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from moot.debate.play import Speak, gather_or_raise, hear, play
from moot.debate.state import Debate
from moot.debate.types import Message, Observation, Said
from moot.engine.protocol import Sampler, SamplingParams
from moot.errors import EngineError
from moot.tokens.played import PlayedDebate
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import KeepsTurns, TokenSpeaker, answer_plainly, kept_turns
from moot.tokens.turn import PlainAnswer, SampledTurn, turn_in_text


@dataclass(frozen=True, eq=False)
class Player:
    """Who may sit in a seat: the policy, a past self, another model with a chat format of its own."""

    sampler: Sampler
    rendering: Rendering
    learns: bool = True
    """Whether its turns are trained on."""
    tempered: bool = True
    """Whether it samples at its persona's temperature. The policy does so only where the engine also trains
    tempered."""

    def speaker(
        self, params: SamplingParams, seed: object = None, limits: Mapping[str, int] | None = None
    ) -> TokenSpeaker:
        """For one debate."""
        return TokenSpeaker(
            self.sampler, self.rendering, params, tempered=self.tempered, seed=seed, learns=self.learns, limits=limits
        )

    async def answer(self, messages: Sequence[Message], params: SamplingParams) -> PlainAnswer:
        """To a plain question, outside any debate."""
        ((said, sample),) = await answer_plainly(self.sampler, self.rendering, messages, params)
        return PlainAnswer(said, sample.stop_reason, len(sample.tokens))


@runtime_checkable
class TextPlayer(Protocol):
    """Who may sit in a seat and speaks in text alone, as a model at a chat server does. It is never trained on."""

    def speaker(self, params: SamplingParams, seed: object = None, limits: Mapping[str, int] | None = None) -> Speak:
        """For one debate."""
        ...

    async def answer(self, messages: Sequence[Message], params: SamplingParams) -> PlainAnswer:
        """To a plain question, outside any debate. Raises EngineError."""
        ...


Guest = Player | TextPlayer | Speak
"""Who takes part without being trained on. A bare `Speak` answers in text, and nobody counts its tokens."""
Judges = Callable[[int], Sequence[Guest]]
"""Number of the debate -> who judges it without a seat when it is over. None of them is trained on."""
Checking = Callable[[int, Debate, Sequence[Guest]], Awaitable[Debate]]
"""(number of the debate, the debate, its judges) -> the debate with what they made of its answers, one by one."""
Seats = Callable[[int, int], Guest | None]
"""(number of the debate, seat) -> who sits there instead of the policy; None for the policy itself."""


class Table:
    """Speaks for a debate whose seats are held by different players; each keeps the tokens of its own."""

    def __init__(self, policy: TokenSpeaker | None, others: Mapping[int, Speak]) -> None:
        self._policy, self._others = policy, others

    def _speaker(self, agent: int) -> Speak:
        speaker = self._others.get(agent, self._policy)
        assert speaker is not None, f"nobody sits in seat {agent}"
        return speaker

    async def __call__(self, observation: Observation) -> Said:
        return await self._speaker(observation.agent)(observation)

    def turn(self, round: int, agent: int) -> SampledTurn:
        return _turn_of(self._speaker(agent), round, agent)


def _turn_of(speaker: Speak, round: int, agent: int) -> SampledTurn:
    return speaker.turn(round, agent) if isinstance(speaker, KeepsTurns) else turn_in_text()


async def rollout(
    debates: Iterable[Debate],
    sampler: Sampler | None,
    rendering: Rendering | None,
    params: SamplingParams,
    *,
    concurrency: int = 256,
    tempered: bool = True,
    seed: object = 0,
    seats: Seats | None = None,
    judges: Judges | None = None,
    checking: Checking | None = None,
    limits: Mapping[str, int] | None = None,
    finished: Callable[[int, PlayedDebate], None] | None = None,
) -> list[PlayedDebate]:
    """Plays all debates, at most `concurrency` at a time. One that meets an EngineError ends alone, with the reason in
    its record.

    The policy (`sampler`, `rendering`) takes every seat that `seats` gives to nobody else; without one, `seats` must
    fill them all.
    When a debate is over, its `judges` vote; with `checking` they check its answers instead. `limits` are the most
    tokens of a section that is spoken on its own; without one, and
    for a whole turn, `params` says it.
    """
    gate = asyncio.Semaphore(concurrency)
    policy = None if sampler is None or rendering is None else Player(sampler, rendering, tempered=tempered)

    def own_seed(number: int) -> str | None:
        return None if seed is None else f"{seed}/{number}"

    def speaker_for(guest: Guest, number: int) -> Speak:
        return guest.speaker(params, own_seed(number), limits) if isinstance(guest, Player | TextPlayer) else guest

    def table(debate: Debate, number: int) -> TokenSpeaker | Table:
        others: dict[int, Speak] = {}
        for seat in range(debate.num_agents):
            if seats is not None and (guest := seats(number, seat)) is not None:
                others[seat] = speaker_for(guest, number)
        if policy is None and len(others) < debate.num_agents:
            raise ValueError(f"there is no policy for the seats of debate {number} that are given to nobody")
        mine = None if policy is None else policy.speaker(params, own_seed(number), limits)
        return Table(mine, others) if others or mine is None else mine

    async def heard_by_judges(debate: Debate, number: int) -> tuple[Debate, tuple[SampledTurn, ...]]:
        if checking is not None:
            return await checking(number, debate, judges(number) if judges else ()), ()
        asked = [
            speaker_for(replace(judge, learns=False) if isinstance(judge, Player) else judge, number)
            for judge in (judges(number) if judges else ())
            for _ in range(2 if debate.rules.both_orders else 1)
        ]
        heard = await hear(debate, *asked)
        said = zip(asked, heard.jury, strict=False)  # nobody has said anything where there was nothing to compare
        return heard, tuple(_turn_of(speaker, turn.round, turn.agent) for speaker, turn in said)

    async def one(number: int, debate: Debate) -> PlayedDebate:
        async with gate:
            speaker = table(debate, number)
            try:
                played, heard = await heard_by_judges(await play(debate, speaker), number)
                sampled = kept_turns(speaker, played)
                result = PlayedDebate(played, sampled, heard=heard)
            except EngineError as error:
                result = PlayedDebate(debate, error=f"{type(error).__name__}: {error}")
        if finished:
            finished(number, result)
        return result

    # A failure is ours, or that of whoever heard of a finished debate: the others end with it.
    return await gather_or_raise(one(i, debate) for i, debate in enumerate(debates))
