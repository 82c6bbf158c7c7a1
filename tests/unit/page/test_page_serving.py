"""Requests that never end: the server waits for each a while, and serves the others meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from moot.cli.view import listen
from moot.page import serving
from moot.page.runs import Runs
from moot.page.server import make_app


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Any]]:
    monkeypatch.setattr(serving, "SECONDS", 0.5)
    app, ready, listening = make_app(Runs([tmp_path]), tmp_path), threading.Event(), listen(0)
    server = serving.Server(app, ready.set)
    worker = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    worker.start()
    try:
        assert ready.wait(60)
        yield listening.getsockname()[1], app
    finally:
        server.should_exit = True
        worker.join(60)
        listening.close()


def whole(app: Any, more: str = "Connection: close") -> bytes:
    return f"GET /api/runs?token={app.token} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n\r\n".encode()


BEGUN = {
    "nothing": lambda app: b"",
    "half a line": lambda app: b"GET / HT",
    "half a head": lambda app: b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    "half a second one": lambda app: whole(app, "X: y") + b"GET / HTTP/1.1\r\n",
    "half a body": lambda app: whole(app, "Content-Length: 1000") + b"abc",
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dripping", [False, True])
@pytest.mark.parametrize("begun", BEGUN)
def test_half_a_request_is_not_waited_for_for_ever(page: tuple[int, Any], begun: str, dripping: bool) -> None:
    port, app = page
    with socket.create_connection(("127.0.0.1", port), 60) as wire, contextlib.suppress(ConnectionError):
        wire.sendall(BEGUN[begun](app))
        wire.settimeout(0.1 if dripping else 60)
        until, ended = time.monotonic() + 60, False
        while not ended:
            assert time.monotonic() < until, "the connection stays open"
            try:
                ended = wire.recv(65536) == b""
            except TimeoutError:
                assert dripping, "the connection stays open"
                wire.sendall(b"X")


def test_others_are_served_beside_many_that_wait(page: tuple[int, Any]) -> None:
    port, app = page
    with contextlib.ExitStack() as waiting:
        for _ in range(100):
            waiting.enter_context(socket.create_connection(("127.0.0.1", port), 60)).sendall(b"GET / HT")
        with socket.create_connection(("127.0.0.1", port), 60) as wire:
            wire.sendall(whole(app))
            assert wire.recv(100).startswith(b"HTTP/1.1 200")
