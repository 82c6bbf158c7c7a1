"""Who may ask the page's server: the browser of whoever started it, and only to look.

Model text reaches the browser as JSON and the page puts it in as text. Should that ever fail, the policy sent with
every answer still runs no script that is not ours, and sends nothing anywhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

NAMES = ("localhost", "127.0.0.1", "[::1]")
COOKIE = "moot-"
"""And the port."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Lets in GET and HEAD, under a name that can only mean this machine, not from another site's page, with the token.

    A site elsewhere can point its own name at 127.0.0.1 and have a browser read what is there; it cannot choose the
    Host line.
    Other people on this machine can; they do not know the token: it stands in the printed address, then in a cookie.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.token = app, secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                extra = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in own]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value.decode("latin-1"))
        refusal = _refusal(scope, headers) or self._stranger(scope, headers)
        await (self.app if refusal is None else refusal)(scope, receive, guarded)

    def _stranger(self, scope: Scope, headers: Mapping[bytes, list[str]]) -> Response | None:
        """Whoever brings the token in the address gets it as a cookie, and an address that can be shown to others."""
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        cookies = [pair.strip().partition("=") for line in headers.get(b"cookie", []) for pair in line.split(";")]
        brought = [value for name, value in asked if name == "token"]
        kept = [value for name, _, value in cookies if name.startswith(COOKIE)]
        if not any(self._is_token(value) for value in (*brought, *kept)):
            return _text(403, "This page is its owner's: open the address that moot view printed, with its token.")
        if not brought or scope["path"] != "/":
            return None
        others = urlencode([(name, value) for name, value in asked if name != "token"])
        # Browsers keep cookies by machine, not by port: each port has its own, and two pages do not sign each other
        # out.
        cookie = f"{COOKIE}{_port(headers[b'host'][0]) or 80}={self.token}; Path=/; HttpOnly; SameSite=Lax"
        return _text(303, "", {"location": f"/?{others}" if others else "/", "set-cookie": cookie})

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


def _refusal(scope: Scope, headers: Mapping[bytes, list[str]]) -> Response | None:
    hosts = headers.get(b"host", [])
    if len(hosts) != 1 or not _is_here(hosts[0]):
        return _text(403, "This page answers only to localhost, 127.0.0.1 and [::1].")
    if scope["method"] not in ("GET", "HEAD"):
        return _text(405, "This page can only be looked at: GET and HEAD.", {"allow": "GET, HEAD"})
    site, mode = (headers.get(name, [""])[0] for name in (b"sec-fetch-site", b"sec-fetch-mode"))
    if site in ("cross-site", "same-site") and mode != "navigate":
        return _text(403, "Other sites' pages may link here, not read from here.")
    return None


def _is_here(host: str) -> bool:
    port = _port(host)
    name = host if port is None else host.rpartition(":")[0]
    return name.lower() in NAMES and (port is None or (port.isascii() and port.isdigit()))


def _port(host: str) -> str | None:
    """What a Host line says behind its name, be it a number or not."""
    if host.count(":") == 1 or host.startswith("["):
        head, _, tail = host.rpartition(":")
        if head and not tail.endswith("]"):
            return tail
    return None


def _text(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(message + "\n", status, {"cache-control": "no-store", **(headers or {})}, "text/plain")
