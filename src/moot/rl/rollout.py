"""A sampler becomes a speaker, and many debates are played at once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from moot.debate.parsing import BALLOT
from moot.debate.play import Speak, first_of, hear, play
from moot.debate.state import Debate
from moot.debate.types import Observation, Said
from moot.engine.protocol import EngineError, Ints, Sampler, SamplingParams
from moot.records.played import PlayedDebate
from moot.rl.rendering import Rendering
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


def turn_seed(*parts: object) -> int:
    """A seed from what a turn is, not from when it was sampled, so that the order of sampling changes nothing."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@dataclass
class _Conversation:
    """What an agent's tokens are so far; kept in pieces, joined only to ask for the next turn."""

    pieces: list[Ints] = field(default_factory=list)

    def joined(self) -> Ints:
        if len(self.pieces) > 1:
            self.pieces = [np.concatenate(self.pieces)]
        return self.pieces[0]


class TokenSpeaker:
    """Speaks for every seat of one debate through a sampler, and keeps what was sampled."""

    def __init__(
        self,
        sampler: Sampler,
        rendering: Rendering,
        params: SamplingParams,
        *,
        tempered: bool = True,
        seed: object = None,
        learns: bool = True,
    ) -> None:
        self._sampler, self._rendering, self._params = sampler, rendering, params
        self._tempered, self._seed, self._learns = tempered, seed, learns
        self._conversations: dict[int, _Conversation] = {}
        self._turns: dict[tuple[int, int], SampledTurn] = {}

    async def __call__(self, observation: Observation) -> Said:
        agent = observation.agent
        prompt, new = self._prompt(observation)
        params = replace(
            self._params,
            temperature=observation.temperature if self._tempered else self._params.temperature,
            seed=None if self._seed is None else turn_seed(self._seed, observation.round, agent),
            stop=self._rendering.stops(BALLOT) if observation.contract == BALLOT else self._params.stop,
        )
        (sample,) = await self._sampler.sample(prompt, params)
        text, starts = self._rendering.said(sample.tokens)
        self._conversations[agent].pieces.append(sample.tokens)
        self._turns[observation.round, agent] = SampledTurn(
            prompt=new,
            extends=observation.extends,
            tokens=sample.tokens,
            logprobs=sample.logprobs,
            starts=starts,
            temperature=params.temperature,
            stop_reason=sample.stop_reason,
            learns=self._learns,
        )
        # With stop ids the closing tag is the model's own to write; only a stop string can have taken it away.
        stopped_on_tag = sample.stop_reason == "stop" and all(isinstance(stop, str) for stop in params.stop)
        return Said(text, closed=stopped_on_tag)

    def _prompt(self, observation: Observation) -> tuple[Ints, Ints]:
        """The whole prompt, and the part of it that is new."""
        if observation.extends:
            conversation = self._conversations[observation.agent]
            new = self._rendering.suffix(self._last_turn(observation).tokens, observation.newest)
            conversation.pieces.append(new)
            return conversation.joined(), new
        conversation = self._conversations[observation.agent] = _Conversation()
        messages = observation.conversation()
        # Own turns that stand in a fresh conversation go in as they were sampled: text is never tokenised a second time.
        first = next((i for i, message in enumerate(messages) if message.role == "assistant"), len(messages))
        conversation.pieces.append(self._rendering.prompt(messages[:first]))
        rounds = sorted(round for round, agent in self._turns if agent == observation.agent)
        own = iter(rounds[len(rounds) - len(observation.own_turns) :])
        for i in range(first, len(messages), 2):
            tokens = self._turns[next(own), observation.agent].tokens
            conversation.pieces += [tokens, self._rendering.suffix(tokens, messages[i + 1])]
        whole = conversation.joined()
        return whole, whole

    def _last_turn(self, observation: Observation) -> SampledTurn:
        return self._turns[max(key for key in self._turns if key[1] == observation.agent)]

    def turn(self, round: int, agent: int) -> SampledTurn:
        return self._turns[round, agent]

    def sampled(self, debate: Debate) -> tuple[SampledTurn, ...]:
        return tuple(self._turns[turn.round, turn.agent] for turn in debate.turns)


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
    finished: Callable[[int, PlayedDebate], None] | None = None,
) -> list[PlayedDebate]:
    """Plays all debates, at most `concurrency` at a time. One that meets an EngineError ends alone, with the reason in its record.

    The policy (`sampler`, `rendering`) takes every seat that `seats` gives to nobody else; without one, `seats` must fill them all.
    When a debate is over, its `judges` vote.
    """
    gate = asyncio.Semaphore(concurrency)
    policy = None if sampler is None or rendering is None else Player(sampler, rendering, tempered=tempered)

    def speaker_for(player: Player, debate: Debate, number: int) -> TokenSpeaker:
        stops = player.rendering.stops(debate.rules.contract)
        own_seed = None if seed is None else f"{seed}/{number}"
        return TokenSpeaker(
            player.sampler, player.rendering, replace(params, stop=stops), tempered=player.tempered, seed=own_seed, learns=player.learns
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
