"""One endpoint: what is asked of it, what is read from it, and every way it can fail."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.debate.types import Message
from moot.players.chat.chat import Chat, ChatRequest, Patience, ServerRefused, Unanswered
from moot.players.chat.endpoint import Endpoint
from moot.players.chat.reading import Reply, events, retry_after
from support.chat_server import BASE, DONE, REQUEST, Asked, Pieces, Server, event, good, raising, stream
from support.stressing import answered

# What is asked, and a good answer


def test_a_streamed_answer_is_heard_piece_by_piece_and_comes_whole_with_its_tokens() -> None:
    asked = Asked(Server(good))
    assert asked.pieces == ["Fo", "ur"]
    assert asked.reply == Reply("Four", "stop", None, 9, 2)
    assert asked.waits == [] and asked.again == []


def test_the_request_says_who_what_how_long_how_warm_and_where_to_stop() -> None:
    server = Asked(Server(good)).server
    assert server.urls == [f"{BASE}/chat/completions"]
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 100,
            "temperature": 0.7,
            "stop": ["</comparison>"],
        }
    ]


def test_a_key_is_sent_where_there_is_one_and_nothing_where_there_is_none() -> None:
    assert Asked(Server(good), key="k-1").server.headers[0]["authorization"] == "Bearer k-1"
    assert "authorization" not in Asked(Server(good)).server.headers[0]
    assert "k-1" not in repr(Endpoint(BASE, "m", "k-1"))


def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {
        "choices": [{"message": {"content": "Four"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    assert Asked(Server(lambda: httpx.Response(200, json=whole))).reply == Reply("Four", "length", None, 3, 1)


def test_tokens_that_a_server_does_not_count_are_unknown_and_not_none() -> None:
    assert Asked(Server(lambda: stream(event("4"), event(finish="stop")))).reply == Reply("4", "stop", None, None, None)


def test_what_a_model_thinks_is_not_what_it_says() -> None:
    thought = b'data: {"choices": [{"delta": {"reasoning_content": "Hm, 5?"}}]}\n\n'
    assert Asked(Server(lambda: stream(thought, event("4"), event(finish="stop")))).reply == Reply("4", "stop")


def test_parts_of_text_are_joined() -> None:
    parts = b'data: {"choices": [{"delta": {"content": [{"type": "text", "text": "Fo"}, {"type": "text", "text": "ur"}]}}]}\n\n'
    reply = Asked(Server(lambda: stream(parts, event(finish="stop")))).reply
    assert reply is not None and reply.text == "Four"


@given(st.lists(st.integers(0, 600), max_size=12))
def test_it_does_not_matter_where_the_network_cuts_a_stream(cuts: list[int]) -> None:
    said = "naïve 🙂\u2028new\x85line\x0c and \\n"
    whole = (
        b": comment\n\n" + event(said).replace(b"\n\n", b"\r\n\r\n") + b"event: x\nid: 1\n" + event("!", "stop") + DONE
    )
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[a:b] for a, b in pairwise(edges)]

    async def read() -> list[bytes]:
        return [found async for found in events(Pieces(pieces).__aiter__())]

    found = asyncio.run(read())
    assert len(found) == 3 and found[2] == b"[DONE]"
    assert json.loads(found[0])["choices"][0]["delta"]["content"] == said


def test_data_on_several_lines_is_one_event() -> None:
    async def read() -> list[bytes]:
        return [found async for found in events(Pieces([b"data: {\ndata:  1}\n\ndata:2"]).__aiter__())]

    assert asyncio.run(read()) == [b"{\n 1}", b"2"]


def test_half_characters_are_joined_or_become_the_sign_for_no_character() -> None:
    halves = b'data: {"choices": [{"delta": {"content": "%s"}, "finish_reason": %s}]}\n\n'
    pieces = [halves % (b"\\ud83d", b"null"), halves % (b"\\ude42 \\ud800", b'"stop"')]
    reply = Asked(Server(lambda: stream(*pieces))).reply
    assert reply is not None and reply.text == "🙂 \ufffd"


def test_a_question_with_half_a_character_can_be_sent() -> None:
    request = ChatRequest((Message("user", "half \ud800"),), 10, 1.0, "x")
    assert Asked(Server(good), request=request).server.bodies[0]["messages"][0]["content"] == "half \ud800"


# What may pass


MAY_PASS: dict[str, Callable[[], httpx.Response]] = {
    "cannot be reached": raising(httpx.ConnectError("refused")),
    "closed the connection without an answer": raising(httpx.RemoteProtocolError("gone")),
    "broke off in the middle of an answer": lambda: stream(event("Fi"), httpx.ReadError("reset")),
    "ended in the middle of an answer": lambda: stream(event("Fi"), DONE),
    "sent an answer with nothing in it": lambda: stream(b'data: {"choices": []}\n\n', DONE),
    "answered 500 (boom)": lambda: httpx.Response(500, json={"error": {"message": "boom"}}),
    "answered 502 (<h1>Bad gateway</h1>)": lambda: httpx.Response(502, html="<h1>Bad\ngateway</h1>"),
    "answered 503": lambda: httpx.Response(503),
    "answered 529": lambda: httpx.Response(529),
    "answered 408": lambda: httpx.Response(408),
    "answered 429, too many requests (slow down)": lambda: httpx.Response(429, json={"detail": "slow down"}),
    'sent what is not JSON: {"choices": [{"del': lambda: stream(event("Fi"), b'data: {"choices": [{"del\n\n'),
    "sent what is no answer: [1]": lambda: stream(b"data: [1]\n\n"),
    "reported an error in the middle of an answer (full)": lambda: stream(event("Fi"), b'data: {"error": "full"}\n\n', DONE),
    "gave up in the middle of an answer (abort)": lambda: stream(event("Fi"), event(finish="abort")),
    "said nothing for 300 s": raising(httpx.ReadTimeout("slow")),
    "sent what is not JSON: <html>": lambda: httpx.Response(200, headers={"content-type": "application/json"}, content=b"<html>"),
}  # fmt: skip


@pytest.mark.parametrize("why", MAY_PASS)
def test_what_may_pass_is_asked_again_and_half_an_answer_is_thrown_away(why: str) -> None:
    asked = Asked(Server(MAY_PASS[why], good))
    assert asked.reply == Reply("Four", "stop", None, 9, 2)
    (told,) = asked.again
    assert told.startswith(f"{BASE} {why}")
    assert asked.pieces in (["Fo", "ur"], ["Fi", "Fo", "ur"])  # a listener is told to forget the half
    assert 1 <= len(asked.waits) <= 2


@pytest.mark.parametrize("why", MAY_PASS)
def test_asking_again_has_an_end_and_says_how_often_it_was_tried(why: str) -> None:
    asked = Asked(Server(MAY_PASS[why]))
    assert len(asked.server.bodies) == 3
    assert isinstance(asked.error, Unanswered)
    assert str(asked.error).startswith(f"{BASE} {why}") and str(asked.error).endswith(", 3 times in a row")


def test_without_retries_it_is_tried_once() -> None:
    asked = Asked(Server(raising(httpx.ConnectError("refused"))), Patience(retries=0))
    assert str(asked.error) == f"{BASE} cannot be reached (refused)"


def test_an_answer_that_was_whole_before_the_connection_broke_counts() -> None:
    broken = (httpx.ReadError("reset"), b"data: {half\n\n", b'data: {"error": "late"}\n\n')
    for rest in broken:
        assert Asked(Server(lambda rest=rest: stream(event("Four"), event(finish="stop"), rest))).reply == Reply(
            "Four", "stop"
        )


def test_waits_double_and_are_spread_by_half() -> None:
    asked = Asked(Server(lambda: httpx.Response(500)), Patience(retries=10, first_wait_s=1.0, longest_wait_s=60.0))
    longest = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    assert [high / 2 <= wait <= high for wait, high in zip(asked.waits, longest, strict=True)] == [True] * 10
    assert len({wait / high for wait, high in zip(asked.waits, longest, strict=True)}) == 10


def test_the_time_a_server_names_is_waited_and_little_more() -> None:
    asked = Asked(Server(lambda: httpx.Response(429, headers={"Retry-After": "7"}), good))
    assert asked.reply is not None
    # Everybody at this server holds back, the one that was told among them: the clock of this test stands still.
    assert all(7 <= wait <= 9 for wait in asked.waits)
    assert asked.waits


def test_a_server_that_asks_for_an_hour_is_not_waited_for() -> None:
    asked = Asked(Server(lambda: httpx.Response(503, headers={"Retry-After": "3600"})))
    assert isinstance(asked.error, ServerRefused)
    assert str(asked.error) == f"{BASE} answered 503, and asks to wait 3600 s; try again after that"
    assert len(asked.server.bodies) == 1


def test_a_rate_limit_told_to_one_holds_back_the_others_at_that_server() -> None:
    server, waits = Server(lambda: httpx.Response(429, headers={"Retry-After": "30"}), good), list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def ask() -> None:
        chat = Chat(Endpoint(BASE, "m"), transport=server, sleep=sleep, rng=random.Random(0))
        await chat.reply(REQUEST)
        waits.clear()
        await chat.reply(REQUEST)

    asyncio.run(ask())
    assert len(waits) == 1 and 29 < waits[0] < 33


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        ("12", 12.0),
        ("1.5", 1.5),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("9" * 400, None),
        ("Mon, 99 Foo 2026", None),
    ],
)
def test_retry_after_is_seconds_or_nothing(header: str, seconds: float | None) -> None:
    assert retry_after(httpx.Headers({"Retry-After": header})) == seconds


def test_retry_after_may_be_a_date_and_one_in_the_past_means_now() -> None:
    for ahead, low, high in ((20, 18, 20.5), (-20, 0, 0)):
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True)
        found = retry_after(httpx.Headers({"Retry-After": date}))
        assert found is not None and low <= found <= high


def test_a_server_that_only_keeps_the_connection_open_is_silent() -> None:
    def comments() -> httpx.Response:
        return stream(event("Fi"), *(each for _ in range(100) for each in (b": ping\n\n", 0.02)))

    asked = Asked(Server(comments), Patience(retries=0, timeout_s=0.2))
    assert str(asked.error) == f"{BASE} said nothing for 0.2 s"


@pytest.mark.parametrize(
    "said",
    [event(), event(""), b'data: {"choices": []}\n\n', b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'],
)
def test_events_that_say_nothing_are_silence(said: bytes) -> None:
    def empty() -> httpx.Response:
        return stream(event("Fi"), *(each for _ in range(1000) for each in (said, 0.02)))

    asked = Asked(Server(empty), Patience(retries=0, timeout_s=0.2))
    assert str(asked.error) == f"{BASE} said nothing for 0.2 s"


@pytest.mark.parametrize("said", [event("a"), b'data: {"choices": [{"delta": {"reasoning_content": "Hm"}}]}\n\n'])
def test_an_answer_has_one_deadline_however_much_is_said(said: bytes) -> None:
    def endless() -> httpx.Response:
        return stream(*(each for _ in range(1000) for each in (said, 0.02)))

    asked = Asked(Server(endless), Patience(retries=0, timeout_s=0.3, longest_wait_s=0.0, total_s=0.6))
    # The second is what a machine says that stood still for so long itself.
    assert str(asked.error) in (f"{BASE} gave no whole answer within 0.6 s", f"{BASE} said nothing for 0.3 s")


def test_tries_and_waits_have_one_deadline_together() -> None:
    assert Patience().deadline_s == 3600
    assert Patience(retries=2, timeout_s=3000, longest_wait_s=0).deadline_s == 9000, (
        "each try may be as silent as was asked for"
    )

    async def ask() -> None:
        async def sleep(seconds: float) -> None:
            await asyncio.sleep(3600)

        patience = Patience(retries=3, timeout_s=0.01, longest_wait_s=0.01, total_s=0.1)
        chat = Chat(Endpoint(BASE, "m"), patience, transport=Server(lambda: httpx.Response(500)), sleep=sleep)
        with pytest.raises(Unanswered, match=r"no whole answer within 0\.1 s"):
            await answered(chat.reply(REQUEST), "a chat request")
        await chat.close()

    asyncio.run(ask())


def test_a_server_that_goes_on_after_the_end_of_its_answer_is_not_listened_to() -> None:
    def chatty() -> httpx.Response:
        return stream(event("4"), event(finish="stop"), *(each for _ in range(1000) for each in (event("!"), 0.02)))

    asked = Asked(Server(chatty), Patience(retries=0, timeout_s=0.2))
    assert asked.reply is not None and asked.reply.finish == "stop" and len(asked.reply.text) < 500


class Bomb(httpx.AsyncByteStream):
    """Says how much of it was read."""

    def __init__(self, body: bytes) -> None:
        self.body, self.read = body, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.read += len(self.body)
        yield self.body


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
@pytest.mark.parametrize("packing", ["gzip", "gzip, gzip, gzip", "deflate", "br", "unheard-of"])
def test_what_a_server_packed_is_refused_and_not_unpacked(status: int, kind: str, packing: str) -> None:
    body = b"data: " + bytes(1 << 20)
    for _ in packing.split(","):
        body = gzip.compress(body)
    bomb = Bomb(body)
    headers = {"content-type": kind, "content-encoding": packing}
    asked = Asked(Server(lambda: httpx.Response(status, headers=headers, stream=bomb)), Patience(retries=0))
    assert bomb.read == 0 and asked.server.headers[0]["accept-encoding"] == "identity"
    refusal = f"{BASE} packed its answer ({packing}), which was not asked for; turn that off there"
    assert str(asked.error).startswith(refusal if status == 200 else f"{BASE} answered {status}")


@pytest.mark.parametrize("count", [10**400, 1 << 60, -1, True, 1e300, "9"])
def test_a_count_of_tokens_that_cannot_be_one_is_none(count: Any) -> None:
    whole = {
        "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": count, "completion_tokens": 1},
    }
    assert Asked(Server(lambda: httpx.Response(200, json=whole))).reply == Reply("4", "stop", None, None, 1)


def test_a_slow_server_that_goes_on_speaking_is_heard_out() -> None:
    def slow() -> httpx.Response:
        return stream(*(each for _ in range(6) for each in (event("a"), 0.3)), event(finish="stop"))

    assert Asked(Server(slow), Patience(retries=0, timeout_s=1.0)).reply == Reply("a" * 6, "stop")


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.players.chat.reading.MOST_BYTES", 1000)
    asked = Asked(Server(lambda: stream(b"data: ", *[b"x" * 100] * 50)), Patience(retries=0))
    assert "sent a line of more than" in str(asked.error)


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.players.chat.reading.MOST_CHARACTERS", 1000)
    asked = Asked(Server(lambda: stream(*[event("x" * 100)] * 50)), Patience(retries=0))
    assert str(asked.error) == f"{BASE} sent an answer without end"


# What will not pass


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            httpx.Response(401, json={"error": {"message": "no key"}}),
            f"{BASE} answered 401 (no key); set OPENAI_API_KEY to a key it takes",
        ),
        (httpx.Response(403), f"{BASE} answered 403; the key in OPENAI_API_KEY may not use this model"),
        (httpx.Response(404), f"{BASE} answered 404; check --base-url, which usually ends in /v1, and --model"),
        (
            httpx.Response(400, json={"detail": "context too long"}),
            f"{BASE} answered 400 (context too long); the request does not suit",
        ),
        (httpx.Response(413), "fewer --rounds"),
        (httpx.Response(501), f"{BASE} answered 501; check --base-url and --model"),
        (
            httpx.Response(301, headers={"location": "http://new.test/v1"}),
            "points to http://new.test/v1; give the new place as --base-url",
        ),
        (
            httpx.Response(429, json={"error": {"code": "insufficient_quota", "message": "pay"}}),
            "the account's quota is used up",
        ),
    ],
)
def test_what_will_not_pass_is_said_at_once_with_what_to_do(answer: httpx.Response, says: str) -> None:
    asked = Asked(Server(lambda: answer))
    assert isinstance(asked.error, ServerRefused)
    assert says in str(asked.error)
    assert len(asked.server.bodies) == 1 and asked.waits == []


def test_hostile_errors_are_one_plain_line() -> None:
    asked = Asked(Server(lambda: httpx.Response(400, content=b"\x1b[2J\nline\x07 " + b"x" * 100_000)))
    assert len(str(asked.error)) < 400
    assert str(asked.error).isprintable()


# Servers that know fewer settings


def refusing(name: str, words: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(422, json={"detail": words.format(name)})


@pytest.mark.parametrize(
    ("name", "words", "note"),
    [
        ("stream_options", "Unexpected fields in the request: {{'{}'}}", None),
        ("temperature", "Unsupported value: '{}' does not support 0.7 with this model", "takes no temperature"),
        ("stop", "Unrecognized request argument supplied: {}", "takes no stop string"),
        ("seed", "Extra inputs are not permitted: {}", "takes no seed"),
    ],
)
def test_a_setting_that_a_server_does_not_know_is_left_out_and_noted(name: str, words: str, note: str | None) -> None:
    request = ChatRequest(REQUEST.messages, 100, 0.7, "</comparison>", seed=3)
    asked = Asked(Server(refusing(name, words), good), request=request)
    assert asked.reply is not None and asked.waits == []
    first, second = asked.server.bodies
    assert first.keys() - second.keys() == {name} and second.keys() <= first.keys()
    assert (note is None and asked.notes == []) or (
        note is not None and len(asked.notes) == 1 and note in asked.notes[0]
    )


def test_the_limit_on_tokens_has_a_newer_name() -> None:
    words = "Unsupported parameter: '{}' is not supported with this model. Use 'max_completion_tokens' instead."
    first, second = Asked(Server(refusing("max_tokens", words), good)).server.bodies
    assert first["max_tokens"] == second["max_completion_tokens"] == 100
    assert "max_tokens" not in second


def test_a_value_out_of_range_is_not_a_setting_that_is_unknown() -> None:
    asked = Asked(Server(refusing("temperature", "{} must be between 0 and 2")))
    assert isinstance(asked.error, ServerRefused) and len(asked.server.bodies) == 1


def test_a_server_that_refuses_everything_is_asked_once_for_each_setting() -> None:
    words = "unsupported: stream_options max_tokens temperature seed stop, and the system role"
    asked = Asked(
        Server(lambda: httpx.Response(400, text=words)), request=ChatRequest(REQUEST.messages, 100, 0.7, "x", seed=3)
    )
    assert isinstance(asked.error, ServerRefused)
    assert len(asked.server.bodies) == 7


def test_without_a_system_role_its_text_stands_in_the_first_message() -> None:
    _, second = Asked(
        Server(lambda: httpx.Response(400, json={"error": "System role not supported"}), good)
    ).server.bodies
    assert second["messages"] == [{"role": "user", "content": "Be brief.\n\nTwo and two?"}]
