"""A model at a chat server as a player: it answers a plain question, and speaks for any seat or as a judge."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moot.debate import sections
from moot.debate.parsing import parse, stop_marker
from moot.debate.types import Message, Observation, Parsed, Said
from moot.engine.protocol import SamplingParams
from moot.players.chat.chat import Chat, ChatRequest, Retried
from moot.players.chat.reading import Heard, Reply
from moot.tokens.turn import PlainAnswer, SampledTurn, turn_in_text

if TYPE_CHECKING:
    from moot.players.chat.chat_judge import ChatJudge


class ChatSpeaker:
    """Speaks in one debate through an endpoint. Keeps no conversation: each request carries all of it."""

    def __init__(
        self,
        chat: Chat,
        max_tokens: int,
        temperature: float | None = None,
        seed: object = None,
        heard: Heard | None = None,
        retried: Retried | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """Without a temperature each persona has its own; `limits` are the most tokens of a section that is spoken on
        its own."""
        self._chat, self._max_tokens, self._limits = chat, max_tokens, limits or {}
        self._temperature, self._seed = temperature, seed
        self._heard, self._retried = heard, retried
        self._turns: dict[tuple[int, int], SampledTurn] = {}
        self.spent: tuple[int | None, int | None] = (None, None)
        """Tokens read and written for the last request, None where the server did not say."""

    async def __call__(self, observation: Observation) -> Said:
        self.spent = (None, None)
        reply = await self._chat.reply(self._request(observation), self._heard, self._retried)
        self.spent = (reply.prompt_tokens, reply.completion_tokens)
        self._keep(observation, reply)
        return as_part(reply, observation) if observation.section else as_said(reply, observation.contract)

    def _request(self, observation: Observation) -> ChatRequest:
        place = (observation.round, observation.agent, *([observation.part] if observation.part else []))
        return ChatRequest(
            observation.conversation(),
            self._limits.get(observation.section, self._max_tokens),
            observation.temperature if self._temperature is None else self._temperature,
            _end_of(observation),
            None if self._seed is None else zlib.crc32("/".join(map(str, (self._seed, *place))).encode()) >> 1,
            continues=bool(observation.opening),
        )

    def _keep(self, observation: Observation, reply: Reply) -> None:
        place, counted, cut = (observation.round, observation.agent), reply.completion_tokens, reply.finish == "length"
        if observation.part:
            before = self._turns[place]
            counted = None if counted is None or before.counted is None else before.counted + counted
            cut = cut or before.stop_reason == "length"
        self._turns[place] = turn_in_text(counted, "length" if cut else "stop")

    def turn(self, round: int, agent: int) -> SampledTurn:
        return self._turns[round, agent]


class ChatPlayer:
    """Sits in any number of debates at once."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    def speaker(
        self, params: SamplingParams, seed: object = None, limits: Mapping[str, int] | None = None
    ) -> ChatSpeaker:
        return ChatSpeaker(self.chat, params.max_tokens, seed=seed, limits=limits)

    async def answer(self, messages: Sequence[Message], params: SamplingParams) -> PlainAnswer:
        request = ChatRequest(tuple(messages), params.max_tokens, params.temperature, seed=params.seed)
        reply = await self.chat.reply(request)
        return PlainAnswer(reply.text, "length" if reply.finish == "length" else "stop", reply.completion_tokens or 0)

    def judge(self) -> ChatJudge:
        """The same model, asked for verdicts."""
        from moot.players.chat.chat_judge import ChatJudge

        return ChatJudge(self.chat)

    async def close(self) -> None:
        await self.chat.close()


def _end_of(observation: Observation) -> str:
    """The tag at which sampling stops; none where sections are asked for without tags."""
    if not observation.section:
        return stop_marker(observation.contract)
    return f"</{observation.section}>" if observation.opening else ""


def as_said(reply: Reply, contract: str) -> Said:
    """The turn as it was sampled: with the closing tag that a stop string took away, without what follows it where a
    server runs on.

    A server that tells what ended an answer is believed. Where it only says `stop`, the model may have ended by itself
    before the closing tag; that cannot be told apart, and is forgiven.
    """
    marker = stop_marker(contract)
    closed = reply.finish == "stop" and reply.stopped_on in (None, marker)
    end = reply.text.find(marker) + len(marker)
    if end >= len(marker) and isinstance(parse(reply.text[:end], contract, closed=False), Parsed):
        return Said(reply.text[:end], closed=True)
    whole = isinstance(parse(reply.text, contract, closed=False), Parsed)
    if closed and not whole and isinstance(parse(reply.text, contract, closed=True), Parsed):
        return Said(reply.text + marker, closed=True)
    return Said(reply.text, closed=closed)


def as_part(reply: Reply, observation: Observation) -> Said:
    """One section: all of the answer where it was asked for, and up to the next tag where its own tag was given."""
    text = reply.text[: sections.kept_length(observation.section, reply.text)] if observation.opening else reply.text
    return Said(text, closed=False, cut=reply.finish == "length")
