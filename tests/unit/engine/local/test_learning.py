"""It learns: a preference planted in the judges spreads to the solvers, through votes and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.debate.play import play
from moot.debate.protocols import V2
from moot.debate.rewards import generator_judge
from moot.debate.state import Debate
from moot.debate.types import Observation, Parsed, Question, Said
from moot.engine.protocol import AdamParams, Sampler, SamplingParams
from moot.rl.advantages import advantages, center_group
from moot.tokens.datums import datums
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import TokenSpeaker, kept_turns
from support.two_answers import TwoAnswers, random_model

AGENTS, ROUNDS = 5, 2
PROTOCOL = V2.with_choices(lambda_judge=0.0, personas=False)


class Planted:
    """Lets the model answer, and writes the votes itself: the favourite before the other."""

    def __init__(self, speaker: TokenSpeaker, favourite: str) -> None:
        self.speaker, self.favourite = speaker, favourite
        self.debate: Debate | None = None

    def watch(self, debate: Debate) -> None:
        self.debate = debate

    async def __call__(self, seen: Observation) -> Said:
        said = await self.speaker(seen)
        if len(seen.eligible) < 2 or self.debate is None:
            return said
        answers = {t.agent: t.parsed.fields["solution"] for t in self.debate.turns if isinstance(t.parsed, Parsed)}
        better = [agent for agent in seen.eligible if self.favourite in answers[agent]]
        worse = [agent for agent in seen.eligible if self.favourite not in answers[agent]]
        votes = "\n".join(f"Agent {a} > Agent {b}" for a in better for b in worse) or "N/A"
        return Said(said.text.replace("<comparison>N/A", f"<comparison>{votes}", 1), said.closed)


async def one_debate(sampler: Sampler, rendering: Rendering, favourite: str, seed: str) -> tuple[Debate, Any]:
    params = SamplingParams(max_tokens=2, stop=rendering.stops("three_tag"))
    planted = Planted(TokenSpeaker(sampler, rendering, params, seed=seed), favourite)
    played = await play(Debate(Question("Red or blue?"), AGENTS, ROUNDS, PROTOCOL.rules), planted, planted.watch)
    return played, kept_turns(planted.speaker, played)


def shares(debates: list[Debate], favourite: str) -> tuple[float, float]:
    """How many turns can be read, and how many of those give the favourite answer."""
    turns = [t for debate in debates for t in debate.turns]
    said = [t.parsed.fields["solution"] for t in turns if isinstance(t.parsed, Parsed)]
    return len(said) / len(turns), sum(favourite in answer for answer in said) / max(1, len(said))


@pytest.mark.parametrize("favourite", ["red", "blue"])
def test_votes_alone_raise_the_preferred_answer(tmp_path: Path, favourite: str) -> None:
    pytest.importorskip("torch")
    from moot.engine.local import LocalEngine

    random_model(tmp_path, seed=0)

    async def learn() -> list[tuple[float, float]]:
        engine = LocalEngine.create(str(tmp_path), dtype="fp32", device="cpu", lora_rank=8, max_cache_gib=0.1, seed=0)
        rendering, history = Rendering(TwoAnswers()), []
        for iteration in range(12):
            sampler = await engine.snapshot()
            played = await asyncio.gather(
                *(one_debate(sampler, rendering, favourite, f"{iteration}/{i}") for i in range(6))
            )
            history.append(shares([debate for debate, _ in played], favourite))
            scored = [(debate, generator_judge(debate, PROTOCOL.scoring, None)) for debate, _ in played]
            values = advantages(scored, center_group)
            lessons = [
                d
                for (debate, sampled), value in zip(played, values, strict=True)
                for d in datums(debate, sampled, value)
            ]
            engine.forward_backward(lessons, "importance_sampling")
            await engine.optim_step(AdamParams(learning_rate=0.02))
        await engine.close()
        return history

    history = asyncio.run(learn())
    readable, favoured = history[0]
    assert readable < 0.6 and 0.1 < favoured < 0.9, history  # untrained: tokens nearly at random
    assert history[-1][0] > 0.9 and history[-1][1] > 0.9, history
