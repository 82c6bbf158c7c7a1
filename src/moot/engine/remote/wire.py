"""What happens to a request on a bad line.

Most requests may be sent again: asking for a result twice gives the same result. Three may not. A `forward_backward` or
an `optim_step` that arrived, and whose answer was lost, would be applied a second time by a server that does not number
its requests; a `save_weights` would find its name taken. Those are sent at most once unless it is certain that they
were not taken (no connection, 429, 503). In doubt the caller gets status 424, which the SDK does not retry, and the
ledger restores and replays.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from typing import Any

import httpx
import orjson

from moot.engine.protocol import in_words

ONCE = ("/forward_backward", "/optim_step", "/save_weights", "/save_weights_for_sampler")
LONG_POLL = "/retrieve_future"
NEVER_TAKEN = (429, 503)
UNCERTAIN = 424
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0


def pause(attempt: int) -> float:
    """Doubles with each attempt, up to a bound; random, so that a thousand debates do not come back at once."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 10))
    return random.uniform(longest / 2, longest)


class RetryTransport(httpx.AsyncBaseTransport):
    """Between the SDK and the network. `patience_s` bounds how long one request is tried."""

    def __init__(self, patience_s: float = 180.0, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self.patience_s = patience_s
        self.counts: Counter[str] = Counter()
        self.last_refusal = ""
        """The newest answer that was neither success nor a reason to wait; for the message of a start that failed."""
        self._inner = inner or _fast_transport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        once = path.endswith(ONCE)
        body = await request.aread()
        started, attempt = time.monotonic(), 0
        while True:
            self.counts["requests"] += 1
            self.counts["bytes_sent"] += len(body)
            problem, safe, wait = "", not once, 0.0
            try:
                response = await self._whole(request)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                problem, safe = in_words(error), True
            except httpx.ReadTimeout:
                if path.endswith(LONG_POLL):
                    self.counts["polls"] += 1
                    continue  # not a fault: the result is not there yet, and whoever waits has a time-out of their own
                problem = "no answer in time"
            except Exception as error:  # whatever the line broke with, the request is in doubt
                problem = in_words(error)
            else:
                status = response.status_code
                if status in NEVER_TAKEN and not (status == 429 and path.endswith("/asample")):
                    # The SDK has a brake of its own for sampling, which works on all requests together.
                    problem, safe, wait = f"status {status}", True, _retry_after(response)
                elif status >= 500 and path.endswith(LONG_POLL) and _is_verdict(response):
                    return _in_doubt(request, "the server failed at it and does not say why")
                elif status < 400:
                    return response
                else:
                    problem = f"status {status}: {response.text[:200]}"
                    kind = request.headers.get("content-type", "no body")
                    self.last_refusal = f"{request.method} {path} ({kind}): {problem}"
                    if status < 500:
                        return response
            self.counts["faults"] += 1
            if not safe:
                self.counts["uncertain"] += 1
                return _in_doubt(request, f"{path} may or may not have been taken ({problem})")
            if time.monotonic() - started > self.patience_s:
                whom = f"{request.url.host}:{request.url.port or ''}"
                raise httpx.ConnectError(f"{whom} gave no answer for {self.patience_s:.0f} s ({problem})")
            self.counts["retries"] += 1
            await asyncio.sleep(max(wait, pause(attempt)))
            attempt += 1

    async def _whole(self, request: httpx.Request) -> httpx.Response:
        """The answer with all of its body, or an exception: half an answer is none."""
        response = await self._inner.handle_async_request(request)
        try:
            content = b"".join([part async for part in response.stream])  # type: ignore[union-attr]
        finally:
            await response.aclose()
        self.counts["bytes_received"] += len(content)
        promised = response.headers.get("content-length")
        if promised is not None and "content-encoding" not in response.headers and int(promised) != len(content):
            raise httpx.RemoteProtocolError(f"{len(content)} of {promised} bytes arrived")
        given: dict[str, Any] = {"headers": response.headers, "content": content, "extensions": response.extensions}
        whole = httpx.Response(response.status_code, request=request, **given)
        if response.status_code == 200 and "json" in response.headers.get("content-type", ""):
            try:
                orjson.loads(content)
            except ValueError as error:
                raise httpx.RemoteProtocolError(f"the answer is cut short: {error}") from None
        return whole

    async def aclose(self) -> None:
        await self._inner.aclose()


def _fast_transport() -> httpx.AsyncBaseTransport:
    """The SDK's own choice: httpx's pool looks at every connection for every request, which a thousand debates feel."""
    try:
        import pyqwest
        from pyqwest.httpx import AsyncPyqwestTransport
    except ImportError:
        return httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None, max_keepalive_connections=200))
    try:
        made = pyqwest.HTTPTransport(tls_include_system_certs=True)
    except TypeError:  # older ones have the system's certificates without asking
        made = pyqwest.HTTPTransport()
    transport: httpx.AsyncBaseTransport = AsyncPyqwestTransport(made)
    return transport


def _is_verdict(response: httpx.Response) -> bool:
    """Work that failed for good is told as 500 by some servers; the SDK would ask again for ever, without a pause."""
    with contextlib.suppress(ValueError):
        body: Any = orjson.loads(response.content)
        return isinstance(body, dict) and body.get("detail") == "Unknown error"
    return False


def _in_doubt(request: httpx.Request, why: str) -> httpx.Response:
    return httpx.Response(UNCERTAIN, json={"detail": why}, request=request)


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(60.0, float(response.headers.get("retry-after", "0")))
    except ValueError:
        return 0.0
