"""What the benchmark of coherence measures with: its judge, its relay, its way of sending."""

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


def read(judge: Staleness, count: int) -> None:
    judge.judge("a", judge.due("a"), count)


def test_what_was_acknowledged_may_be_missed_for_delta_and_no_longer(time: Time) -> None:
    judge = Staleness(1.0, time)
    judge.known("a", 1)
    time.now += 1.0
    read(judge, 0)
    assert judge.violations == 0
    time.now += 0.001
    read(judge, 1)
    assert judge.violations == 0
    read(judge, 0)
    assert (judge.reads, judge.violations) == (3, 1)


def test_what_was_seen_counts_as_what_was_acknowledged(time: Time) -> None:
    judge = Staleness(1.0, time)
    read(judge, 5)
    time.now += 2.0
    read(judge, 4)
    assert judge.violations == 1


def test_a_read_is_judged_by_when_it_began(time: Time) -> None:
    judge = Staleness(1.0, time)
    due = judge.due("a")
    judge.known("a", 1)
    time.now += 5.0
    judge.judge("a", due, 0)
    assert judge.violations == 0
    read(judge, 0)
    assert judge.violations == 1


def test_late_news_of_an_older_write_lowers_nothing(time: Time) -> None:
    judge = Staleness(1.0, time)
    judge.known("a", 7)
    judge.known("a", 3)
    time.now += 2.0
    read(judge, 6)
    assert judge.violations == 1


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


async def test_the_relay_takes_its_time_and_changes_nothing() -> None:
    async with echo() as port:
        with delayed(port, 0.1) as behind:
            wire = Wire("127.0.0.1", behind)
            await wire.send(render("GET", "/"))
            begun = monotonic()
            answers = await asyncio.gather(*(wire.send(render("GET", "/")) for _ in range(3)))
            assert monotonic() - begun > 0.09
            assert [a.content for a in answers] == [b"{}"] * 3
            await wire.aclose()


async def test_the_wire_sends_what_httpx_asks_for() -> None:
    async with echo() as port:
        wire = Wire("127.0.0.1", port)
        async with httpx.AsyncClient(transport=wire) as client:
            for _ in range(2):
                answer = await client.get(f"http://127.0.0.1:{port}/path")
                assert (answer.status_code, answer.headers["x-one"], answer.json()) == (
                    200,
                    "a",
                    {},
                )


class Counter:
    """A door behind which a read may be late by some writes."""

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
    judge = Staleness(0.0)
    tally = await drive([Counter(late)] * 4, A, ["a", "b", "c"], 500, judge, 1)
    assert len(tally.latencies) == judge.reads == 500
    assert 350 < tally.writes < 650
    assert bool(judge.violations) == bool(late)
