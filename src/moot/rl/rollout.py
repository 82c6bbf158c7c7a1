"""Many debates are played at once, by the policy and by whoever else holds a seat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from moot.debate.play import Speak, first_of, hear, play
from moot.debate.state import Debate
from moot.debate.types import Observation, Said
from moot.engine.protocol import EngineError, Sampler, SamplingParams
from moot.records.played import PlayedDebate
from moot.rl.rendering import Rendering
from moot.rl.speaker import TokenSpeaker
from moot.turns import SampledTurn, text_only


@dataclass(frozen=True, eq=False)
class Player:
    """Who may sit in a seat: the policy, a past self, another model with a chat format of its own."""

    sampler: Sampler
    rendering: Rendering
    learns: bool = True
    """Whether its turns are trained on."""
    tempered: bool = True
    """Whether it samples at its persona's temperature. The policy does so only where the engine also trains tempered."""


Judges = Callable[[int], Sequence[Player | Speak]]
"""Number of the debate -> who judges it without a seat when it is over. None of them is trained on."""
Seats = Callable[[int, int], Player | Speak | None]
"""(number of the debate, seat) -> who sits there instead of the policy; None for the policy itself. A `Speak` answers in text alone."""


class Table:
    """Speaks for a debate whose seats are held by different players; each keeps the tokens of its own."""

    def __init__(self, policy: TokenSpeaker | None, others: Mapping[int, TokenSpeaker | Speak]) -> None:
        self._policy, self._others = policy, others

    def _speaker(self, agent: int) -> TokenSpeaker | Speak:
        speaker = self._others.get(agent, self._policy)
        assert speaker is not None, f"nobody sits in seat {agent}"
        return speaker

    async def __call__(self, observation: Observation) -> Said:
        return await self._speaker(observation.agent)(observation)

    def sampled(self, debate: Debate) -> tuple[SampledTurn, ...]:
        return tuple(self._sampled(turn.round, turn.agent) for turn in debate.turns)

    def _sampled(self, round: int, agent: int) -> SampledTurn:
        return _turn_of(self._speaker(agent), round, agent)


def _turn_of(speaker: TokenSpeaker | Speak, round: int, agent: int) -> SampledTurn:
    return speaker.turn(round, agent) if isinstance(speaker, TokenSpeaker) else text_only()


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
    limits: Mapping[str, int] | None = None,
    finished: Callable[[int, PlayedDebate], None] | None = None,
) -> list[PlayedDebate]:
    """Plays all debates, at most `concurrency` at a time. One that meets an EngineError ends alone, with the reason in its record.

    The policy (`sampler`, `rendering`) takes every seat that `seats` gives to nobody else; without one, `seats` must fill them all.
    When a debate is over, its `judges` vote. `limits` are the most tokens of a section that is spoken on its own; without one, and
    for a whole turn, `params` says it.
    """
    gate = asyncio.Semaphore(concurrency)
    policy = None if sampler is None or rendering is None else Player(sampler, rendering, tempered=tempered)

    def speaker_for(player: Player, debate: Debate, number: int) -> TokenSpeaker:
        own_seed = None if seed is None else f"{seed}/{number}"
        return TokenSpeaker(
            player.sampler, player.rendering, params, tempered=player.tempered, seed=own_seed, learns=player.learns, limits=limits
        )

    def table(debate: Debate, number: int) -> TokenSpeaker | Table:
        others: dict[int, TokenSpeaker | Speak] = {}
        for seat in range(debate.num_agents):
            if seats is not None and (guest := seats(number, seat)) is not None:
                others[seat] = speaker_for(guest, debate, number) if isinstance(guest, Player) else guest
        if policy is None and len(others) < debate.num_agents:
            raise ValueError(f"there is no policy for the seats of debate {number} that are given to nobody")
        mine = None if policy is None else speaker_for(policy, debate, number)
        return Table(mine, others) if others or mine is None else mine

    async def judged(debate: Debate, number: int) -> tuple[Debate, tuple[SampledTurn, ...]]:
        asked: list[TokenSpeaker | Speak] = []
        for judge in judges(number) if judges else ():
            asked.append(speaker_for(replace(judge, learns=False), debate, number) if isinstance(judge, Player) else judge)
        heard = await hear(debate, *asked)
        said = zip(asked, heard.jury, strict=False)  # nobody has said anything where there was nothing to compare
        return heard, tuple(_turn_of(speaker, turn.round, turn.agent) for speaker, turn in said)

    async def one(number: int, debate: Debate) -> PlayedDebate:
        async with gate:
            speaker = table(debate, number)
            try:
                played, heard = await judged(await play(debate, speaker), number)
                result = PlayedDebate(played, speaker.sampled(played), heard=heard)
            except EngineError as error:
                result = PlayedDebate(debate, error=f"{type(error).__name__}: {error}")
        if finished:
            finished(number, result)
        return result

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(i, debate)) for i, debate in enumerate(debates)]
    except* Exception as failures:  # ours, or whoever heard of a finished debate: the others end with it
        raise first_of(failures) from None
    return [task.result() for task in tasks]
