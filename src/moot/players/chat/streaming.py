"""A seat at an engine that speaks in tokens, heard while it speaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from moot.debate.types import Observation, Said
from moot.engine.protocol import Floats, Ints, Sample, Sampler, SamplingParams
from moot.errors import ContextOverflow
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import TokenSpeaker, turn_seed

PIECE = 16
"""Tokens between two looks at what a local model writes: few enough to read along; each look costs a step."""


class StreamingSampler:
    """A sampler that tells what it writes while it writes, `piece` tokens at a time; 0 leaves the answer whole.

    It asks for a little, and then for more after what it got: the engine keeps the keys of what it has read, so little
    is done twice.
    """

    def __init__(
        self, sampler: Sampler, decode: Callable[[Ints], str], context: int, heard: Callable[[str], None], piece: int
    ) -> None:
        self._sampler, self._decode, self._context, self._heard, self._piece = sampler, decode, context, heard, piece
        self.spent: tuple[int | None, int | None] = (None, None)
        """Tokens read and written for the last answer."""

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        if len(prompt) + params.max_tokens > self._context:
            raise ContextOverflow(
                f"the debate has grown to {len(prompt)} tokens, which with --max-tokens {params.max_tokens} exceed "
                f"the model's context of {self._context}; use fewer --rounds or a smaller --max-tokens"
            )
        # A stop string may lie across two pieces, where nobody would look for it.
        whole = not self._piece or num_samples != 1 or any(isinstance(stop, str) for stop in params.stop)
        if whole:
            samples = await self._sampler.sample(prompt, params, num_samples)
            self._heard(self._decode(samples[0].tokens))
        else:
            samples = [await self._in_pieces(prompt, params)]
        self.spent = (len(prompt), sum(len(sample.tokens) for sample in samples))
        return samples

    async def _in_pieces(self, prompt: Sequence[int] | Ints, params: SamplingParams) -> Sample:
        beginning = np.asarray(prompt, dtype=np.int32)
        tokens, logprobs, told = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32), 0
        while True:
            few = min(self._piece, params.max_tokens - len(tokens))
            seed = None if params.seed is None else turn_seed(params.seed, len(tokens))
            so_far = np.concatenate([beginning, tokens])
            (piece,) = await self._sampler.sample(so_far, replace(params, max_tokens=few, seed=seed))
            tokens, logprobs = np.concatenate([tokens, piece.tokens]), np.concatenate([logprobs, piece.logprobs])
            text = self._decode(tokens)
            # The last character may still lack bytes that come with the next token.
            safe = len(text) if piece.stop_reason == "stop" else len(text.rstrip("\ufffd"))
            if safe > told:
                self._heard(text[told:safe])
                told = safe
            if piece.stop_reason == "stop" or len(tokens) >= params.max_tokens:
                return Sample(tokens, logprobs, piece.stop_reason)

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Floats:
        return await self._sampler.compute_logprobs(tokens, temperature, start)

    async def score_continuations(
        self, prompt: Sequence[int] | Ints, candidates: Sequence[Sequence[int]], temperature: float = 1.0
    ) -> list[float]:
        return await self._sampler.score_continuations(prompt, candidates, temperature)


class StreamingSpeaker:
    """Speaks for one seat of one debate."""

    def __init__(
        self,
        sampler: StreamingSampler,
        rendering: Rendering,
        max_tokens: int,
        seed: object = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._sampler = sampler
        self._speaker = TokenSpeaker(sampler, rendering, SamplingParams(max_tokens), seed=seed, limits=limits)
        self.spent: tuple[int | None, int | None] = (None, None)
        """Tokens read and written for the last turn."""

    async def __call__(self, observation: Observation) -> Said:
        said = await self._speaker(observation)
        self.spent = self._sampler.spent
        return said
