"""Logprobs of given tokens: asked for as a sample is, and known as soon as the prompt is prefilled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from moot.engine.local.memory import upload
from moot.engine.local.network import Network
from moot.engine.local.trainer import chunk_rows
from moot.engine.protocol import Ints

if TYPE_CHECKING:
    from moot.engine.local.batch import Request


@dataclass(frozen=True, eq=False)
class Asked:
    """Of `tokens[i]`, right after the prompt's token at `places[i]`. Places never fall; at one of them many tokens may
    be asked for."""

    places: Ints
    tokens: Ints

    @staticmethod
    def tail(tokens: Ints, start: int) -> tuple[Ints, Asked]:
        """The prompt that is needed, and each of the tokens from `start` on."""
        return tokens[:-1], Asked(np.arange(start - 1, len(tokens) - 1, dtype=np.int32), tokens[start:])

    @staticmethod
    def ends(prompt: Ints, body: Sequence[int], ends: Sequence[int]) -> tuple[Ints, Asked]:
        """The prompt that is needed, and each token of the body, then each of the ends, right after the body."""
        whole = np.append(prompt, np.array(body, np.int32))
        places = np.append(np.arange(len(prompt) - 1, len(whole) - 1), np.full(len(ends), len(whole) - 1))
        return whole, Asked(places, np.array([*body, *ends], np.int32))


def asked_logprobs(network: Network, hidden: Tensor, parts: Sequence[tuple[Request, int, int]]) -> Tensor | None:
    """What is asked for of a prefill pass, float32, in the order of the parts: of each a request, how many of its
    tokens were there before and how many are new. `hidden` has the new ones. Logits exist once for each place, and for
    a chunk of places at a time."""
    rows, tokens, temperatures, first = list[Ints](), list[Ints](), list[float](), 0
    for request, done, new in parts:
        if request.asked is not None:
            low, high = np.searchsorted(request.asked.places, (done, done + new))
            rows.append(request.asked.places[low:high] - done + first)
            tokens.append(request.asked.tokens[low:high])
            temperatures.extend([request.params.temperature] * len(np.unique(rows[-1])))
        first += new
    if not temperatures:
        return None
    places, of_token = np.unique(np.concatenate(rows), return_inverse=True)
    scales = upload(np.array(temperatures, np.float32), hidden.device)[:, None]
    wanted, where = (upload(array.astype(np.int64), hidden.device) for array in (np.concatenate(tokens), of_token))
    states = hidden[upload(places, hidden.device)]
    out = torch.empty(len(wanted), dtype=torch.float32, device=hidden.device)
    size = chunk_rows(hidden, network)
    for low in range(0, len(places), size):
        begin, end = np.searchsorted(of_token, (low, low + size))
        logits = network.logits(states[low : low + size]).div_(scales[low : low + size])
        row = where[begin:end] - low
        out[begin:end] = logits[row, wanted[begin:end]] - logits.logsumexp(-1)[row]
    return out
