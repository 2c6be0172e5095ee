"""The steps of a service from SIGTERM to its end; see `app.service.draining`."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from typing import Self

import pytest

from app.service.draining import stop_accepting
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection, Unreachable, read_answer
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.operation.late_requests import finish_late
from tests.process.service import scratch_catalogue, scratch_systems, unique

CLASSES = {"counts": {"fields": {"n": {"type": "integer", "default": 0}}}}
HALF = b"PUT %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n"


@pytest.fixture
async def service(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> AsyncIterator[Service]:
    """A service that drains until a second signal."""
    async with (
        scratch_systems(redis_config, postgresql_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        _patient(
            Service.on(
                configs,
                url,
                redis_config.url,
                drain_s="600",
                body_timeout_s="120",
                relays="here",
            )
        ).running() as instance,
    ):
        yield instance


def _patient(service: Service) -> Service:
    """Let the service wait for requests under way, however slowly a test sends one."""
    service.prepare = finish_late
    return service


async def probe(service: Service, path: str) -> int:
    with closing(Connection(service.admin)) as admin:
        return (await admin.request("GET", path)).status


async def answers(service: Service, path: str, status: int) -> bool:
    return await probe(service, path) == status


async def test_a_draining_service_reports_not_ready_and_finishes_requests(service: Service) -> None:
    database = unique("db")
    await service.put_schema(database, CLASSES)
    path = f"/v1/{database}/counts/a"
    for name in ("/startup", "/live", "/ready"):
        await eventually(partial(answers, service, name, 200))
    port = int(service.data.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HALF % path.encode())
    with closing(Connection(service.data)) as used, closing(Connection(service.data)) as unused:
        assert (await used.request("GET", path)).headers.get("connection") != "close"
        service.send(signal.SIGTERM)
        await eventually(partial(answers, service, "/ready", 503))
        assert await probe(service, "/startup") == 200, "startup stays complete"
        assert await probe(service, "/live") == 200, "the orchestrator must not kill it now"
        assert (await used.request("GET", path)).headers["connection"] == "close"
        assert (await unused.request("GET", path)).headers["connection"] == "close"
    async with Stream(port, f"/v1/{database}/changes") as changes:
        service.send(signal.SIGTERM)
        await changes.ended()
        await eventually(partial(_refuses_connections, service))
        assert await probe(service, "/live") == 200, "probes are answered to the end"
    writer.write(b'{"n":7}')
    assert (await read_answer(reader, "PUT")).status == 201
    writer.close()
    assert await service.ended() == 0


async def test_sigint_ends_the_service_at_once(service: Service) -> None:
    service.send(signal.SIGINT)
    assert await service.ended() == 0


async def test_connections_that_wait_at_the_listener_are_served_before_it_closes() -> None:
    served: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        served.append(writer)

    listener = socket.create_server(("127.0.0.1", 0))
    server = await asyncio.start_server(serve, sock=listener)
    # Nothing is awaited here: the kernel accepts these connections before the loop does.
    clients = [socket.create_connection(listener.getsockname()) for _ in range(20)]
    for client in clients:
        client.sendall(b"x")
    await stop_accepting(listener)
    with pytest.raises(TimeoutError):  # nothing is awaited here, either
        socket.create_connection(listener.getsockname(), 0.2)
    server.close()
    for client in clients:
        assert await asyncio.to_thread(client.recv, 1) == b"x"
        client.close()
    for writer in served:
        writer.close()


async def _refuses_connections(service: Service) -> bool:
    with closing(Connection(service.data)) as http:
        try:
            await http.request("GET", "/v1/")
        except Unreachable:
            return True
    return False


class Stream:
    """A client of a change feed."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._request = (
            f"GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n".encode()
        )

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(self._request)
        assert b" 200 " in await self._reader.readline()
        return self

    async def ended(self) -> None:
        """Wait for the last chunk, the proper end of the feed."""
        async with asyncio.timeout(60):
            assert (await self._reader.read()).endswith(b"0\r\n\r\n")

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
