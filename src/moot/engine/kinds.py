"""What is known of an engine by its name, before it is made. What it can do besides, its `Capabilities` say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Engine = Literal["local", "tinker", "scripted", "openai"]


@dataclass(frozen=True)
class Kind:
    """A kind of engine."""

    trains: bool = True
    """It has weights to change; a chat server can only be asked."""
    server: bool = False
    """It runs elsewhere, at an address."""
    scripted: str = ""
    """What is said of it instead of a model's name, where it has no model: it repeats a script."""
    shares_prefixes: bool = False
    """Prompts with a common beginning are computed together."""


KINDS: dict[str, Kind] = {
    "local": Kind(shares_prefixes=True),
    "tinker": Kind(server=True),
    "scripted": Kind(scripted="The scripted engine"),
    "openai": Kind(trains=False, server=True),
}


def kind_named(name: Any) -> Kind:
    """As a run's file has it; one that nobody knows is a model like others."""
    return KINDS.get(name, Kind()) if isinstance(name, str) else Kind()
