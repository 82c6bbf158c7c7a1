"""What an agent saw before it spoke: the whole conversation, rebuilt from the record, for people to read."""

from __future__ import annotations

from dataclasses import replace

from moot.debate.types import Message
from moot.records.played import PlayedDebate


def seen(played: PlayedDebate, turn: int) -> tuple[Message, ...]:
    """The messages before the turn at that place of `played.debate.turns`: the system text, then the conversation up to the turn."""
    debate, spoken = played.debate, played.debate.turns[turn]
    # Those who speak together see none of each other's turns.
    together = spoken.ballot or debate.rules.schedule == "parallel"
    first = next(i for i, other in enumerate(debate.turns) if other.round == spoken.round and other.ballot == spoken.ballot)
    before = replace(
        debate,
        turns=debate.turns[: first if together else turn],
        jury=(),
        # Whether answers were settled is known by what came next, and no grader needs to be asked again.
        settled=lambda _: spoken.ballot,
        stop_when_settled=spoken.ballot,
        extra_rounds=max(debate.extra_rounds, spoken.round - spoken.ballot - debate.max_rounds, 0),
    )
    return before.observe(spoken.agent).conversation()


def seen_to_json(played: PlayedDebate, turn: int) -> list[dict[str, str]]:
    """As chat clients write it."""
    return [{"role": message.role, "content": message.content} for message in seen(played, turn)]
