"""A gateway before a service; it cuts connections and answers in place of the service."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

__all__ = ["Gateway", "refusal", "run_gateway"]

CHUNK = 65_536


class Gateway:
    """Forwards connections; see `run_gateway`.

    Attributes:
        url: Its address.
        refusals: Its own next answers, each on a separate connection.
    """

    def __init__(self, service: str) -> None:
        self._service = urlsplit(service)
        self._open: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.refusals: deque[bytes] = deque()

    def cut(self) -> None:
        """Abort all connections, including those to the service."""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, or forward a connection."""
        with contextlib.suppress(OSError, EOFError):
            if self.refusals:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self.refusals.popleft())
            else:
                address = self._service
                server = await asyncio.open_connection(address.hostname, address.port)
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
        except OSError:  # the connection was cut
            pass
        finally:
            self._open.discard(writer)
            writer.close()


@contextlib.asynccontextmanager
async def run_gateway(service: str) -> AsyncIterator[Gateway]:
    """Put a gateway before the service at an address."""
    gateway = Gateway(service)
    async with await asyncio.start_server(gateway.serve, "127.0.0.1", 0) as server:
        gateway.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield gateway
        gateway.cut()


def refusal(status: int, body: bytes = b"<html>", *fields: str) -> bytes:
    """Return a response after which the gateway ends the connection."""
    head = (f"HTTP/1.1 {status} Bad", "Connection: close", f"Content-Length: {len(body)}", *fields)
    return "\r\n".join((*head, "", "")).encode() + body
