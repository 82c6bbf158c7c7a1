"""A bad line: between a client and a server, some calls are delayed, cut off, refused or answered by halves.

One call in five by default meets one of six faults, drawn from a seed and from the number of the call, so that a run can be repeated.
What makes them hard is on which side of the server they strike: a reset before the request leaves it undone, one after it leaves it
done and unanswered.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

FAULTS = ("delay", "reset_before", "reset_after", "429", "500_before", "500_after", "truncated")


async def end_all_tasks() -> None:
    """Before a loop is closed: a connection that nobody ended would complain later, in the middle of some other test."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@dataclass
class FaultProxy:
    target_port: int
    share: float = 0.2
    seed: int = 0
    faults: tuple[str, ...] = FAULTS
    delay_s: float = 0.3
    spare: tuple[str, ...] = ("/healthz", "/telemetry", "/session_heartbeat")
    seen: Counter[str] = field(default_factory=Counter)
    """How often each fault struck, and `calls` in all."""

    async def start(self, port: int = 0) -> int:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1 << 26, backlog=1024)
        return int(self._listening.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._listening.close()

    def _fault(self, path: str) -> str:
        self.seen["calls"] += 1
        chance = random.Random(f"{self.seed}/{self.seen['calls']}")
        if path.endswith(self.spare) or chance.random() >= self.share:
            return ""
        struck = chance.choice(self.faults)
        self.seen[struck] += 1
        return struck

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, body = await _message(reader)
                if not await self._call(head, body, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _call(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is still good."""
        fault = self._fault(head.split(b" ", 2)[1].decode().partition("?")[0])
        if fault == "delay":
            await asyncio.sleep(self.delay_s)
        if fault == "reset_before":
            writer.transport.abort()
            return False
        if fault in ("429", "500_before"):
            status = fault[:3]
            writer.write(
                f"HTTP/1.1 {status} no\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}".encode()
            )
            await writer.drain()
            return True
        try:
            answer_head, answer = await self._forward(head, body)
        except OSError:  # the server is down, which is what the client should see
            writer.transport.abort()
            return False
        if fault == "reset_after":
            writer.transport.abort()
            return False
        if fault == "500_after":
            writer.write(b"HTTP/1.1 500 no\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        elif fault == "truncated":
            writer.write(answer_head + answer[: len(answer) // 2])
            await writer.drain()
            return False
        else:
            writer.write(answer_head + answer)
        await writer.drain()
        return True

    async def _forward(self, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target_port, limit=1 << 26)
        try:
            writer.write(head + body)
            await writer.drain()
            return await _message(reader)
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One request or answer, head and body. Bodies have a length; nobody here sends them in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
        if name.lower() == "transfer-encoding" and "chunked" in value.lower():
            return head, await _chunks(reader)
    return head, await reader.readexactly(length)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    raw = b""
    while True:
        size = await reader.readline()
        part = await reader.readexactly(int(size, 16) + 2)
        raw += size + part
        if int(size, 16) == 0:
            return raw
