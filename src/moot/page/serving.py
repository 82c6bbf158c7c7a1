"""The server under the page: it says when it answers, ends when told to, and waits for nobody who sends half
requests."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0
"""For a request to arrive in: the page's are a few lines each."""


class Server(uvicorn.Server):
    def __init__(self, app: ASGIApp, ready: Callable[[], None]) -> None:
        """`ready` is called once the server answers: whoever reads the address may use it, or stop at once."""
        plain: dict[str, Any] = {"http": _Connection, "ws": "none", "lifespan": "off", "timeout_graceful_shutdown": 3}
        quiet: dict[str, Any] = {"log_level": "error", "access_log": False, "server_header": False}
        super().__init__(uvicorn.Config(app, **plain, **quiet))
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        # Of a closed terminal too: uvicorn knows Ctrl-C and TERM only. Where HUP is ignored, it stays so.
        if callable(signal.getsignal(signal.SIGHUP)) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, self.handle_exit)
        self._ready()


class _Connection(H11Protocol):
    """uvicorn closes a connection on which nothing comes after an answer, but waits for a first request, and for the
    rest of what was begun, as long as the other side likes."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._at_ease()

    def _watch(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._at_ease()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(SECONDS, self.transport.abort)

    def _at_ease(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
