"""Which reads that it has refused the sketch in Redis publishes to all replicas, and which not."""

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

PARTITION, UNUSED = Partition("ne/ws {ü}", "articles"), Partition("nobodys", "class")
A, B, LAST = (f"articles/{letter}#ü" for letter in "abz")
LIMITS, SHAPE = SketchLimits(), FilterShape(bits=8192)
TTL_S = 30.0


class Observer:
    """A sketch that records its notifications of contention."""

    def __init__(self, sketch: RedisSketch) -> None:
        self.sketch = sketch
        self.events: list[tuple[Partition, str]] = []

    async def on_event(self, partition: Partition, key: str) -> None:
        if partition != UNUSED:
            self.events.append((partition, key))

    async def observes(self, *keys: str) -> None:
        """Wait until these keys were received, in their order, and no others."""
        await self.refused(LAST)

        async def is_observed() -> bool:
            return (PARTITION, LAST) in self.events

        await eventually(is_observed)
        assert self.events == [(PARTITION, key) for key in (*keys, LAST)]

    async def refused(self, *keys: str) -> None:
        assert (await self.sketch.report_read(PARTITION, keys, TTL_S)).ttl_us == 0


@asynccontextmanager
async def observing(url: str, namespace: str) -> AsyncIterator[Observer]:
    """Open a sketch that listens already."""
    observer = Observer(RedisSketch(url, LIMITS, SHAPE, namespace, timeout_s=20.0))
    await observer.sketch.create(PARTITION)
    assert (await observer.sketch.begin(PARTITION, [LAST], "last")).lease_cacheable
    listening = asyncio.create_task(observer.sketch.listen(observer.on_event))
    await wait_for_listeners(url, namespace, 1)
    try:
        yield observer
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await observer.sketch.close()


async def wait_for_listeners(url: str, namespace: str, replicas: int) -> None:
    """Wait until so many replicas listen."""
    async with Redis.from_url(url) as redis:

        async def by_all() -> bool:
            received = await redis.publish(f"{{{namespace}:{'/'.join(UNUSED)}}}:pending", "")
            return bool(received == replicas)

        await eventually(by_all)


@pytest.fixture
async def observer(redis_config: SystemConfig) -> AsyncIterator[Observer]:
    async with observing(redis_config.url, unique("sketch")) as opened:
        yield opened


async def test_the_first_read_that_a_pending_write_refuses_is_published(observer: Observer) -> None:
    for key in (A, B):
        assert (await observer.sketch.begin(PARTITION, [key], key)).lease_cacheable
    await observer.refused(B)
    await observer.refused(A, B)
    await observer.refused(A)
    await observer.observes(B, A)


async def test_the_next_pending_write_of_a_key_is_published_anew(observer: Observer) -> None:
    for token in ("first", "second"):
        await observer.sketch.begin(PARTITION, [A], token)
        await observer.refused(A)
        await observer.sketch.end(PARTITION, token, {})
    await observer.observes(A, A)


async def test_writes_without_a_cached_lease_are_not_published(observer: Observer) -> None:
    """Where caches may hold the key, its write is ended before it is acknowledged."""
    assert (await observer.sketch.report_read(PARTITION, [A], TTL_S)).ttl_us
    assert (await observer.sketch.begin(PARTITION, [A], "held")).held == (A,)
    await observer.refused(A)
    await observer.observes()


async def test_the_first_request_for_a_result_is_published_without_a_key(
    observer: Observer,
) -> None:
    for title in "abb":
        query = key_of_query("articles", f"title={title}")
        assert (await observer.sketch.report_query(PARTITION, query, TTL_S)).ttl_us == 0
    await observer.observes("")


async def test_every_replica_of_a_sketch_is_notified_and_no_other(
    redis_config: SystemConfig,
) -> None:
    namespace = unique("sketch")
    async with observing(redis_config.url, f"{namespace}[1*]?") as observer:
        events: list[str] = []

        async def on_event(partition: Partition, key: str) -> None:
            events.append(key)

        async with Redis.from_url(redis_config.url) as redis:
            other = asyncio.create_task(RedisContention(redis, f"{namespace}1?").listen(on_event))
            await wait_for_listeners(redis_config.url, f"{namespace}1?", 1)
            await observer.sketch.begin(PARTITION, [A], "t")
            await observer.refused(A)
            await observer.observes(A)
            await redis.publish(f"{{{namespace}1?:own/class}}:pending", "own")

            async def own() -> bool:
                return "own" in events

            await eventually(own)
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
        assert events == ["", "own"]


async def test_reads_work_without_rights_to_publish_and_subscribe(
    redis_config: SystemConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Writers are notified at the end, as of what is lost on the way."""
    caplog.set_level(logging.DEBUG, "portolan.coherence")
    name, url = unique("user"), redis_config.url
    as_user = url.replace("://", f"://{name}:word@", 1)
    async with Redis.from_url(url) as redis:
        admin: Any = redis
        rights = ("on", ">word", "~*", "+@all", "resetchannels")
        await admin.execute_command("ACL", "SETUSER", name, *rights)
        quiet = RedisSketch(as_user, LIMITS, SHAPE, unique("sketch"), timeout_s=20.0)
        listening = asyncio.create_task(quiet.listen(_not_notified))
        await quiet.create(PARTITION)
        await quiet.begin(PARTITION, [A], "t")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(quiet.client, "execute", _fails)
            assert (await quiet.report_read(PARTITION, [A], TTL_S)).ttl_us == 0
        assert await quiet.end(PARTITION, "t", {}) is EndResult.CONTENDED
        assert (await quiet.report_read(PARTITION, [A], TTL_S)).ttl_us

        async def tried() -> bool:
            return "not received" in caplog.text

        await eventually(tried)
        assert not listening.done()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await quiet.close()
        await redis.acl_deluser(name)


async def _fails(_calls: object) -> None:
    """Stand for what sends once more after the script has failed."""
    raise SketchUnavailable


async def _not_notified(partition: Partition, key: str) -> None:
    raise AssertionError


async def test_a_sketch_in_memory_publishes_nothing() -> None:
    await MemorySketch(LIMITS, SHAPE).listen(_not_notified)
