"""What may be sent again, and what may not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tinker")

from moot.engine.remote import wire
from moot.engine.remote.wire import RetryTransport, pause

GOOD = httpx.Response(200, json={"request_id": "1"})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(wire, "LONGEST_PAUSE_S", 0.004)


def line(answers: list[Any]) -> tuple[RetryTransport, list[str]]:
    """A wire whose other end gives these answers in turn, or raises them; and what arrived there."""
    arrived: list[str] = []
    turn: Iterator[Any] = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        arrived.append(request.url.path)
        given = next(turn)
        if isinstance(given, Exception):
            raise given
        return httpx.Response(given.status_code, headers=given.headers, content=given.content)

    return RetryTransport(patience_s=2, inner=httpx.MockTransport(answer)), arrived


def ask(path: str, answers: list[Any]) -> tuple[int, list[str], RetryTransport]:
    made, arrived = line(answers)

    async def main() -> int:
        async with httpx.AsyncClient(transport=made, base_url="http://server") as client:
            return (await client.post(f"/api/v1/{path}", json={})).status_code

    return asyncio.run(main()), arrived, made


LOST = [
    httpx.ReadError("reset"),
    httpx.ReadTimeout("late"),
    httpx.RemoteProtocolError("half"),
    httpx.Response(500),
    httpx.Response(502),
]
CUT = httpx.Response(200, headers={"content-type": "application/json"}, content=b'{"request_id": "1')


@pytest.mark.parametrize("path", ["forward_backward", "optim_step", "save_weights", "save_weights_for_sampler"])
@pytest.mark.parametrize("fault", [*LOST, CUT], ids=repr)
def test_what_may_have_been_taken_is_not_sent_again(path: str, fault: Any) -> None:
    status, arrived, made = ask(path, [fault, GOOD])
    assert (status, len(arrived)) == (424, 1)
    assert made.counts["uncertain"] == 1


@pytest.mark.parametrize("fault", [httpx.ConnectError("refused"), httpx.Response(429), httpx.Response(503)], ids=repr)
def test_what_was_certainly_not_taken_is_sent_again(fault: Any) -> None:
    status, arrived, made = ask("forward_backward", [fault, fault, GOOD])
    assert (status, len(arrived)) == (200, 3)
    assert made.counts["retries"] == 2


@pytest.mark.parametrize("path", ["asample", "retrieve_future", "forward", "load_weights", "create_model"])
@pytest.mark.parametrize("fault", [*LOST, CUT], ids=repr)
def test_what_can_be_asked_twice_is(path: str, fault: Any) -> None:
    status, arrived, _ = ask(path, [fault, GOOD])
    assert (status, len(arrived)) == (200, 2)


def test_the_brake_on_sampling_is_left_to_the_sdk() -> None:
    assert ask("asample", [httpx.Response(429), GOOD])[0] == 429


def test_a_refusal_is_passed_on_and_remembered() -> None:
    status, arrived, made = ask("forward_backward", [httpx.Response(422, text="no such loss")])
    assert (status, len(arrived)) == (422, 1)
    assert "no such loss" in made.last_refusal and "/api/v1/forward_backward" in made.last_refusal


def test_work_that_failed_on_the_server_is_not_asked_for_for_ever() -> None:
    assert ask("retrieve_future", [httpx.Response(500, json={"detail": "Unknown error"})])[0] == 424


def test_patience_ends_and_says_with_whom() -> None:
    made, arrived = line([httpx.ConnectError("refused")] * 100_000)
    made.patience_s = 0.05

    async def main() -> None:
        async with httpx.AsyncClient(transport=made, base_url="http://server:81") as client:
            await client.get("/api/v1/healthz")

    with pytest.raises(httpx.ConnectError, match=r"server:81 gave no answer for 0 s \(ConnectError: refused\)"):
        asyncio.run(main())
    assert len(arrived) > 3


@given(attempt=st.integers(0, 2000))
def test_pauses_grow_and_stay_within_bounds(attempt: int) -> None:
    longest = min(wire.LONGEST_PAUSE_S, wire.FIRST_PAUSE_S * 2 ** min(attempt, 10))
    assert longest / 2 <= pause(attempt) <= longest


def test_pauses_differ_between_those_who_wait() -> None:
    assert len({pause(3) for _ in range(20)}) == 20
