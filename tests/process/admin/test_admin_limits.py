"""Limits of the admin port: the size of bodies, and slow requests, which delay no probe."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from app.admin.application import create_admin_app
from app.http.connections import Connections, PortLimits
from app.http.framework import BODY_LIMIT, SMALL_BODY_LIMIT
from app.service.serving import make_server
from app.telemetry.metrics import Metrics
from tests.faults.caching.http_client import Answer, Connection, read_answer
from tests.faults.conditions import WITHIN_S
from tests.process.service import Service

HEAD = (
    b"PUT /admin/v1/schemas/hostile HTTP/1.1\r\n"
    b"Host: localhost\r\nContent-Type: application/json\r\n"
)


@pytest.fixture
async def admin(mediator: Service) -> AsyncIterator[str]:
    """The admin port, behind the server of the service."""
    app = create_admin_app(mediator.mediator.control, Metrics().registry)
    server = make_server(app, Connections(PortLimits()))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def exchange(address: str, *pieces: bytes) -> Answer:
    """Send pieces, and read the answer, which can precede the last piece."""
    reader, writer = await connect(address)
    with closing(writer):
        async with asyncio.timeout(WITHIN_S):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)
            return await read_answer(reader)


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("PUT /admin/v1/schemas/hostile", BODY_LIMIT),
        ("POST /admin/v1/tenants/x/keys", SMALL_BODY_LIMIT),
    ],
)
async def test_bodies_without_a_declared_length_are_limited(
    admin: str, path: str, limit: int
) -> None:
    head = HEAD.replace(b"PUT /admin/v1/schemas/hostile", path.encode())
    piece = b"%x\r\n" % limit + b"x" * limit + b"\r\n"
    answer = await exchange(
        admin, head, b"Transfer-Encoding: chunked\r\n\r\n", piece, b"1\r\nx\r\n"
    )
    assert answer.status == 413
    assert answer.problem()["limit_bytes"] == limit


async def test_requests_that_never_end_delay_no_probe(admin: str) -> None:
    connections = [await connect(admin) for _ in range(100)]
    request = HEAD + b'Content-Length: 100\r\n\r\n{"classes"'
    for number, (_, writer) in enumerate(connections):
        writer.write(request[: 1 + number % len(request)])
    with closing(Connection(admin)) as probe:
        async with asyncio.timeout(WITHIN_S):
            for _ in range(20):
                assert (await probe.request("GET", "/live")).status == 200
    for _, writer in connections:
        writer.close()
