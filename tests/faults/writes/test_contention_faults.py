"""Hearing of refused reads, when the sketch's Redis is gone for a while."""

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
    """A sketch that listens, and whether it was told lately."""

    def __init__(self, sketch: RedisSketch) -> None:
        self.sketch = sketch
        self.told = False

    async def tell(self, partition: Partition, key: str) -> None:
        assert (partition, key) == (PARTITION, KEY)
        self.told = True

    async def hears(self) -> None:
        """Have reads refused until one is heard of."""
        self.told = False

        async def heard() -> bool:
            await self.sketch.begin(PARTITION, [KEY], "t")
            await self.sketch.report_read(PARTITION, [KEY], 0.1)
            await self.sketch.end(PARTITION, "t", {})
            return self.told

        await eventually(heard)


@pytest.fixture
def server() -> Iterator[Server]:
    with running("wanted") as server:
        yield server


@pytest.fixture
async def listener(server: Server) -> AsyncIterator[Listener]:
    made = Listener(RedisSketch(server.url, SHORT, FilterShape(bits=8192), timeout_s=20.0))
    listening = asyncio.create_task(made.sketch.listen(made.tell))
    yield made
    assert not listening.done()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await made.sketch.close()


async def test_who_listens_does_so_again_after_a_restart(
    server: Server, listener: Listener
) -> None:
    await listener.hears()
    server.kill()
    server.start()
    await listener.hears()


async def test_a_server_that_does_not_even_say_that_it_is_there_is_left(
    server: Server, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "QUIET_S", 0.2)
    await listener.hears()
    times, literal = 0, contention.literal

    def noted(text: str) -> str:
        nonlocal times
        times += 1
        return literal(text)

    monkeypatch.setattr(contention, "literal", noted)

    async def listens_anew() -> bool:
        return times > 0

    with server.silent():
        await eventually(listens_anew)
    await listener.hears()
