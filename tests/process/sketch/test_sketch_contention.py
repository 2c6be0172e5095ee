"""Which of the reads that it refuses the sketch in Redis publishes to all replicas."""

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

    async def wait_for(self, *keys: str) -> None:
        """Wait until exactly these keys were received, in order."""
        await self.read_refused(LAST)

        async def is_observed() -> bool:
            return (PARTITION, LAST) in self.events

        await eventually(is_observed)
        assert self.events == [(PARTITION, key) for key in (*keys, LAST)]

    async def read_refused(self, *keys: str) -> None:
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
    """Wait until this many replicas listen."""
    async with Redis.from_url(url) as redis:

        async def all_listen() -> bool:
            receivers = await redis.publish(f"{{{namespace}:{'/'.join(UNUSED)}}}:pending", "")
            return bool(receivers == replicas)

        await eventually(all_listen)


@pytest.fixture
async def observer(redis_config: SystemConfig) -> AsyncIterator[Observer]:
    async with observing(redis_config.url, unique("sketch")) as opened:
        yield opened


async def test_the_first_read_that_a_pending_write_refuses_is_published(observer: Observer) -> None:
    for key in (A, B):
        assert (await observer.sketch.begin(PARTITION, [key], key)).lease_cacheable
    await observer.read_refused(B)
    await observer.read_refused(A, B)
    await observer.read_refused(A)
    await observer.wait_for(B, A)


async def test_the_next_pending_write_of_a_key_is_published_again(observer: Observer) -> None:
    for token in ("first", "second"):
        await observer.sketch.begin(PARTITION, [A], token)
        await observer.read_refused(A)
        await observer.sketch.end(PARTITION, token, {})
    await observer.wait_for(A, A)


async def test_writes_without_a_cached_lease_are_not_published(observer: Observer) -> None:
    """If caches may hold the key, its write is ended before it is acknowledged."""
    assert (await observer.sketch.report_read(PARTITION, [A], TTL_S)).ttl_us
    assert (await observer.sketch.begin(PARTITION, [A], "held")).held == (A,)
    await observer.read_refused(A)
    await observer.wait_for()


async def test_the_first_request_for_a_result_is_published_without_a_key(
    observer: Observer,
) -> None:
    for title in "abb":
        query = key_of_query("articles", f"title={title}")
        assert (await observer.sketch.report_query(PARTITION, query, TTL_S)).ttl_us == 0
    await observer.wait_for("")


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
            await observer.read_refused(A)
            await observer.wait_for(A)
            await redis.publish(f"{{{namespace}1?:own/class}}:pending", "own")

            async def is_received() -> bool:
                return "own" in events

            await eventually(is_received)
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
        assert events == ["", "own"]


async def test_reads_work_without_rights_to_publish_and_subscribe(
    redis_config: SystemConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Writers are notified at their end, as after the loss of a notification."""
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
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quiet.client, "execute", _fail)
            assert (await quiet.report_read(PARTITION, [A], TTL_S)).ttl_us == 0
        assert await quiet.end(PARTITION, "t", {}) is EndResult.CONTENDED
        assert (await quiet.report_read(PARTITION, [A], TTL_S)).ttl_us

        async def has_tried() -> bool:
            return "not received" in caplog.text

        await eventually(has_tried)
        assert not listening.done()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await quiet.close()
        await redis.acl_deluser(name)


async def _fail(_calls: object) -> None:
    """Stand for the retry after a failure of the script."""
    raise SketchUnavailable


async def _not_notified(partition: Partition, key: str) -> None:
    raise AssertionError


async def test_a_sketch_in_memory_publishes_nothing() -> None:
    await MemorySketch(LIMITS, SHAPE).listen(_not_notified)
