"""A proxy before a server that can hold back requests, release them later, and lose a reply.

Held bytes are like those that a frozen server has not read: they take effect once released, even if
the client has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import parse_qs, unquote_plus, urlsplit

from mediator.stores.port import SystemConfig
from tests.process.access.examinations import same_server

__all__ = ["Holding", "proxied"]

_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Connect: TypeAlias = Callable[[], Awaitable[_Streams]]

CHUNK = 65_536


@dataclass(eq=False)
class _Link:
    """One connection: whether its requests are released, and whether the server has replied."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    released: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Holding:
    """A forwarding proxy; see `proxied`.

    Args:
        connect: Opens a connection to the server.

    Attributes:
        sent: The last data of clients, held or not, in order of arrival.
        loses: Whether to lose the next reply and close its connection.
    """

    def __init__(self, connect: _Connect) -> None:
        self._connect = connect
        self._open = True
        self.sent = deque[bytes](maxlen=200)
        self.loses = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: list[_Link] = []
        self._blocked: list[_Link] = []

    def hold(self) -> None:
        """Hold back what clients send from now on."""
        self._open = False
        for link in self._links:
            link.released.clear()

    async def release(self) -> None:
        """Forward the held data; return once the server has replied to all of it.

        Connections are released one after the other, in the order in which they were held: a
        statement before its cancel request, which has its own connection.
        """
        while self._blocked:
            link = self._blocked.pop(0)
            link.released.set()
            await link.answered.wait()
        self._open = True

    @property
    def holds(self) -> bool:
        """Whether data is held."""
        return bool(self._blocked)

    async def listen(self) -> int:
        """Start accepting connections; return the port."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        """Abort all connections and accept no more."""
        self._listener.close()
        self.disconnect()

    def disconnect(self) -> None:
        """Abort all connections; clients can reconnect."""
        for link in self._links:
            link.client.transport.abort()
            link.server.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await self._connect()
        except OSError:  # it is down
            writer.close()
            return
        link = _Link(writer, server_writer)
        self._links.append(link)
        for forwarding in (
            self._forward_requests(reader, link),
            self._forward_replies(server_reader, link),
        ):
            task = asyncio.create_task(forwarding)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward_requests(self, client: asyncio.StreamReader, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while (data := await client.read(CHUNK)) and not link.server.is_closing():
                self.sent.append(data)
                if not (self._open or link.released.is_set()):
                    link.answered.clear()
                    self._blocked.append(link)
                    await link.released.wait()
                link.server.write(data)
        with contextlib.suppress(OSError):
            link.server.write_eof()

    async def _forward_replies(self, server: asyncio.StreamReader, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := await server.read(CHUNK):
                link.answered.set()
                if self.loses:
                    self.loses = False
                    break
                if not link.client.is_closing():
                    link.client.write(data)
        link.answered.set()
        link.client.close()
        link.server.close()

    async def close(self) -> None:
        """Abort all connections and wait until they are closed."""
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxied(config: SystemConfig) -> AsyncIterator[tuple[Holding, SystemConfig]]:
    """Put a proxy before a server; yield it and the config that connects through it."""
    holding = Holding(_connecting(config))
    proxied_config = replace(config, url=_url(config, await holding.listen()))
    same_server(config.url, proxied_config.url)
    try:
        yield holding, proxied_config
    finally:
        await holding.close()


def _connecting(config: SystemConfig) -> _Connect:
    parts = urlsplit(config.url)
    if parts.scheme == "unix":
        return lambda: asyncio.open_unix_connection(parts.path)
    path = unquote_plus(parts.netloc)
    if path.startswith("/"):
        return lambda: asyncio.open_unix_connection(path)
    directory = parse_qs(parts.query).get("host", [""])[0]
    if directory.startswith("/"):
        return lambda: asyncio.open_unix_connection(f"{directory}/.s.PGSQL.{parts.port or 5432}")
    return lambda: asyncio.open_connection(parts.hostname, parts.port)


def _url(config: SystemConfig, port: int) -> str:
    parts = urlsplit(config.url)
    user = parts.netloc.rpartition("@")[0]
    address = f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"
    scheme, path = ("redis", "/0") if parts.scheme == "unix" else (parts.scheme, parts.path)
    return f"{scheme}://{address}{path}"
