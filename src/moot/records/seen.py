"""What an agent saw before it spoke: the whole conversation, rebuilt from the record, for people to read."""

from __future__ import annotations

from moot.debate.types import Message
from moot.records.played import PlayedDebate


def seen(played: PlayedDebate, turn: int) -> tuple[Message, ...]:
    """The messages before the turn at that place of `played.debate.turns`: the system text, then the conversation up to the turn."""
    debate = played.debate
    return debate.before(turn).observe(debate.turns[turn].agent).conversation()


def seen_to_json(played: PlayedDebate, turn: int) -> list[dict[str, str]]:
    """As chat clients write it."""
    return [{"role": message.role, "content": message.content} for message in seen(played, turn)]
