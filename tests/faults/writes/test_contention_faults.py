"""Notifications of refused reads, when the sketch's Redis is unavailable for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from sketch.filter.shape import FilterShape
from sketch.protocol.port import Partition, SketchLimits
from sketch.redis import contention
from sketch.redis.server import RedisSketch
from tests.faults.caching.redis_server import Server, running
from tests.faults.conditions import eventually

PARTITION = Partition("news", "articles")
KEY = "articles/1#text"
SHORT = SketchLimits(longest_ttl_s=0.3, margin_s=0.1, lease_s=0.2)


class Listener:
    """A sketch that listens, and whether it was notified lately."""

    def __init__(self, sketch: RedisSketch) -> None:
        self.sketch = sketch
        self.notified = False

    async def notify(self, partition: Partition, key: str) -> None:
        assert (partition, key) == (PARTITION, KEY)
        self.notified = True

    async def check_notified(self) -> None:
        """Have reads refused until the sketch is notified of one."""
        self.notified = False

        async def notified() -> bool:
            await self.sketch.begin(PARTITION, [KEY], "t")
            await self.sketch.report_read(PARTITION, [KEY], 0.1)
            await self.sketch.end(PARTITION, "t", {})
            return self.notified

        await eventually(notified)


@pytest.fixture
def server() -> Iterator[Server]:
    with running("wanted") as server:
        yield server


@pytest.fixture
async def listener(server: Server) -> AsyncIterator[Listener]:
    created = Listener(RedisSketch(server.url, SHORT, FilterShape(bits=8192), timeout_s=20.0))
    listening = asyncio.create_task(created.sketch.listen(created.notify))
    yield created
    assert not listening.done()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await created.sketch.close()


async def test_a_listener_reconnects_after_a_restart(server: Server, listener: Listener) -> None:
    await listener.check_notified()
    server.kill()
    server.start()
    await listener.check_notified()


async def test_a_listener_reconnects_when_the_server_is_silent(
    server: Server, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "QUIET_S", 0.2)
    await listener.check_notified()
    times, literal = 0, contention.literal

    def counted(text: str) -> str:
        nonlocal times
        times += 1
        return literal(text)

    monkeypatch.setattr(contention, "literal", counted)

    async def listens_again() -> bool:
        return times > 0

    with server.silent():
        await eventually(listens_again)
    await listener.check_notified()
