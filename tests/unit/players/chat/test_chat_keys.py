"""Keys are shown to nobody, and answers of any size are read up to a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from moot.players.chat.chat import ServerRefused
from moot.players.chat.reading import Reply
from support.chat_server import BASE, Asked, Server, event, stream

KEY = "sk-THE-SECRET-KEY-0123456789"


@pytest.mark.parametrize(
    "answer",
    [
        lambda: httpx.Response(401, json={"error": {"message": f"Incorrect API key provided: {KEY}."}}),
        lambda: httpx.Response(400, text="x" * 190 + KEY),  # where the message is cut, half a key would remain
        lambda: httpx.Response(500, html=f"<h1>{KEY}</h1>"),
        lambda: httpx.Response(302, headers={"location": f"http://new.test/?key={KEY}"}),
        lambda: stream(b'data: {"error": "bad key ' + KEY.encode() + b'"}\n\n'),
        lambda: stream(b"data: not JSON " + KEY.encode() + b"\n\n"),
        lambda: stream(b'data: ["' + KEY.encode() + b'"]\n\n'),
    ],
)
def test_a_server_that_repeats_the_key_gets_it_shown_to_nobody(answer: Callable[[], httpx.Response]) -> None:
    asked = Asked(Server(answer), key=KEY)
    assert asked.error is not None
    for said in (str(asked.error), *asked.again):
        assert KEY[:8] not in said and "[key]" in said


def test_a_key_in_the_middle_of_an_answer_is_struck_out_of_the_turn_and_of_what_is_shown_on_the_way() -> None:
    pieces = [
        event(f"It is {KEY[:5]}"),
        event(KEY[5:12]),
        event(f"{KEY[12:]}, sk"),
        event(" or not"),
        event(" sk-"),
        event(finish="stop"),
    ]
    asked = Asked(Server(lambda: stream(*pieces)), key=KEY)
    assert asked.reply is not None and asked.reply.text == "It is [key], sk or not sk-"
    assert "".join(asked.pieces) == asked.reply.text and not any(KEY[:5] in piece for piece in asked.pieces)


def test_a_key_that_is_no_secret_is_an_ordinary_word() -> None:
    assert Asked(Server(lambda: stream(event("It is EMPTY"), event(finish="stop"))), key="EMPTY").reply == Reply(
        "It is EMPTY", "stop"
    )


def test_an_answer_that_is_not_streamed_is_read_up_to_a_bound_and_then_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moot.players.chat.chat.MOST_BYTES", 1 << 20)
    sent: list[int] = []

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(3 << 10):  # 3 GiB
                sent.append(1 << 20)
                yield b" " * (1 << 20)

    asked = Asked(Server(lambda: httpx.Response(200, headers={"content-type": "application/json"}, stream=Endless())))
    assert isinstance(asked.error, ServerRefused) and len(asked.server.bodies) == 1
    assert str(asked.error) == f"{BASE} sent an answer of more than 1 MiB; give a smaller --max-tokens"
    assert len(sent) == 2


def test_an_error_of_any_size_is_read_only_as_far_as_it_is_shown() -> None:
    sent: list[int] = []

    class Page(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(1000):
                sent.append(1)
                yield b"x" * (1 << 16)

    asked = Asked(Server(lambda: httpx.Response(404, stream=Page())))
    assert isinstance(asked.error, ServerRefused) and len(str(asked.error)) < 400 and len(sent) == 2
