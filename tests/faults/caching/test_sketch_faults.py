"""The sketch in Redis when its server, data or a client is lost during operations."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from mediator.stores.port import SystemConfig
from sketch.filter.shape import FilterShape
from sketch.protocol.port import FilterSnapshot, Partition, SketchLimits, SketchUnavailable
from sketch.redis.server import RedisSketch
from tests.faults.caching.redis_server import Server, running
from tests.faults.conditions import eventually
from tests.process.sketch.sketches import has

PARTITION = Partition("news", "articles")
A, B = "articles/1#text", "articles/2#text"
LONG = SketchLimits(max_ttl_s=600.0, lease_s=30.0)
SHORT = SketchLimits(max_ttl_s=0.3, margin_s=0.1, lease_s=0.2)
SHAPE = FilterShape(bits=8192)


@pytest.fixture
def server() -> Iterator[Server]:
    with running("sketch") as server:
        yield server


@pytest.fixture
async def sketch(server: Server) -> AsyncIterator[RedisSketch]:
    sketch = RedisSketch(server.url, LONG, SHAPE, timeout_s=20.0)
    await sketch.create(PARTITION)
    yield sketch
    await sketch.close()


async def assert_lost(sketch: RedisSketch, before: FilterSnapshot) -> None:
    after = await sketch.snapshot([PARTITION])
    assert after.revalidate_all
    assert after.generation != before.generation
    assert (await sketch.begin(PARTITION, [B], "after the loss")).held == (B,)
    assert (await sketch.report_read(PARTITION, [A], 10.0)).ttl_us == 0


async def cache_read(sketch: RedisSketch) -> FilterSnapshot:
    assert (await sketch.report_read(PARTITION, [A], 60.0)).ttl_us
    return await sketch.snapshot([PARTITION])


async def test_a_restart_that_lost_the_last_second(server: Server, sketch: RedisSketch) -> None:
    before = await cache_read(sketch)
    content = server.log.read_bytes()
    await sketch.begin(PARTITION, [A], "lost with the last second")
    server.kill()
    server.log.write_bytes(content)
    server.start()
    await assert_lost(sketch, before)


async def test_a_restart_that_lost_nothing_counts_as_a_loss(
    server: Server, sketch: RedisSketch
) -> None:
    before = await cache_read(sketch)
    server.kill()
    server.start()
    await assert_lost(sketch, before)


async def test_a_restored_older_file_counts_as_a_loss(server: Server, sketch: RedisSketch) -> None:
    content = server.log.read_bytes()
    before = await cache_read(sketch)
    server.stop()
    server.log.write_bytes(content)
    server.start()
    await assert_lost(sketch, before)


async def test_a_script_cut_off_in_the_file_has_no_effect(
    server: Server, sketch: RedisSketch
) -> None:
    """A crash of the machine leaves no effect of the last script."""
    await cache_read(sketch)
    size = server.log.stat().st_size
    await sketch.begin(PARTITION, [A], "cut off")
    server.kill()
    with server.log.open("r+b") as log:
        log.truncate(size + (server.log.stat().st_size - size) * 2 // 3)
    server.start()
    async with Redis.from_url(server.url) as redis:
        for name in (b"pending", b"writes", b"leases", b"members", b"stale"):
            keys = [key async for key in redis.scan_iter(b"*:" + name)]
            assert keys == []


@pytest.mark.parametrize("noticed_by_another", [False, True])
async def test_all_keys_deleted(
    server: Server, sketch: RedisSketch, noticed_by_another: bool
) -> None:
    before = await cache_read(sketch)
    async with Redis.from_url(server.url) as redis:
        await redis.flushall()
    if noticed_by_another:
        other = RedisSketch(server.url, LONG, SHAPE, timeout_s=20.0)
        await assert_lost(other, before)
        await other.close()
    await assert_lost(sketch, before)


async def test_after_a_loss_the_sketch_recovers_once_every_copy_has_expired(server: Server) -> None:
    sketch = RedisSketch(server.url, SHORT, SHAPE, timeout_s=20.0)

    async def has_recovered() -> bool:
        grant = await sketch.report_read(PARTITION, [A], 0.3)
        return grant.ttl_us > 0 and not (await sketch.snapshot([PARTITION])).revalidate_all

    await sketch.report_read(PARTITION, [A], 0.3)
    await eventually(has_recovered)
    server.kill()
    server.start()
    assert (await sketch.snapshot([PARTITION])).revalidate_all
    await eventually(has_recovered)
    await sketch.close()


@pytest.mark.usefixtures("sketch")  # it creates the partition
async def test_a_silent_or_stopped_server_makes_the_sketch_unavailable(
    server: Server,
) -> None:
    impatient = RedisSketch(server.url, LONG, SHAPE, timeout_s=0.2)

    async def has_answered() -> bool:
        try:
            return (await impatient.report_read(PARTITION, [A], 10.0)).ttl_us > 0
        except SketchUnavailable:
            return False

    await eventually(has_answered)
    with server.silent():
        results = await asyncio.gather(
            *(impatient.begin(PARTITION, [f"k{n}"], f"t{n}") for n in range(5)),
            impatient.report_read(PARTITION, [A], 10.0),
            impatient.snapshot([PARTITION]),
            return_exceptions=True,
        )
    assert {type(result) for result in results} == {SketchUnavailable}
    await eventually(has_answered)
    server.kill()
    with pytest.raises(SketchUnavailable):
        await impatient.end(PARTITION, "t", {})
    await impatient.close()


async def test_a_server_that_evicts_keys_is_refused(server: Server) -> None:
    async with Redis.from_url(server.url) as redis:
        await redis.config_set("maxmemory", "100mb")
        await redis.config_set("maxmemory-policy", "allkeys-lru")
    sketch = RedisSketch(server.url, LONG, SHAPE, timeout_s=20.0)
    with pytest.raises(SketchUnavailable, match="noeviction"):
        await sketch.begin(PARTITION, [A], "t")
    await sketch.close()


async def test_a_server_whose_memory_is_full_applies_no_step_partially(server: Server) -> None:
    sketch = RedisSketch(server.url, LONG, SHAPE, timeout_s=20.0)
    await sketch.create(PARTITION)
    await cache_read(sketch)
    await sketch.begin(PARTITION, [B], "t")
    async with Redis.from_url(server.url) as redis:
        await redis.config_set("maxmemory", "1")
        with pytest.raises(SketchUnavailable):
            await sketch.begin(PARTITION, [A], "u")
        with pytest.raises(SketchUnavailable):
            await sketch.report_read(PARTITION, [A], 10.0)
        await sketch.end(PARTITION, "t", {})
        await redis.config_set("maxmemory", "0")
    snapshot = await sketch.snapshot([PARTITION])
    assert not any(snapshot.bits)
    assert (await sketch.report_read(PARTITION, [A, B], 10.0)).ttl_us
    await sketch.close()


_WRITER = """
import asyncio, sys
from sketch.filter.shape import FilterShape
from sketch.protocol.port import Partition, SketchLimits
from sketch.redis.server import RedisSketch

async def write():
    limits = SketchLimits(max_ttl_s=600.0, lease_s=float(sys.argv[2]))
    sketch = RedisSketch(sys.argv[1], limits, FilterShape(bits=8192), timeout_s=60.0)
    partition = Partition(*sys.argv[3:5])
    await asyncio.gather(*(sketch.begin(partition, [key], "of " + key) for key in sys.argv[5:]))
    print("begun", flush=True)
    await asyncio.sleep(600)

asyncio.run(write())
"""


@contextmanager
def killed_writer(url: str, lease_s: float, *keys: str) -> Iterator[subprocess.Popen[str]]:
    """Run a writer that is killed between `begin` and `end`."""
    arguments = [sys.executable, "-c", _WRITER, url, str(lease_s), *PARTITION, *keys]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


async def test_a_client_killed_between_begin_and_end(server: Server, sketch: RedisSketch) -> None:
    assert (await sketch.report_read(PARTITION, [A], 60.0)).ttl_us
    with killed_writer(server.url, 0.1, A, B):
        pass
    snapshot = await sketch.snapshot([PARTITION])
    assert has(snapshot, A)
    assert not has(snapshot, B)
    assert (await sketch.report_read(PARTITION, [B], 10.0)).ttl_us == 0

    async def has_two_orphans() -> bool:
        return len(await sketch.orphans([PARTITION], 10)) == 2

    await eventually(has_two_orphans)
    for orphan in await sketch.orphans([PARTITION], 10):
        await sketch.end(PARTITION, orphan.token, {})
    assert await sketch.orphans([PARTITION], 10) == []
    assert (await sketch.report_read(PARTITION, [A, B], 10.0)).ttl_us
    assert has(await sketch.snapshot([PARTITION]), A)


async def _retry(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await call()
        except SketchUnavailable:
            continue
        return


async def test_a_connection_cut_at_any_time_leaks_nothing(redis_config: SystemConfig) -> None:
    """Callers do not know which calls were applied and retry them; none is applied twice."""
    partition = Partition("news", f"c{os.getpid()}")
    sketch = RedisSketch(redis_config.url, SHORT, SHAPE, "test:cut", timeout_s=20.0)
    keys = [f"articles/{n}#g" for n in range(20)]
    await sketch.create(partition)

    async def writer(number: int) -> None:
        for step in range(10):
            token, key = f"{number}.{step}", keys[(number + step) % len(keys)]
            await _retry(partial(sketch.report_read, partition, [key], 0.3))
            await _retry(partial(sketch.begin, partition, [key], token))
            await _retry(partial(sketch.end, partition, token, {}))

    async with Redis.from_url(redis_config.url) as redis:

        async def cutter() -> None:
            while True:
                sketch.client.close()
                await asyncio.sleep(0.003)

        cutter_task = asyncio.create_task(cutter())
        await asyncio.gather(*(writer(number) for number in range(10)))
        cutter_task.cancel()

        async def is_empty() -> bool:
            return not any((await sketch.snapshot([partition])).bits)

        await eventually(is_empty)
        tag = f"{{test:cut:news/{partition.class_name}}}"
        for name in ("members", "stale", "pending", "writes", "leases"):
            assert not await redis.exists(f"{tag}:{name}")
        assert not any(await redis.getrange(f"{tag}:counts", 0, -1))
        await redis.delete(*[key async for key in redis.scan_iter(f"{tag}:*")])
    await sketch.close()
