"""What an agent saw before it spoke: the whole conversation, rebuilt from the record, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moot.debate.prompt_texts import DEFAULT, Prompts
from moot.debate.types import Message
from moot.errors import ConfigError
from moot.tokens.played import PlayedDebate


def prompts_of(config: Mapping[str, Any]) -> Prompts:
    """The texts that a run's agents read; those of `moot ask` name none where they read the defaults."""
    recorded = config.get("prompts")
    if isinstance(recorded, Mapping) and "texts" not in recorded:
        raise ConfigError("these were asked with texts of their own (--prompts), which their file does not hold")
    return DEFAULT if recorded is None else Prompts.from_dict(recorded)


def with_prompts(played: PlayedDebate, prompts: Prompts) -> PlayedDebate:
    """A record holds what was said; what was asked is the run's."""
    return replace(played, debate=replace(played.debate, prompts=prompts))


def seen(played: PlayedDebate, turn: int) -> tuple[Message, ...]:
    """The messages before the turn of that number: the system text, then the conversation up to the turn."""
    debate = played.debate
    return debate.before(turn).observe(debate.turns[turn].agent).conversation()


def seen_to_json(played: PlayedDebate, turn: int) -> list[dict[str, str]]:
    """As chat clients write it."""
    return [{"role": message.role, "content": message.content} for message in seen(played, turn)]
