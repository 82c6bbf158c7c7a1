"""Logprobs from a server that knows one call for them: of whole sequences, with the first token's or without."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tinker")

from moot.engine.remote.engine import RemoteSampler
from moot.errors import EngineError


class Server:
    """Says minus a token's id over ten; counts how many questions wait for an answer at once."""

    def __init__(self, with_first: bool = True, too_few: int = 0, likeliest: int = 0) -> None:
        self.with_first, self.too_few, self.likeliest = with_first, too_few, likeliest
        self.waiting = self.most = self.asked = 0
        self.capabilities = SimpleNamespace(context_length=50)
        self._ledger = SimpleNamespace(generation=0)

    def _check_alive(self, sampler: Any) -> None: ...

    async def _ask(self, sampler: Any, question: Any) -> Any:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await asyncio.sleep(0)
        self.waiting -= 1
        self.asked += 1
        return question(
            SimpleNamespace(compute_logprobs=lambda text: self._logprobs(text.to_ints()), sample=self._sample)
        )

    def _sample(self, prompt: Any, topk_prompt_logprobs: int, **_: Any) -> Any:
        """Tells as many of the likeliest as it does, at most as many as are asked for."""
        tokens = prompt.to_ints()
        told = [(token, -token / 10) for token in range(min(self.likeliest, topk_prompt_logprobs))]
        likeliest = [None, *[told] * (len(tokens) - 1)] if self.likeliest else None
        return SimpleNamespace(prompt_logprobs=self._logprobs(tokens), topk_prompt_logprobs=likeliest)

    def _logprobs(self, tokens: list[int]) -> list[float | None]:
        rest = [-token / 10 for token in tokens[1 : len(tokens) - self.too_few]]
        return [None, *rest] if self.with_first else [*rest]


def sampler_of(server: Server) -> RemoteSampler:
    return RemoteSampler(server, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("with_first", [True, False])
def test_from_a_start_on_and_for_candidates_all_at_once(with_first: bool) -> None:
    server = Server(with_first)
    sampler = sampler_of(server)
    tail = asyncio.run(sampler.compute_logprobs([1, 2, 3, 4], start=2))
    np.testing.assert_allclose(tail, [np.nan, np.nan, -0.3, -0.4], atol=1e-6)
    assert asyncio.run(sampler.score_continuations([1, 2], [[5], [6, 7], [5]])) == pytest.approx([-0.5, -1.3, -0.5])
    assert server.most == 2  # the same candidate is asked for once


@pytest.mark.parametrize(("likeliest", "requests"), [(0, 5), (9, 3), (60, 3)])
def test_words_of_one_place_are_one_request_where_the_server_tells_the_likeliest(likeliest: int, requests: int) -> None:
    """[5], [6] and [7, 8], [7, 4] are two places; 21 is asked for by itself: no server tells more than twenty."""
    server = Server(likeliest=likeliest)
    candidates = [[5], [6], [5], [21], [7, 8], [7, 4]]
    scores = asyncio.run(sampler_of(server).score_continuations([1, 2], candidates))
    assert scores == pytest.approx([-0.5, -0.6, -0.5, -2.1, -1.5, -1.1])
    assert server.asked == requests


def test_too_few_of_them_are_an_engine_error() -> None:
    with pytest.raises(EngineError, match="returned 2 logprobs for 4 tokens"):
        asyncio.run(sampler_of(Server(too_few=2)).compute_logprobs([1, 2, 3, 4]))


def test_other_temperatures_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at temperature 1, not 0\.5"):
        asyncio.run(sampler_of(Server()).score_continuations([1, 2], [[3]], 0.5))
