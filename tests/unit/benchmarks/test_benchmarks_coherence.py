"""The harness of the coherence benchmark: its checker, delay and transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import httpx
import pytest

from app.commands.demo.http1 import render
from benchmarks.harness.delay import delayed
from benchmarks.harness.staleness import Staleness
from benchmarks.harness.wire import Wire
from benchmarks.harness.ycsb import A, drive


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> FakeClock:
    return FakeClock()


def read(staleness: Staleness, count: int) -> None:
    staleness.check("a", staleness.lower_bound("a"), count)


def test_a_read_can_miss_an_acknowledged_write_only_within_delta(time: FakeClock) -> None:
    staleness = Staleness(1.0, time)
    staleness.record("a", 1)
    time.now += 1.0
    read(staleness, 0)
    assert staleness.violations == 0
    time.now += 0.001
    read(staleness, 1)
    assert staleness.violations == 0
    read(staleness, 0)
    assert (staleness.reads, staleness.violations) == (3, 1)


def test_a_read_value_raises_the_lower_bound(time: FakeClock) -> None:
    staleness = Staleness(1.0, time)
    read(staleness, 5)
    time.now += 2.0
    read(staleness, 4)
    assert staleness.violations == 1


def test_a_read_is_checked_against_the_bound_at_its_start(time: FakeClock) -> None:
    staleness = Staleness(1.0, time)
    bound = staleness.lower_bound("a")
    staleness.record("a", 1)
    time.now += 5.0
    staleness.check("a", bound, 0)
    assert staleness.violations == 0
    read(staleness, 0)
    assert staleness.violations == 1


def test_a_late_acknowledgement_of_an_older_write_does_not_lower_the_bound(time: FakeClock) -> None:
    staleness = Staleness(1.0, time)
    staleness.record("a", 7)
    staleness.record("a", 3)
    time.now += 2.0
    read(staleness, 6)
    assert staleness.violations == 1


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-one: a\r\n\r\n{}")
        except asyncio.IncompleteReadError:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield int(server.sockets[0].getsockname()[1])


async def test_the_relay_delays_and_changes_nothing() -> None:
    async with echo() as port:
        with delayed(port, 0.1) as delayed_port:
            transport = Wire("127.0.0.1", delayed_port)
            await transport.send(render("GET", "/"))
            started = monotonic()
            replies = await asyncio.gather(*(transport.send(render("GET", "/")) for _ in range(3)))
            assert monotonic() - started > 0.09
            assert [reply.content for reply in replies] == [b"{}"] * 3
            await transport.aclose()


async def test_the_transport_sends_the_requests_of_httpx() -> None:
    async with echo() as port:
        transport = Wire("127.0.0.1", port)
        async with httpx.AsyncClient(transport=transport) as client:
            for _ in range(2):
                reply = await client.get(f"http://127.0.0.1:{port}/path")
                assert (reply.status_code, reply.headers["x-one"], reply.json()) == (
                    200,
                    "a",
                    {},
                )


class Counter:
    """A counter whose reads lag behind by a number of writes."""

    def __init__(self, lag: int) -> None:
        self._lag = lag
        self._counts: dict[str, int] = {}

    async def read(self, id_: str) -> int:
        return max(0, self._counts.get(id_, 0) - self._lag)

    async def add(self, id_: str) -> int:
        self._counts[id_] = self._counts.get(id_, 0) + 1
        return self._counts[id_]


@pytest.mark.parametrize("lag", [0, 1])
async def test_loops_find_stale_reads(lag: int) -> None:
    staleness = Staleness(0.0)
    tally = await drive([Counter(lag)] * 4, A, ["a", "b", "c"], 500, staleness, 1)
    assert len(tally.latencies) == staleness.reads == 500
    assert 350 < tally.writes < 650
    assert bool(staleness.violations) == bool(lag)
