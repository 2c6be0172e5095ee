"""A gateway before a service, which cuts connections and answers in place of the service."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

__all__ = ["Gateway", "gateway", "refusal"]

CHUNK = 65_536


class Gateway:
    """Forwards connections; see `gateway`.

    Attributes:
        url: Its address.
        refusals: What it answers by itself next, each on a connection of its own.
    """

    def __init__(self, service: str) -> None:
        self._service = urlsplit(service)
        self._open: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.refusals: deque[bytes] = deque()

    def cut(self) -> None:
        """Break off every connection, those to the service too."""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, or forward a connection."""
        with contextlib.suppress(OSError, EOFError):
            if self.refusals:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self.refusals.popleft())
            else:
                at = self._service
                server = await asyncio.open_connection(at.hostname, at.port)
                await asyncio.gather(
                    self._forward(reader, server[1]), self._forward(server[0], writer)
                )
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()
        except OSError:  # it was cut
            pass
        finally:
            self._open.discard(writer)
            writer.close()


@contextlib.asynccontextmanager
async def gateway(service: str) -> AsyncIterator[Gateway]:
    """Put a gateway before the service at an address."""
    opened = Gateway(service)
    async with await asyncio.start_server(opened.serve, "127.0.0.1", 0) as server:
        opened.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield opened
        opened.cut()


def refusal(status: int, body: bytes = b"<html>", *fields: str) -> bytes:
    """Return a response after which the gateway ends the connection."""
    head = (f"HTTP/1.1 {status} Bad", "Connection: close", f"Content-Length: {len(body)}", *fields)
    return "\r\n".join((*head, "", "")).encode() + body
