"""Notifications of refused reads while the sketch's Redis is temporarily unavailable."""

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
SHORT = SketchLimits(max_ttl_s=0.3, margin_s=0.1, lease_s=0.2)


class Listener:
    """A listening sketch, and whether it was notified."""

    def __init__(self, sketch: RedisSketch) -> None:
        self.sketch = sketch
        self.is_notified = False

    async def notify(self, partition: Partition, key: str) -> None:
        assert (partition, key) == (PARTITION, KEY)
        self.is_notified = True

    async def check_notified(self) -> None:
        """Cause refused reads until the sketch is notified of one."""
        self.is_notified = False

        async def is_notified() -> bool:
            await self.sketch.begin(PARTITION, [KEY], "t")
            await self.sketch.report_read(PARTITION, [KEY], 0.1)
            await self.sketch.end(PARTITION, "t", {})
            return self.is_notified

        await eventually(is_notified)


@pytest.fixture
def server() -> Iterator[Server]:
    with running("contention") as server:
        yield server


@pytest.fixture
async def listener(server: Server) -> AsyncIterator[Listener]:
    new_listener = Listener(RedisSketch(server.url, SHORT, FilterShape(bits=8192), timeout_s=20.0))
    listen_task = asyncio.create_task(new_listener.sketch.listen(new_listener.notify))
    yield new_listener
    assert not listen_task.done()
    listen_task.cancel()
    await asyncio.gather(listen_task, return_exceptions=True)
    await new_listener.sketch.close()


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
    call_count, literal = 0, contention.literal

    def count_call(text: str) -> str:
        nonlocal call_count
        call_count += 1
        return literal(text)

    monkeypatch.setattr(contention, "literal", count_call)

    async def has_relistened() -> bool:
        return call_count > 0

    with server.silent():
        await eventually(has_relistened)
    await listener.check_notified()
