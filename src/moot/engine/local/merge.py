"""The adapter folded into its base model: a plain checkpoint that anything reads.

Rounding the sum to the base's precision can swallow a small update whole. So the two models are compared on a text, and
the difference is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError
from torch import Tensor
from transformers.utils import logging

from moot.engine.local.adapter import without_old_names
from moot.engine.local.checkpoint import not_written
from moot.engine.local.model_files import read_config, read_tokenizer, read_weights
from moot.engine.local.models import DTYPES
from moot.engine.local.smollm import find_smollm
from moot.engine.published import SMOLLM


@dataclass(frozen=True)
class Merged:
    dtype: str
    difference: float
    """Largest difference of a token's logprob on the probe, merged against base and adapter apart."""
    update: float
    """The same, merged against base: what there was to preserve."""
    end_of_turn: tuple[int, ...]


def merge(
    model: str,
    adapter: Path,
    target: Path,
    *,
    dtype: str = "auto",
    probe: Sequence[int] = (),
    stops: Callable[[Any], Sequence[int]] = lambda _: (),
) -> Merged:
    """Writes the merged model and its tokenizer into the folder `target`.

    `dtype` auto is the base's own. `stops` tells from a tokenizer which tokens end a turn, so that others stop where
    training did.
    """
    logging.disable_progress_bar()  # ours is shown instead
    path = find_smollm()[0] if model == SMOLLM else model
    base = read_weights(path, read_config(path), DTYPES.get(dtype, "auto")).eval()
    size = base.get_input_embeddings().num_embeddings
    tokenizer = read_tokenizer(path, size)
    tokens = torch.tensor([list(probe) or [(i * 37 + 11) % size for i in range(64)]])
    before = _logprobs(base, tokens)
    with without_old_names():
        wrapped: Any = PeftModel.from_pretrained(base, str(adapter))
    wrapped.eval()
    apart = _logprobs(wrapped, tokens)
    merged = wrapped.merge_and_unload(safe_merge=True)
    together = _logprobs(merged, tokens)
    ends = _end_turns(merged, tokenizer, stops)
    try:
        merged.save_pretrained(target)
        if tokenizer is not None:
            tokenizer.save_pretrained(target)
    except SafetensorError as error:
        raise not_written(error, target, "the merged model") from error
    kind = str(merged.dtype).removeprefix("torch.")
    return Merged(kind, float((together - apart).abs().max()), float((together - before).abs().max()), ends)


def _logprobs(model: Any, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(input_ids=tokens, use_cache=False).logits[0, :-1].float()
    return logits.log_softmax(-1).gather(1, tokens[0, 1:, None]).squeeze(1)


def _end_turns(model: Any, tokenizer: Any, stops: Callable[[Any], Sequence[int]]) -> tuple[int, ...]:
    """A turn ends where it ended in training; what ended a text before still does."""
    stated = model.generation_config.eos_token_id
    before = [] if stated is None else [stated] if isinstance(stated, int) else list(stated)
    trained = [] if tokenizer is None else list(stops(tokenizer))
    ends = tuple(dict.fromkeys([*trained, *before]))
    if ends:
        model.generation_config.eos_token_id = ends[0] if len(ends) == 1 else list(ends)
        model.config.eos_token_id = ends[0]
    if tokenizer is not None and trained and tokenizer.eos_token_id not in trained:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(trained[0])
    return ends
