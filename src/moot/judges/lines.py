"""The ballot of comparison lines: a judge without a seat reads all answers, and writes which it prefers, pair by pair.

It is heard as in a debate of one round in which nobody else votes; an answer's score is its generator reward.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moot.debate.plain import plain_answers
from moot.debate.play import hear
from moot.debate.protocols import V2
from moot.debate.rewards import score
from moot.engine.protocol import SamplingParams
from moot.judges.asking import Asked, Judge
from moot.settings.train import section_limits
from moot.tokens.speaker import KeepsTurns


async def written(judge: Judge, asked: Asked, params: SamplingParams) -> dict[str, Any]:
    """Every answer's score, and what the judge wrote. Raises EngineError."""
    rules = V2.with_choices({"sections": "asked", "personas": False, "temperature": params.temperature}).rules
    debate = replace(plain_answers(asked.question, asked.answers), rules=rules, prompts=asked.prompts)
    speaker = judge.speaker(params, section_limits(params.max_tokens, len(asked.answers)))
    debate = await hear(debate, speaker)
    (ballot,) = debate.jury
    tokens = speaker.turn(ballot.round, ballot.agent).count if isinstance(speaker, KeepsTurns) else None
    (paid, *_) = zip(*score(debate, V2.scoring).streams["generator"].values, strict=True)
    return {"scores": list(paid), "tokens": tokens, "by": "lines", "thinking": ballot.text}
