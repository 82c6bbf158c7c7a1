"""Requests to the page's server, put together by hand: a client would tidy them up."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import unquote_to_bytes


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(app: Any, target: str, method: str = "GET", host: str | None = "localhost:8717", **headers: str) -> Answer:
    path, _, query = target.partition("?")
    lines = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    if "cookie" not in headers:
        lines.append((b"cookie", f"moot-8717={app.token}".encode()))  # as a browser that was let in
    if host is not None:
        lines += [(b"host", each.encode("latin-1")) for each in host.split("\n")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": lines,
        "server": ("127.0.0.1", 8717),
        "client": ("127.0.0.1", 1),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))
