"""What is known of an engine by its name, before it is made. What it can do besides, its `Capabilities` say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal


@dataclass(frozen=True)
class Kind:
    """A kind of engine."""

    made_by: str = ""
    """MODULE:FUNCTION that makes it from a `ModelConfig` and a seed; empty where `players/create.py` does."""
    trains: bool = True
    """It has weights to change; others can only be asked."""
    chat: bool = False
    """It is a chat server, spoken to in words: there are no tokens, and nothing is made."""
    server: bool = False
    """It runs elsewhere, at an address."""
    scripted: str = ""
    """What is said of it instead of a model's name, where it has no model: it repeats a script."""
    shares_prefixes: bool = False
    """Prompts with a common beginning are computed together."""


KINDS: dict[str, Kind] = {
    "local": Kind(shares_prefixes=True),
    "tinker": Kind(server=True),
    "scripted": Kind("moot.engine.scripted:create", scripted="The scripted engine"),
    "openai": Kind(trains=False, chat=True, server=True),
}
if TYPE_CHECKING:  # a type checker cannot read the table
    Engine = str
else:
    Engine = Literal[tuple(KINDS)]


def kind_named(name: Any) -> Kind:
    """As a run's file has it; one that nobody knows is a model like others."""
    return KINDS.get(name, Kind()) if isinstance(name, str) else Kind()
