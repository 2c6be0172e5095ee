"""What the sketch in Redis tells all replicas of reads that it has refused, and what not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from mediator.stores.port import SystemConfig
from sketch.filter.shape import FilterShape
from sketch.memory.server import MemorySketch
from sketch.protocol.keys import key_of_query
from sketch.protocol.port import EndResult, Partition, SketchLimits, SketchUnavailable
from sketch.redis.contention import RedisContention
from sketch.redis.server import RedisSketch
from tests.faults.conditions import eventually
from tests.process.service import unique

PARTITION, NOBODYS = Partition("ne/ws {ü}", "articles"), Partition("nobodys", "class")
A, B, LAST = (f"articles/{letter}#ü" for letter in "abz")
LIMITS, SHAPE = SketchLimits(), FilterShape(bits=8192)
LIFE_S = 30.0


class Heard:
    """A sketch that notes what it is told."""

    def __init__(self, sketch: RedisSketch) -> None:
        self.sketch = sketch
        self.told: list[tuple[Partition, str]] = []

    async def tell(self, partition: Partition, key: str) -> None:
        if partition != NOBODYS:
            self.told.append((partition, key))

    async def hears(self, *keys: str) -> None:
        """Wait until these keys were told, in their order, and no others."""
        await self.refused(LAST)

        async def heard() -> bool:
            return (PARTITION, LAST) in self.told

        await eventually(heard)
        assert self.told == [(PARTITION, key) for key in (*keys, LAST)]

    async def refused(self, *keys: str) -> None:
        assert (await self.sketch.report_read(PARTITION, keys, LIFE_S)).ttl_us == 0


@asynccontextmanager
async def hearing(url: str, namespace: str) -> AsyncIterator[Heard]:
    """Open a sketch that listens already."""
    heard = Heard(RedisSketch(url, LIMITS, SHAPE, namespace, timeout_s=20.0))
    await heard.sketch.create(PARTITION)
    assert (await heard.sketch.begin(PARTITION, [LAST], "last")).lease_cacheable
    listening = asyncio.create_task(heard.sketch.listen(heard.tell))
    await listened_to(url, namespace, 1)
    try:
        yield heard
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await heard.sketch.close()


async def listened_to(url: str, namespace: str, replicas: int) -> None:
    """Wait until so many replicas listen."""
    async with Redis.from_url(url) as redis:

        async def by_all() -> bool:
            told = await redis.publish(f"{{{namespace}:{'/'.join(NOBODYS)}}}:pending", "")
            return bool(told == replicas)

        await eventually(by_all)


@pytest.fixture
async def heard(redis_config: SystemConfig) -> AsyncIterator[Heard]:
    async with hearing(redis_config.url, unique("sketch")) as opened:
        yield opened


async def test_the_first_read_that_a_mark_refuses_is_told(heard: Heard) -> None:
    for key in (A, B):
        assert (await heard.sketch.begin(PARTITION, [key], key)).lease_cacheable
    await heard.refused(B)
    await heard.refused(A, B)
    await heard.refused(A)
    await heard.hears(B, A)


async def test_the_next_mark_of_a_key_is_told_anew(heard: Heard) -> None:
    for token in ("first", "second"):
        await heard.sketch.begin(PARTITION, [A], token)
        await heard.refused(A)
        await heard.sketch.end(PARTITION, token, {})
    await heard.hears(A, A)


async def test_marks_that_do_not_linger_are_not_told_of(heard: Heard) -> None:
    """Where caches may hold the key, its write is ended before it is acknowledged."""
    assert (await heard.sketch.report_read(PARTITION, [A], LIFE_S)).ttl_us
    assert (await heard.sketch.begin(PARTITION, [A], "held")).held == (A,)
    await heard.refused(A)
    await heard.hears()


async def test_the_first_who_asks_for_a_result_is_told_without_a_key(heard: Heard) -> None:
    for title in "abb":
        query = key_of_query("articles", f"title={title}")
        assert (await heard.sketch.report_query(PARTITION, query, LIFE_S)).ttl_us == 0
    await heard.hears("")


async def test_every_replica_of_a_sketch_hears_and_no_other(redis_config: SystemConfig) -> None:
    namespace = unique("sketch")
    async with hearing(redis_config.url, f"{namespace}[1*]?") as heard:
        told: list[str] = []

        async def tell(partition: Partition, key: str) -> None:
            told.append(key)

        async with Redis.from_url(redis_config.url) as redis:
            other = asyncio.create_task(RedisContention(redis, f"{namespace}1?").listen(tell))
            await listened_to(redis_config.url, f"{namespace}1?", 1)
            await heard.sketch.begin(PARTITION, [A], "t")
            await heard.refused(A)
            await heard.hears(A)
            await redis.publish(f"{{{namespace}1?:own/class}}:pending", "own")

            async def own() -> bool:
                return "own" in told

            await eventually(own)
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
        assert told == ["", "own"]


async def test_who_may_not_publish_or_listen_reads_all_the_same(
    redis_config: SystemConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Writers are told at the end, as of what is lost on the way."""
    caplog.set_level(logging.DEBUG, "portolan.coherence")
    name, url = unique("user"), redis_config.url
    async with (
        Redis.from_url(url) as redis,
        Redis.from_url(url, username=name, password="word") as client,
    ):
        admin: Any = redis
        rights = ("on", ">word", "~*", "+@all", "resetchannels")
        await admin.execute_command("ACL", "SETUSER", name, *rights)
        quiet = RedisSketch(client, LIMITS, SHAPE, unique("sketch"), timeout_s=20.0)
        listening = asyncio.create_task(quiet.listen(_nobody))
        await quiet.create(PARTITION)
        await quiet.begin(PARTITION, [A], "t")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(quiet.client, "execute", _fails)
            assert (await quiet.report_read(PARTITION, [A], LIFE_S)).ttl_us == 0
        assert await quiet.end(PARTITION, "t", {}) is EndResult.CONTENDED
        assert (await quiet.report_read(PARTITION, [A], LIFE_S)).ttl_us

        async def tried() -> bool:
            return "not received" in caplog.text

        await eventually(tried)
        assert not listening.done()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await quiet.close()
        await redis.acl_deluser(name)


async def _fails(_calls: object) -> None:
    """Stand for what asks once more after the script has failed."""
    raise SketchUnavailable


async def _nobody(partition: Partition, key: str) -> None:
    raise AssertionError


async def test_a_sketch_in_memory_tells_nothing() -> None:
    await MemorySketch(LIMITS, SHAPE).listen(_nobody)
