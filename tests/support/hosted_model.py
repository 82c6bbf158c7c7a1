"""One scripted model for moot and for the trainers that host its debates: what it says is a function of the tokens it reads.

So a host's debates come out as moot's own only where every prompt is the same, token by token. No foreign package is imported here.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from moot.engine.protocol import Datum, Floats, Ints, Sample, SamplingParams
from moot.integrations.hosted import Setting, rendering_of, seat_rewards, turn_rewards
from moot.rl.rollout import rollout
from moot.tokens.datums import datums
from moot.tokens.played import PlayedDebate
from support.making import text

SPECIAL = [
    "<|im_start|>",
    "<|endoftext|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
SETTINGS = {
    "per debate": Setting(choices={"reward": "win_rate"}),
    "per turn": Setting(),
    "rebuilt": Setting(protocol="v1"),
    "asked": Setting(choices={"sections": "asked", "closing_ballot": True}),
}
QUESTIONS = 3


def documented(mark: str, language: str) -> list[str]:
    """The blocks of the page about integrations that carry a mark."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^<!-- {mark} -->\n```{language}\n(.*?)^```$", page, re.M | re.S)
    assert blocks, f"docs/integrations.md has no {language} marked {mark}"
    return blocks


def save_tokenizer(path: Path) -> str:
    """Bytes, in the chat format of Qwen3: one that the package `renderers` can extend turn by turn."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>", "additional_special_tokens": SPECIAL})
    tokenizer.save_pretrained(path)
    return str(path)


def reply(folder: str, prompt: Sequence[int]) -> tuple[list[int], list[float], Literal["stop", "length"]]:
    """Tokens, logprobs, and why it ended. One reply of twelve cannot be read, and one of six is cut before its end."""
    digest = hashlib.sha256(struct.pack(f"<{len(prompt)}i", *prompt)).digest()
    tokenizer: Any = rendering_of(folder, "qwen3").tokenizer
    asked = tokenizer.decode(list(prompt))[-3000:]
    left, right = digest[1] % 3, digest[2] % 3
    vote = f"Agent {left} > Agent {right}" if left != right else f"Agent {left} = Agent {(left + 1) % 3}"
    answer = f"It is \\boxed{{{digest[0] % 3 + 2}}}."
    if digest[3] % 12 == 0:
        said = "I would rather not."
    elif "<solution>" in asked:
        said = text(vote, answer, "five_tag" if "consensus" in asked else "three_tag")
    else:
        said = f"{answer}\n{vote}"  # one section at a time: either part of it is read where it is asked for
    cut = digest[4] % 6 == 0
    tokens = [*tokenizer.encode(said, add_special_tokens=False), *([] if cut else [tokenizer.eos_token_id])]
    reason: Literal["stop", "length"] = "length" if cut else "stop"
    return tokens, [-(byte + 1) / 256 for byte in (digest * (len(tokens) // 32 + 1))[: len(tokens)]], reason


class Scripted:
    """The same model as a sampler of moot's."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        tokens, logprobs, reason = reply(self._folder, [int(token) for token in prompt])
        return [Sample(np.asarray(tokens, dtype=np.int32), np.asarray(logprobs, dtype=np.float32), reason)]

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Floats:
        raise NotImplementedError


async def own_debates(folder: str, setting: Setting) -> list[PlayedDebate]:
    """The debates of a setting as moot plays and scores them, without any host."""
    debates = [setting.debate(setting.loaded_task.train(i)) for i in range(QUESTIONS)]
    played = await rollout(
        debates, Scripted(folder), rendering_of(folder, "qwen3"), SamplingParams(max_tokens=4096), tempered=False
    )
    assert not any(each.error for each in played)
    return [await setting.scored(each) for each in played]


def own_rewards(played: PlayedDebate) -> dict[str, Any]:
    return {"seats": seat_rewards(played), "turns": turn_rewards(played)}


def own_datums(played: PlayedDebate) -> list[dict[str, list[float]]]:
    assert played.advantages is not None
    return [as_lists(each) for each in datums(played.debate, played.sampled, played.advantages)]


def as_lists(datum: Datum) -> dict[str, list[float]]:
    return {name: getattr(datum, name).tolist() for name in ("tokens", "targets", "logprobs", "advantages", "mask")}
