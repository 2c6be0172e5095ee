"""Faults between a sketch and real caches, after which no read is older than the bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.redis_server import Server, running
from tests.faults.conditions import eventually
from tests.proxies.replica import stoppable
from tests.proxies.two_replicas import DELTA_S, TTL_S, World, world_on

HOUR_S = 3_600.0
MAX_FILL_S = 15.0
"""Longer than any fill is delayed here while clients read, even on a busy machine."""

Systems = tuple[SystemConfig, SystemConfig, SystemConfig]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The sketch's own Redis, which the other stores do not depend on."""
    with running("bound") as server:
        yield server


@pytest.fixture(scope="module")
async def world(
    server: Server,
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[World]:
    """A world whose caches are before a replica with a clock that is an hour late."""
    systems = (redis_config, postgresql_config, mongodb_config)
    async with world_on(
        systems,
        purged=True,
        sketch_url=server.url,
        skew_s=-HOUR_S,
        purge_repeat_s=MAX_FILL_S,
    ) as opened:
        yield opened


async def test_clocks_of_replicas_that_are_hours_apart_change_nothing(world: World) -> None:
    ids = [await world.create() for _ in range(2)]
    world.plan.skew_s = HOUR_S
    async with stoppable(world.plan) as other, world.readers(*ids) as readers:
        for number in range(20):
            await world.inc(ids[number % 2], (world.here.url, other.url)[number // 2 % 2])
            if number % 5 == 4:
                await readers.read_all()
        for url in (world.here.url, other.url):
            answer = await world.http.get(url + world.at(ids[0]))
            ttl_us = int(answer.headers["portolan-expires"]) - (await world.filter()).time_us
            assert 0 < ttl_us / 1_000_000 <= TTL_S
        assert await world.is_exact()


async def test_a_delayed_purge(world: World) -> None:
    """Clients without a filter see the old version meanwhile, clients with one do not."""
    id_ = await world.create()
    async with world.readers(id_) as readers:
        # Readers would renew the caches as soon as they know of the write, so they pause.
        await readers.stop()
        world.here.barriers.arm("purge taken")
        await world.inc(id_)
        assert await world.here.barriers.stopped.get() == "purge taken"
        assert await world.cached_hits(id_) == [0, 0]
        await readers.start()
        await readers.read_all()
        world.here.barriers.open()


async def test_a_fill_in_flight_during_a_purge(world: World) -> None:
    """The fill stores the old version; readers revalidate, and the purge is repeated."""
    id_ = await world.create()
    for cache in world.caches:
        await world.purge(cache, id_)
        world.here.barriers.arm("read")
        fill = asyncio.create_task(world.http.get(cache.url + world.at(id_)))
        assert await world.here.barriers.stopped.get() == "read"
        hits = await world.inc(id_)
        async with world.readers(id_) as readers:
            world.here.barriers.open()
            assert (await fill).json()["hits"] == hits - 1
            await readers.read_all()

    async def is_purged() -> bool:
        return await world.cached_hits(id_) == [2, 2]

    await eventually(is_purged)


async def test_lost_purges_and_proxies_restarted(world: World) -> None:
    """Varnish restarts empty, nginx with its cache; purges meanwhile did not reach them."""
    id_ = await world.create()
    varnish, nginx = world.caches
    async with world.readers(id_) as readers:
        for _ in range(2):
            await world.inc(id_)
            await asyncio.gather(varnish.restart(), nginx.restart())
            await world.inc(id_)
            await readers.read_all()
    assert world.judge.reads


async def test_the_sketch_restarted_without_its_last_second(world: World, server: Server) -> None:
    """The write that the sketch forgets was acknowledged, and caches hold the version before it."""
    id_ = await world.create()
    async with world.readers(id_) as readers:
        before = await world.filter()
        log = server.log.read_bytes()
        await readers.stop()
        world.here.barriers.arm("purge taken")
        await world.inc(id_)
        server.kill()
        server.log.write_bytes(log)
        server.start()
        assert await world.cached_hits(id_) == [0, 0], "the caches still have the old version"
        await asyncio.sleep(2 * DELTA_S)
        await readers.start()
        await readers.read_all()
        after = await world.filter()
        assert after.revalidate_all
        assert after.revision != before.revision
        world.here.barriers.open()
        await eventually(partial(world.is_cacheable, id_))
        await world.inc(id_)
        await readers.read_all()
