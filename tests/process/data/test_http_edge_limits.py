"""Limits of connections to a port: their timeouts and their number."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial

import pytest

from app.http.connections import Connections, PortLimits
from tests.faults.caching.http_client import Unanswered
from tests.faults.conditions import eventually
from tests.process.caching.guarded import Guarded, bearer
from tests.process.data.http_edge import (
    CHUNKED,
    END,
    GET,
    PUT,
    Client,
    Edge,
    connected,
    edge_of,
    has_requests,
    serving,
)


@pytest.mark.parametrize("start", [b"", b"\r\n", b"GET", GET, GET + b"A: "])
async def test_a_slow_head_is_refused_at_its_deadline(start: bytes) -> None:
    async with edge_of(head=1) as edge, edge.connection() as client:
        client.send(start)
        if start.strip():
            answer = await client.answer()
            assert answer.status == 408
            assert answer.problem()["type"] == "/problems/request-timeout"
            assert answer.headers["connection"] == "close"
        assert await client.closed()
        assert edge.app.requests == []


@pytest.mark.parametrize(
    "start", [PUT + b"Content-Length: 9\r\n\r\nx", CHUNKED, CHUNKED + b"1\r\nx\r\n0\r\nA:"]
)
async def test_a_slow_body_is_refused_at_its_deadline(start: bytes) -> None:
    async with edge_of(body=1) as edge, edge.connection() as client:
        client.send(start)
        assert (await client.answer()).status == 408
        assert await client.closed()
        await eventually(partial(has_requests, edge, 1))
        assert edge.app.requests == [("PUT", "/a", None)], "the handler sees the disconnect"


async def test_single_bytes_are_not_progress() -> None:
    """A byte now and then does not extend the deadline of a body."""
    async with edge_of(body=1) as edge, edge.connection() as client:
        client.send(PUT + b"Content-Length: 1000000\r\n\r\n")
        drip = asyncio.create_task(_drip(client))
        assert (await client.answer()).status == 408
        drip.cancel()


async def _drip(client: Client, data: bytes = b"x") -> None:
    while True:
        client.send(data)
        await asyncio.sleep(0.2)


async def test_an_idle_connection_is_closed() -> None:
    """This includes one that keeps sending empty lines, which start no request."""
    async with edge_of(idle=1) as edge, edge.connection() as client, edge.connection() as other:
        for idle in (client, other):
            idle.send(GET + END)
            assert (await idle.answer()).status == 200
        drip = asyncio.create_task(_drip(other, b"\r\n"))
        assert await client.closed()
        assert await other.closed()
        drip.cancel()


async def test_a_client_that_waits_for_a_response_is_not_timed_out() -> None:
    async with edge_of(head=1) as edge, edge.connection() as client:
        client.send(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        await edge.app.received.wait()
        async with edge.connection() as other:
            assert await other.closed(), "other connections are swept meanwhile"
        edge.app.go_on.set()
        assert (await client.answer()).json()["path"] == "/held"


async def test_a_response_that_nobody_reads_is_abandoned() -> None:
    async with edge_of(response=1, connections=1) as edge, edge.connection() as client:
        client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await edge.app.received.wait()
        await eventually(partial(_has_capacity, edge))
        with pytest.raises((EOFError, OSError)):
            await client.answer()


@pytest.mark.parametrize("limits", [{"connections": 2}, {"per_peer": 2}])
async def test_the_number_of_connections_is_limited(limits: dict[str, int]) -> None:
    async with edge_of(**limits) as edge, edge.connection() as first:
        async with edge.connection() as second:
            for client in (first, second):
                client.send(GET + END)
                assert (await client.answer()).status == 200
            async with edge.connection() as third:
                answer = await third.answer()
                assert answer.status == 503
                assert answer.problem()["type"] == "/problems/too-many-connections"
                assert answer.headers["retry-after"] == "1"
            first.send(GET + END)
            assert (await first.answer()).status == 200
        await eventually(partial(_has_capacity, edge))


async def _has_capacity(edge: Edge) -> bool:
    """Return whether the port accepts a connection."""
    async with edge.connection() as client:
        client.send(GET + END)
        with contextlib.suppress(Unanswered, EOFError, OSError):
            return (await client.answer()).status == 200
        return False


async def test_a_key_in_a_trailer_is_ignored(running: Guarded) -> None:
    headers = await running.headers("operator", "write")
    path = f"/v1/{running.database}/secrets/smuggled"
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
    trailer = f"0\r\nAuthorization: {headers['authorization']}\r\n\r\n".encode()
    port = Connections(PortLimits())
    async with serving(running.container.data, port) as address, connected(address) as client:
        client.send(head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n" + trailer)
        assert (await client.answer()).status == 401
    assert (await running.data.get(path, headers=headers)).status_code == 404


async def test_a_hanging_body_releases_its_slot_of_the_tenant(running: Guarded) -> None:
    """The only permitted request of a tenant never ends, but does not shut the tenant out."""
    operator = await running.headers("operator", "admin")
    tenant = f"/admin/v1/tenants/{running.owner}"
    limited = await running.admin.put(tenant, json={"limits": {"in_flight": 1}}, headers=operator)
    assert limited.status_code in {200, 201}, limited.text
    write_key = bearer(await running.key("write"))
    path = f"/v1/{running.database}/secrets/there"
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {write_key['authorization']}\r\n"
    length = "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    port = Connections(PortLimits(body=1))
    async with serving(running.container.data, port) as address, connected(address) as client:
        client.send(f"{head}{length}".encode())
        assert (await client.answer()).status == 100, "it is under way"
        assert await _status(running, path, write_key) == 429
        for _ in range(2):
            port.sweep()
        assert (await client.answer()).status == 408
        assert await _status(running, path, write_key) == 200


async def _status(running: Guarded, path: str, headers: Mapping[str, str]) -> int:
    return (await running.data.get(path, headers=headers)).status_code
