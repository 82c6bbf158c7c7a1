"""For the tests of `moot ask`: a server on a real socket that speaks well or badly, and a proxy that puts faults before a real one."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from moot.cli import main
from moot.engine.scripted import ByteTokenizer, well_formed
from support.scenes import read_scene

Answer = tuple[int, dict[str, str], Iterable[bytes]]
"""Status, headers, and the body in pieces; a body that raises breaks the connection off in the middle."""


def chunk(content: str | None = None, finish: str | None = None, usage: tuple[int, int] | None = None) -> bytes:
    body: dict[str, Any] = {
        "choices": [{"index": 0, "delta": {} if content is None else {"content": content}, "finish_reason": finish}]
    }
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def saying(text: str, finish: str = "stop", usage: tuple[int, int] | None = (100, 10)) -> Answer:
    piece = max(40, len(text) // 50)
    pieces = [chunk(text[i : i + piece]) for i in range(0, len(text), piece)]
    return 200, {"Content-Type": "text/event-stream"}, [*pieces, chunk(None, finish, usage)]


def scripted(body: dict[str, Any]) -> str:
    """What the scripted engine would say to this, without the closing tag that a stop string takes away."""
    prompt = ByteTokenizer().apply_chat_template(body["messages"], add_generation_prompt=True, tokenize=False)
    said = well_formed(read_scene(prompt), random.Random(prompt))
    return said.removesuffix(body["stop"][0]) if body.get("stop") else said


class ChatServer:
    """`answer` gets the number of the request and its body."""

    def __init__(
        self, answer: Callable[[int, dict[str, Any]], Answer] = lambda number, body: saying(scripted(body))
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    number = len(outer.requests)
                    outer.requests.append(json.loads(raw))
                    outer.keys.append(self.headers.get("Authorization"))
                self.close_connection = True
                status, headers, pieces = answer(number, outer.requests[number])
                self.send_response(status)
                for name, value in {**headers, "Transfer-Encoding": "chunked", "Connection": "close"}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    for piece in pieces:
                        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    pass  # the client went away, or is meant to think that we did

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, request: object, address: object) -> None:
                """A client that went away, or a server that is meant to break."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """From now on nobody is there. Call it from another thread than an answer's."""
        self._server.shutdown()
        self._server.server_close()


def broken_off(*pieces: bytes) -> Iterable[bytes]:
    yield from pieces
    raise ConnectionResetError


def forwarding(target: str) -> Callable[[dict[str, Any]], Answer]:
    """Passes a request on to a real server, and its answer back as it comes."""
    place = urlsplit(target)

    def answer(body: dict[str, Any]) -> Answer:
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=300)
        connection.request(
            "POST", f"{place.path}/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        return (
            response.status,
            {"Content-Type": response.headers.get("Content-Type", "")},
            iter(lambda: response.read1(4096), b""),
        )

    return answer


def here(
    *arguments: object, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in this process, which spares a second of imports each time; as a process of its own where that is what is tested."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment or {}),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        # In tags, unless a test names another way: one request per turn is easier to script.
        tags = [] if "--sections" in arguments else ["--sections", "sampled"]
        status = main(["ask", *map(str, arguments), *tags])
    return subprocess.CompletedProcess([], status, output.getvalue(), errors.getvalue())
