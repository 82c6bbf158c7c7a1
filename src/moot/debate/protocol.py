"""A protocol: the rules of a debate and the scoring of its votes. One flat set of names outside, as in run files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from moot.debate.rules import Rules
from moot.debate.scoring import Scoring
from moot.debate.typed_fields import names_of
from moot.errors import ConfigError

RULES: dict[str, type[Rules]] = {Rules.positions: Rules}
"""Every kind of rules, by the `positions` that files call it by."""


def register(kind: type[Rules]) -> type[Rules]:
    """From here on `kind` can be named by its `positions`."""
    RULES[kind.positions] = kind
    return kind


@dataclass(frozen=True)
class Protocol:
    rules: Rules = field(default_factory=Rules)
    """What is said."""
    scoring: Scoring = field(default_factory=Scoring)
    """How votes count."""

    def with_choices(self, choices: Mapping[str, Any] | None = None, /, **named: Any) -> Protocol:
        """The same protocol with some choices changed, as read from JSON or by name."""
        changed = {**(choices or {}), **named}
        positions = changed.pop("positions", self.rules.positions)
        if not isinstance(positions, str) or positions not in RULES:
            raise ConfigError(f"positions must be {' or '.join(RULES)}, got {positions!r}")
        for name in changed:
            if name not in (names := {*names_of(Rules), *names_of(Scoring)}):
                raise ConfigError(f"protocol has no choice {name!r}; it has {', '.join(sorted(names | {'positions'}))}")
        if isinstance(changed.get("visible"), list):
            changed["visible"] = tuple(changed["visible"])
        rules = {name: changed.get(name, getattr(self.rules, name)) for name in names_of(Rules)}
        scoring = {name: value for name, value in changed.items() if name in names_of(Scoring)}
        return Protocol(RULES[positions](**rules), replace(self.scoring, **scoring))

    @property
    def needs_judge(self) -> bool:
        """Whether a judge without a seat decides: by its votes, or by checking answers."""
        return self.rules.needs_judge or self.scoring.rule.checked

    def as_dict(self) -> dict[str, Any]:
        """Flat, as files have it."""
        return self.rules.as_dict() | self.scoring.as_dict()
