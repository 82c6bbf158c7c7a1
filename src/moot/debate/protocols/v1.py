"""The older protocol: one agent speaks at a time, five sections, and agents are paid by the votes of the debate."""

from __future__ import annotations

from moot.debate.protocol import Protocol
from moot.debate.rules import Rules
from moot.debate.scoring import Scoring

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
