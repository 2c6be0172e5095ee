"""A port with a recorder behind it, and connections to it, written byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any, Final

import orjson

from app.http.connections import Connections, PortLimits
from app.service.serving import make_server
from mediator.base.periodic_tasks import Scheduler
from tests.faults.caching.http_client import Answer, read_answer

GET: Final = b"GET /a HTTP/1.1\r\nHost: x\r\n"
PUT: Final = b"PUT /a HTTP/1.1\r\nHost: x\r\n"
CHUNKED: Final = PUT + b"Transfer-Encoding: chunked\r\n\r\n"
END: Final = b"\r\n"


class Recorder:
    """An application that records the requests that it received.

    Attributes:
        received: Set by the first request.
        requests: Every request, with its body if that was complete.
        go_on: Until this is set, requests for ``/held`` are not answered.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes | None]] = []
        self.received = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.received.set()
        body = await self._body(receive)
        self.requests.append((scope["method"], scope["path"], body))
        if scope["path"] == "/held":
            await self.go_on.wait()
        names = sorted(name.decode() for name, _ in scope["headers"])
        text = orjson.dumps({"path": scope["path"], "fields": names})
        if scope["path"] == "/large":
            text = b"x" * 2**25
        length = (b"content-length", b"%d" % len(text))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": text})

    @staticmethod
    async def _body(receive: Any) -> bytes | None:
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                return bytes(body)
        return None


class Edge:
    """A port with a recorder behind it."""

    def __init__(self, address: tuple[str, int], app: Recorder) -> None:
        self.address = address
        self.app = app

    def connection(self) -> AbstractAsyncContextManager[Client]:
        return connected(self.address)

    async def exchange(self, raw: bytes) -> list[Answer]:
        """Send bytes over a new connection; return the answers until its end."""
        async with self.connection() as client:
            client.send(raw)
            return await client.answers()


class Client:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def send(self, raw: bytes) -> None:
        self._writer.write(raw)

    async def flood(self, data: bytes, max_writes: int) -> int:
        """Send data repeatedly until the connection ends; return how often."""
        for count in range(max_writes):
            try:
                self._writer.write(data)
                await self._writer.drain()
            except OSError:
                return count
            if self._writer.is_closing():
                return count
        return max_writes

    async def answer(self) -> Answer:
        async with asyncio.timeout(60):
            return await read_answer(self.reader)

    async def answers(self) -> list[Answer]:
        """Read answers until the connection ends."""
        answers: list[Answer] = []
        with contextlib.suppress(EOFError, OSError):
            while True:
                answers.append(await self.answer())
        return answers

    async def closed(self) -> bool:
        """Return whether the connection ends without another byte."""
        async with asyncio.timeout(60):
            try:
                return not await self.reader.read(1)
            except OSError:
                return True


@asynccontextmanager
async def connected(address: tuple[str, int]) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(*address)
    with closing(writer):
        yield Client(reader, writer)


@asynccontextmanager
async def serving(app: Any, port: Connections) -> AsyncIterator[tuple[str, int]]:
    """Serve an application as the service does; yield the address."""
    server = make_server(app, port)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = True
            await task


@asynccontextmanager
async def edge_of(**limits: Any) -> AsyncIterator[Edge]:
    app = Recorder()
    port = Connections(PortLimits(**limits))
    scheduler = Scheduler([port.periodic_task()])
    scheduler.start()
    async with serving(app, port) as address:
        try:
            yield Edge(address, app)
        finally:
            app.go_on.set()
            await scheduler.stop()


async def has_requests(edge: Edge, times: int) -> bool:
    return len(edge.app.requests) >= times
