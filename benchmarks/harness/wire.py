"""HTTP/1.1 below httpx, as cheap as Python allows: connections are kept and never shared."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, NamedTuple, cast

import httptools
import httpx

__all__ = ["Exchange", "Reply", "Wire"]

_IDLE_S: Final = 1.0
"""Servers close connections that were idle for some seconds (Varnish: 5)."""

RawHeaders = list[tuple[bytes, bytes]]


class Reply(NamedTuple):
    """A server's reply, its body as it was sent."""

    status: int
    headers: RawHeaders
    content: bytes


class Exchange(asyncio.Protocol):
    """A connection that carries one request at a time.

    Attributes:
        usable: Whether it can carry another one.
        used: When it carried the last one, by `monotonic`.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._headers: RawHeaders = []
        self._body = b""
        self.usable = True
        self.used = monotonic()

    async def send(self, request: bytes) -> Reply:
        """Send a request as rendered; return its reply.

        Raises:
            httpx.ReadError: The connection broke.
        """
        assert self._transport is not None
        self._headers, self._body = [], b""
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._reply
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self.usable = self._parser.should_keep_alive()
        self.used = monotonic()
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(Reply(status, self._headers, self._body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or httpx.ReadError("the server closed a connection"))


class Wire(httpx.AsyncBaseTransport):
    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._idle: list[Exchange] = []

    async def send(self, request: bytes) -> Reply:
        """Send a request from `app.commands.demo.http1.render`; return its reply."""
        exchange = await self._take_connection()
        reply = await exchange.send(request)
        if exchange.usable:
            self._idle.append(exchange)
        return reply

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        target = request.url.raw_path
        lines = [b"%s %s HTTP/1.1" % (request.method.encode(), target)]
        lines += [b"%s: %s" % field for field in request.headers.raw]
        reply = await self.send(b"\r\n".join(lines) + b"\r\n\r\n" + await request.aread())
        return httpx.Response(reply.status, headers=reply.headers, content=reply.content)

    async def aclose(self) -> None:
        for exchange in self._idle:
            exchange.close()
        self._idle.clear()

    async def _take_connection(self) -> Exchange:
        while self._idle:
            exchange = self._idle.pop()
            if exchange.usable and monotonic() - exchange.used < _IDLE_S:
                return exchange
            exchange.close()
        loop = asyncio.get_running_loop()
        _, exchange = await loop.create_connection(Exchange, self._host, self._port)
        return exchange
