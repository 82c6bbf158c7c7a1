"""A tiny random model over twelve tokens, of which two are whole answers: what can be learned in seconds on a CPU."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class TwoAnswers:
    """Twelve tokens: two whole turns, the marks of a message, and eight that stand for any other word."""

    SPECIAL = ("<|im_start|>", "<|im_end|>")
    TURN = "<solution>\\boxed{{{}}}</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>"
    TOKENS = (*SPECIAL, TURN.format("red"), TURN.format("blue"), *(f"word{i} " for i in range(8)))
    name_or_path, eos_token_id, chat_template, all_special_tokens = "two answers", 1, "chatml", SPECIAL

    def __init__(self) -> None:
        self.added_tokens_decoder = dict(enumerate(self.SPECIAL))

    def get_vocab(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.TOKENS)}

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return self.encoded(text, 4)

    def encoded(self, text: str, marks: int) -> list[int]:
        """The first tokens stand for themselves; every other word is one of the rest."""
        for i, token in enumerate(self.TOKENS[:marks]):
            text = text.replace(token, f" \x00{i} ")
        rest = len(self.TOKENS) - marks
        return [
            int(word[1:]) if word[0] == "\x00" else marks + zlib.crc32(word.encode()) % rest for word in text.split()
        ]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(self.TOKENS[i] for i in ids)

    def apply_chat_template(
        self, messages: Sequence[dict[str, str]], add_generation_prompt: bool = False, **_: Any
    ) -> str:
        text = "".join(f"<|im_start|> {m['role']} {m['content']} <|im_end|> " for m in messages)
        return text + "<|im_start|> assistant " * add_generation_prompt


def random_model(path: Path, seed: int, vocabulary: int = 12) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    config = LlamaConfig(
        vocab_size=vocabulary,
        max_position_embeddings=8192,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=1,
        **shape,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    return path
