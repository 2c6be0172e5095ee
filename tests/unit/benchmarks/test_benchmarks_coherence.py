"""The instruments of the benchmark of coherence: its checker, its delay, its transport."""

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


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def read(staleness: Staleness, count: int) -> None:
    staleness.check("a", staleness.lower_bound("a"), count)


def test_a_read_may_miss_an_acknowledged_write_for_delta_only(time: Time) -> None:
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


def test_a_value_that_was_read_counts_as_known(time: Time) -> None:
    staleness = Staleness(1.0, time)
    read(staleness, 5)
    time.now += 2.0
    read(staleness, 4)
    assert staleness.violations == 1


def test_a_read_is_checked_by_when_it_began(time: Time) -> None:
    staleness = Staleness(1.0, time)
    bound = staleness.lower_bound("a")
    staleness.record("a", 1)
    time.now += 5.0
    staleness.check("a", bound, 0)
    assert staleness.violations == 0
    read(staleness, 0)
    assert staleness.violations == 1


def test_a_late_acknowledgement_of_an_older_write_lowers_nothing(time: Time) -> None:
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
        with delayed(port, 0.1) as behind:
            transport = Wire("127.0.0.1", behind)
            await transport.send(render("GET", "/"))
            started = monotonic()
            answers = await asyncio.gather(*(transport.send(render("GET", "/")) for _ in range(3)))
            assert monotonic() - started > 0.09
            assert [a.content for a in answers] == [b"{}"] * 3
            await transport.aclose()


async def test_the_transport_sends_the_requests_of_httpx() -> None:
    async with echo() as port:
        transport = Wire("127.0.0.1", port)
        async with httpx.AsyncClient(transport=transport) as client:
            for _ in range(2):
                answer = await client.get(f"http://127.0.0.1:{port}/path")
                assert (answer.status_code, answer.headers["x-one"], answer.json()) == (
                    200,
                    "a",
                    {},
                )


class Counter:
    """A counter whose reads may be late by some writes."""

    def __init__(self, late: int) -> None:
        self._late = late
        self._counts: dict[str, int] = {}

    async def read(self, id_: str) -> int:
        return max(0, self._counts.get(id_, 0) - self._late)

    async def add(self, id_: str) -> int:
        self._counts[id_] = self._counts.get(id_, 0) + 1
        return self._counts[id_]


@pytest.mark.parametrize("late", [0, 1])
async def test_loops_find_reads_that_are_late(late: int) -> None:
    staleness = Staleness(0.0)
    tally = await drive([Counter(late)] * 4, A, ["a", "b", "c"], 500, staleness, 1)
    assert len(tally.latencies) == staleness.reads == 500
    assert 350 < tally.writes < 650
    assert bool(staleness.violations) == bool(late)
