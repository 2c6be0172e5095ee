"""A proxy before a service that forwards requests and loses some responses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.faults.caching.http_client import Answer, Connection, Unanswered, Unreachable

__all__ = ["Losing", "losing"]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


async def _ignore() -> None:
    pass


@dataclass
class Losing:
    """See `losing`.

    Attributes:
        url: The proxy's address.
        bodies: The request bodies of clients.
    """

    service: str
    losses: int
    on_loss: Callable[[], Awaitable[None]]
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward the requests of one connection until a response is lost."""
        async with Connection(self.service) as connection:
            while head := await _read_head(reader):
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                self.bodies.append(body)
                try:
                    response = await connection.send(head + body)
                except (Unreachable, Unanswered):
                    break
                if self.losses:
                    self.losses -= 1
                    writer.close()
                    await self.on_loss()
                    return
                writer.write(_render(response))
        writer.close()


@asynccontextmanager
async def losing(
    service: str, losses: int, on_loss: Callable[[], Awaitable[None]] = _ignore
) -> AsyncIterator[Losing]:
    """Start a proxy.

    Args:
        service: The address of the service.
        losses: How many responses to lose, from the first one on.
        on_loss: Called after each lost response.
    """
    proxy = Losing(service, losses, on_loss)
    async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """Return the head of the next request; empty if the client has gone."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (OSError, EOFError):
        return b""


def _render(response: Answer) -> bytes:
    type_ = response.headers.get("content-type", "text/plain")
    head = f"HTTP/1.1 {response.status} OK\r\ncontent-type: {type_}\r\n"
    return f"{head}content-length: {len(response.body)}\r\n\r\n".encode() + response.body
