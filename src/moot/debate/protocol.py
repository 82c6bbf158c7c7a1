"""A protocol pairs the rules of a debate with the scoring of its votes. One flat set of names outside, as in a run's
files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from moot.debate.rules import Rules
from moot.debate.scoring import Scoring
from moot.debate.typed_fields import names_of, near
from moot.errors import ConfigError


@dataclass(frozen=True)
class Protocol:
    rules: Rules = field(default_factory=Rules)
    """What is said."""
    scoring: Scoring = field(default_factory=Scoring)
    """How votes count."""

    def with_choices(self, choices: Mapping[str, Any] | None = None, /, **named: Any) -> Protocol:
        """The same protocol with some choices changed, as read from JSON or by name."""
        changed = {**(choices or {}), **named}
        names = {*names_of(Rules), *names_of(Scoring)}
        for name in changed:
            if name not in names:
                raise ConfigError(f"protocol has no choice {name!r}; it has {', '.join(sorted(names))}")
        if isinstance(changed.get("visible"), list):
            changed["visible"] = tuple(changed["visible"])
        rules = {name: value for name, value in changed.items() if name in names_of(Rules)}
        scoring = {name: value for name, value in changed.items() if name in names_of(Scoring)}
        return Protocol(replace(self.rules, **rules), replace(self.scoring, **scoring))

    def as_dict(self) -> dict[str, Any]:
        """Flat, as files have it."""
        return self.rules.as_dict() | self.scoring.as_dict()


V2 = Protocol()
V1 = Protocol(
    Rules(
        schedule="sequential",
        contract="five_tag",
        visible=("solution", "evaluation", "comparison", "consensus_reason"),
        layout="rebuilt",
        on_parse_failure="abort",
        personas=False,
    ),
    Scoring(reward="win_rate", one_ballot_per_pair=False),
)
PRESETS: dict[str, Protocol] = {
    "v1": V1,
    "v2": V2,
    "v2_literal": V2.with_choices(literal=True, one_ballot_per_pair=False),
    # Zero-sum: what the judge's decision gives to one advocate it takes from the other.
    "advocates": V2.with_choices(positions="assigned", sections="asked", personas=False, reward="win_minus_loss"),
}


def preset(name: str) -> Protocol:
    if name not in PRESETS:
        raise ConfigError(f"protocol must be one of {', '.join(PRESETS)}, got {name!r}{near(name, PRESETS)}")
    return PRESETS[name]
