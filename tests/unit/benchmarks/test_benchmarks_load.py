"""The load generator, against a small server that records its requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import render
from app.commands.demo.load import LoadLane, LoadPlan, LoadProcess, LoadResult

REPLY = b"HTTP/1.1 %d Whatever\r\ncontent-length: 2\r\n\r\n{}"
RUN_S = 1.5
"""Long enough for more than one reply, even on a machine that stalls for a while."""
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Server:
    """Replies to requests according to their target, and records them."""

    def __init__(self) -> None:
        self.targets: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = head.split()[1]
                if b"Content-Length: 3" in head:
                    assert await reader.readexactly(3) == b"abc"
                self.targets.append(target)
                if target == b"/gone":
                    return
                writer.write(NO_CONTENT if target == b"/204" else REPLY % int(target[1:]))
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listener:
        server.port = listener.sockets[0].getsockname()[1]
        yield server


async def drive(
    load: LoadProcess, server: Server, *lanes: LoadLane, seconds: float = 0.2
) -> list[LoadResult]:
    return await load.drive(LoadPlan("127.0.0.1", server.port, lanes, seconds, warm_s=0.05))


async def test_every_request_gets_a_counted_reply() -> None:
    requests = [render("PATCH", "/200", b"abc"), render("GET", "/204")]
    async with LoadProcess() as load, serving() as server:
        lanes = LoadLane(requests, 3, operations=10), LoadLane([render("GET", "/201")])
        first, second = await drive(load, server, *lanes, seconds=RUN_S)
        assert server.connections == 4
        reply_count = server.targets.count(b"/200") + server.targets.count(b"/204")
        assert first.acknowledged == reply_count * 10
        assert second.acknowledged == server.targets.count(b"/201")
        assert 0 < len(first.latencies) < reply_count
        assert first.rate == pytest.approx(len(first.latencies) * 10 / RUN_S)
        assert list(first.latencies) == sorted(first.latencies)
        assert 0 < first.percentile(0.5) <= first.percentile(0.99) <= first.latencies[-1]


async def test_the_configured_rate_is_kept() -> None:
    async with LoadProcess() as load, serving() as server:
        (tally,) = await drive(load, server, LoadLane([render("GET", "/200")], 1, every_s=0.05))
        assert tally.acknowledged == len(server.targets) <= 7


async def test_refusals_and_lost_connections_fail() -> None:
    async with LoadProcess() as load, serving() as server:
        lane = LoadLane([render("GET", "/200"), render("GET", "/503")])
        with pytest.raises(Failed, match="times 503"):
            await drive(load, server, lane, seconds=RUN_S)
        with pytest.raises(ConnectionError):
            await drive(load, server, LoadLane([render("GET", "/gone")]))


async def test_a_reply_whose_body_reports_an_error_fails_with_any_status() -> None:
    async with LoadProcess() as load, serving() as server:
        requests = [render("GET", "/200")]
        (result,) = await drive(load, server, LoadLane(requests, error=b'"errors":['))
        assert result.acknowledged
        with pytest.raises(Failed, match="times 200"):
            await drive(load, server, LoadLane(requests, error=b"{}"))


def test_a_request_is_rendered() -> None:
    assert render("PUT", "/x?y=1", b"abc", {"Prefer": "z"}) == (
        b"PUT /x?y=1 HTTP/1.1\r\nHost: localhost\r\nPrefer: z\r\nContent-Length: 3\r\n\r\nabc"
    )
