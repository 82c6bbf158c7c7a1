"""The newer protocol: all speak at once, reviews are blind, and answers and judging are paid apart."""

from __future__ import annotations

from moot.debate.protocol import Protocol

V2 = Protocol()
V2_LITERAL = V2.with_choices(literal=True, one_ballot_per_pair=False)
"""As its source has it, to the letter. docs/literal.md lists the differences, and why V2 departs."""
