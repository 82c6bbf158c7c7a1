"""A judge behind a chat server: it is sent the conversation as text, and asked for the likeliest first tokens of its
reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from moot.debate.checks import Check
from moot.debate.play import Speak
from moot.debate.types import Message
from moot.engine.protocol import SamplingParams
from moot.judges.asking import Asked
from moot.judges.ballots import UNREADABLE, share_in_top, word_said
from moot.players.chat.chat import Chat, ChatRequest
from moot.players.chat.chat_player import ChatSpeaker

VERDICT_TOKENS = 16
"""For a server's reply to the request for a word; some write a little before it."""
TOP = 20
"""Likeliest tokens asked for; more is refused by many servers."""


class ChatJudge:
    """A model behind a chat server: by the probabilities it gives, or else by the word it says."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    async def check(self, asked: Asked, params: SamplingParams) -> Check:
        request = ChatRequest((asked.message,), params.max_tokens, params.temperature, seed=params.seed)
        thought = await self._chat.reply(request)
        conversation = (asked.message, Message("assistant", thought.text), asked.verdict)
        # At temperature 1, where the word that is said has the probability that is meant.
        request = ChatRequest(conversation, VERDICT_TOKENS, 1.0, seed=params.seed, top_logprobs=TOP)
        said = await self._chat.reply(request)
        replies, share = [thought, said], share_in_top(said.first_token, asked.words)
        value = word_said(said.text, asked.words) if share is None else share
        if share is None and value == UNREADABLE and said.finish == "length":
            # It thinks first, in its reply or out of sight: once more, with room for that.
            said = await self._chat.reply(replace(request, max_tokens=params.max_tokens + VERDICT_TOKENS))
            value = word_said(said.text, asked.words)
            replies.append(said)
        tokens = _sum([reply.completion_tokens for reply in replies])
        return Check(value, thought.text, tokens, "word" if share is None else "probability")

    def speaker(self, params: SamplingParams, limits: Mapping[str, int]) -> Speak:
        return ChatSpeaker(self._chat, params.max_tokens, seed=params.seed, limits=limits)


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
