"""It learns: a preference planted in the judges spreads to the solvers, through votes and nothing else."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from moot.debate.play import play
from moot.debate.protocol import V2
from moot.debate.rewards import generator_judge
from moot.debate.state import Debate
from moot.debate.types import Observation, Parsed, Question, Said
from moot.engine.protocol import AdamParams, Sampler, SamplingParams
from moot.rl.advantages import advantages, center_group
from moot.rl.datums import datums
from moot.rl.rendering import Rendering
from moot.rl.speaker import TokenSpeaker

AGENTS, ROUNDS = 5, 2
PROTOCOL = V2.with_choices(lambda_judge=0.0, personas=False)


def turn(colour: str) -> str:
    return f"<solution>{colour}</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>"


class TwoAnswers:
    """Twelve tokens: two whole answers, the marks of a turn, and eight that stand for any other word."""

    SPECIAL = ("<|im_start|>", "<|im_end|>")
    name_or_path, eos_token_id, chat_template, all_special_tokens = "two answers", 1, "chatml", SPECIAL
    TOKENS = (*SPECIAL, turn("red"), turn("blue"), *(f"word{i} " for i in range(8)))

    def __init__(self) -> None:
        self.added_tokens_decoder = dict(enumerate(self.SPECIAL))

    def get_vocab(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.TOKENS)}

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        for i, token in enumerate(self.TOKENS[:4]):
            text = text.replace(token, f" \x00{i} ")
        return [int(word[1:]) if word[0] == "\x00" else 4 + zlib.crc32(word.encode()) % 8 for word in text.split()]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(self.TOKENS[i] for i in ids)

    def apply_chat_template(self, messages: Sequence[dict[str, str]], add_generation_prompt: bool = False, **_: Any) -> str:
        text = "".join(f"<|im_start|> {m['role']} {m['content']} <|im_end|> " for m in messages)
        return text + "<|im_start|> assistant " * add_generation_prompt


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
        better = [agent for agent in seen.eligible if answers[agent] == self.favourite]
        worse = [agent for agent in seen.eligible if answers[agent] != self.favourite]
        votes = "\n".join(f"Agent {a} > Agent {b}" for a in better for b in worse) or "N/A"
        return Said(said.text.replace("<comparison>N/A", f"<comparison>{votes}", 1), said.closed)


async def one_debate(sampler: Sampler, rendering: Rendering, favourite: str, seed: str) -> tuple[Debate, Any]:
    params = SamplingParams(max_tokens=2, stop=rendering.stops("three_tag"))
    planted = Planted(TokenSpeaker(sampler, rendering, params, seed=seed), favourite)
    played = await play(Debate(Question("Red or blue?"), AGENTS, ROUNDS, PROTOCOL.rules), planted, planted.watch)
    return played, planted.speaker.sampled(played)


def shares(debates: list[Debate], favourite: str) -> tuple[float, float]:
    """How many turns can be read, and how many of those give the favourite answer."""
    turns = [t for debate in debates for t in debate.turns]
    said = [t.parsed.fields["solution"] for t in turns if isinstance(t.parsed, Parsed)]
    return len(said) / len(turns), said.count(favourite) / max(1, len(said))


@pytest.mark.parametrize("favourite", ["red", "blue"])
def test_votes_alone_raise_the_preferred_answer(tmp_path: Path, favourite: str) -> None:
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    from moot.engine.local import LocalEngine

    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=12, max_position_embeddings=8192, initializer_range=0.15, bos_token_id=None, eos_token_id=1, **shape)
    LlamaForCausalLM(config).save_pretrained(tmp_path)

    async def learn() -> list[tuple[float, float]]:
        engine = LocalEngine.create(str(tmp_path), dtype="fp32", device="cpu", lora_rank=8, max_cache_gib=0.1, seed=0)
        rendering, history = Rendering(TwoAnswers()), []
        for iteration in range(12):
            sampler = await engine.snapshot()
            played = await asyncio.gather(*(one_debate(sampler, rendering, favourite, f"{iteration}/{i}") for i in range(6)))
            history.append(shares([debate for debate, _ in played], favourite))
            scored = [(debate, generator_judge(debate, PROTOCOL.scoring, None)) for debate, _ in played]
            values = advantages(scored, center_group)
            lessons = [d for (debate, sampled), value in zip(played, values, strict=True) for d in datums(debate, sampled, value)]
            engine.forward_backward(lessons, "importance_sampling")
            await engine.optim_step(AdamParams(learning_rate=0.02))
        await engine.close()
        return history

    history = asyncio.run(learn())
    readable, favoured = history[0]
    assert readable < 0.6 and 0.1 < favoured < 0.9, history  # untrained: tokens nearly at random
    assert history[-1][0] > 0.9 and history[-1][1] > 0.9, history
