"""A proxy before a server that can keep what clients send, let it through later, and lose a reply.

What it keeps lies where bytes lie that a frozen server has not read: the client may have gone long
since, and they take effect all the same once the server goes on.
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
    """One connection: whether its client may send, and whether the server has answered it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    released: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Holding:
    """Forwards connections; see `proxied`.

    Args:
        connect: Opens a connection to the server.

    Attributes:
        sent: What clients have sent last, kept or not, in the order in which it came.
        loses: Whether the next reply is lost, and its connection with it.
    """

    def __init__(self, connect: _Connect) -> None:
        self._connect = connect
        self._open = True
        self.sent = deque[bytes](maxlen=200)
        self.loses = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: list[_Link] = []
        self._held: list[_Link] = []

    def hold(self) -> None:
        """Keep from now on what clients send."""
        self._open = False
        for link in self._links:
            link.released.clear()

    async def release(self) -> None:
        """Let it through; returns once the server has answered all of it.

        One connection goes after the other, in the order in which they were kept: a statement comes
        before the request of its client, on a connection of its own, to cancel it.
        """
        while self._held:
            link = self._held.pop(0)
            link.released.set()
            await link.answered.wait()
        self._open = True

    @property
    def holds(self) -> bool:
        """Whether something is kept."""
        return bool(self._held)

    async def listen(self) -> int:
        """Accept connections; returns the port."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        """Break off every connection, and accept no more."""
        self._listener.close()
        self.break_off()

    def break_off(self) -> None:
        """Break off every connection; clients may connect again."""
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
        for work in (
            self._forward_requests(reader, link),
            self._forward_replies(server_reader, link),
        ):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward_requests(self, client: asyncio.StreamReader, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while (data := await client.read(CHUNK)) and not link.server.is_closing():
                self.sent.append(data)
                if not (self._open or link.released.is_set()):
                    link.answered.clear()
                    self._held.append(link)
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
        """Break off every connection, and wait until it is gone."""
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxied(config: SystemConfig) -> AsyncIterator[tuple[Holding, SystemConfig]]:
    """Put a proxy before a server; yields it, and how to reach the server through it."""
    holding = Holding(_connecting(config))
    reached = replace(config, url=_url(config, await holding.listen()))
    same_server(config.url, reached.url)
    try:
        yield holding, reached
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
