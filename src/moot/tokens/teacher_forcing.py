"""Debates whose text is known before they are spoken, as tokens: a sampler that says what it is told.

Its logprobs are 0, because nobody sampled these tokens. That is right for `cross_entropy`, which the warm start learns
by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from moot.debate.play import play
from moot.debate.state import Debate
from moot.debate.types import Observation, Said
from moot.engine.protocol import Floats, Ints, Sample, Sampler, SamplingParams
from moot.tokens.rendering import Rendering
from moot.tokens.speaker import TokenSpeaker, kept_turns
from moot.tokens.turn import SampledTurn


class Dictation(Sampler):
    """A sampler that says `text`. Exactly one turn is asked for at a time."""

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering
        self.text = ""

    async def sample(self, prompt: Sequence[int] | Ints, params: SamplingParams, num_samples: int = 1) -> list[Sample]:
        ids = self._rendering.tokenizer.encode(self.text, add_special_tokens=False)
        tokens = np.asarray([*ids, self._rendering.stop_ids[0]], dtype=np.int32)
        return [Sample(tokens, np.zeros(len(tokens), dtype=np.float32), "stop")]

    async def compute_logprobs(self, tokens: Sequence[int] | Ints, temperature: float = 1.0, start: int = 0) -> Floats:
        return np.zeros(len(tokens), dtype=np.float32)

    def speaker(self, contract: str) -> TokenSpeaker:
        params = SamplingParams(max_tokens=1 << 20, stop=self._rendering.stops(contract))
        return TokenSpeaker(self, self._rendering, params, tempered=False)


async def dictated(debate: Debate, rendering: Rendering) -> tuple[SampledTurn, ...]:
    """The tokens of a debate that was played in text, turn by turn, each after the prompt its author saw."""
    dictation = Dictation(rendering)
    speaker = dictation.speaker(debate.rules.contract)
    texts = {(turn.round, turn.agent): turn.text for turn in debate.turns}

    async def speak(observation: Observation) -> Said:
        # In a parallel round that was cut short by an abort, those after the failed turn said nothing that was kept.
        dictation.text = texts.get((observation.round, observation.agent), "")
        return await speaker(observation)  # no other seat runs in between: nothing here waits for anything

    last = max((turn.round for turn in debate.turns if not turn.ballot), default=0)
    if last:
        # As long as it was then, whatever ended it.
        replayed = replace(
            debate,
            turns=(),
            jury=(),
            max_rounds=last,
            settled=None,
            stop_when_settled=False,
            extra_rounds=0,
        )
        await play(replayed, speak)
    return kept_turns(speaker, debate)
