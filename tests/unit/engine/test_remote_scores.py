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

    def __init__(self, with_first: bool = True, too_few: int = 0) -> None:
        self.with_first, self.too_few = with_first, too_few
        self.waiting = self.most = 0
        self.capabilities = SimpleNamespace(context_length=50)
        self._ledger = SimpleNamespace(generation=0)

    def _check_alive(self, sampler: Any) -> None: ...

    async def _ask(self, sampler: Any, question: Any) -> Any:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await asyncio.sleep(0)
        self.waiting -= 1
        return question(SimpleNamespace(compute_logprobs=lambda text: self._logprobs(text.to_ints())))

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
    assert server.most == 3


def test_too_few_of_them_are_an_engine_error() -> None:
    with pytest.raises(EngineError, match="returned 2 logprobs for 4 tokens"):
        asyncio.run(sampler_of(Server(too_few=2)).compute_logprobs([1, 2, 3, 4]))


def test_other_temperatures_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at temperature 1, not 0\.5"):
        asyncio.run(sampler_of(Server()).score_continuations([1, 2], [[3]], 0.5))
