"""The protocols by name. A protocol is plain data, the choices of its `Rules` and `Scoring`, and what its rules do.

    v1.py, v2.py    agents who solve, judge each other, and are paid by votes
    advocates.py    two agents who argue for given sides, and a judge who decides

One that behaves otherwise is a subclass of `Rules` in a file of its own; nothing else asks which one it is.
"""

from __future__ import annotations

from moot.debate.protocol import Protocol as Protocol
from moot.debate.protocol import register
from moot.debate.protocols.advocates import Advocates
from moot.debate.protocols.v1 import V1 as V1
from moot.debate.protocols.v2 import V2 as V2
from moot.debate.protocols.v2 import V2_LITERAL
from moot.debate.typed_fields import near
from moot.errors import ConfigError

register(Advocates)
PRESETS: dict[str, Protocol] = {
    "v1": V1,
    "v2": V2,
    "v2_literal": V2_LITERAL,
    # Zero-sum: what the judge's decision gives to one advocate it takes from the other.
    "advocates": V2.with_choices(positions="assigned", sections="asked", personas=False, reward="win_minus_loss"),
}


def preset(name: str) -> Protocol:
    if name not in PRESETS:
        raise ConfigError(f"protocol must be one of {', '.join(PRESETS)}, got {name!r}{near(name, PRESETS)}")
    return PRESETS[name]
