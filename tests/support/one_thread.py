"""Tests on tiny models run torch in one thread: a second one would only wait for the first, and on a busy machine both for others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """Imported by a conftest, it is for all tests beside it, but for those that run a real model."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(before if request.node.get_closest_marker("slow") else 1)
    yield
    torch.set_num_threads(before)
