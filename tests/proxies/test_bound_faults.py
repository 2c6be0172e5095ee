"""What goes wrong between a sketch and real caches, and that no read is older than the bound."""

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
LONGEST_FILL_S = 15.0
"""Longer than a fill is held up here while clients read, on a busy machine, too."""

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
    """The replica before which the caches are has a clock that is an hour late."""
    systems = (redis_config, postgresql_config, mongodb_config)
    async with world_on(
        systems,
        purged=True,
        sketch_url=server.url,
        skew_s=-HOUR_S,
        purge_again_s=LONGEST_FILL_S,
    ) as opened:
        yield opened


async def test_clocks_of_replicas_that_are_hours_apart_change_nothing(world: World) -> None:
    ids = [await world.make() for _ in range(2)]
    world.plan.skew_s = HOUR_S
    async with stoppable(world.plan) as other, world.readers(*ids) as readers:
        for number in range(20):
            await world.inc(ids[number % 2], (world.here.url, other.url)[number // 2 % 2])
            if number % 5 == 4:
                await readers.further()
        for url in (world.here.url, other.url):
            answer = await world.http.get(url + world.at(ids[0]))
            ttl_us = int(answer.headers["portolan-expires"]) - (await world.filter()).time_us
            assert 0 < ttl_us / 1_000_000 <= TTL_S
        assert await world.exact()


async def test_a_delayed_purge(world: World) -> None:
    """Clients without a filter see what is old meanwhile, those with one do not."""
    id_ = await world.make()
    async with world.readers(id_) as readers:
        # Readers renew what is kept as soon as they know of the write: they rest meanwhile.
        await readers.end()
        world.here.barriers.arm("purge taken")
        await world.inc(id_)
        assert await world.here.barriers.stopped.get() == "purge taken"
        assert await world.kept(id_) == [0, 0]
        await readers.begin()
        await readers.further()
        world.here.barriers.open()


async def test_a_fill_in_flight_during_a_purge(world: World) -> None:
    """The fill stores the old version; readers revalidate, and the purge is repeated."""
    id_ = await world.make()
    for cache in world.caches:
        await world.purge(cache, id_)
        world.here.barriers.arm("read")
        fill = asyncio.create_task(world.http.get(cache.url + world.at(id_)))
        assert await world.here.barriers.stopped.get() == "read"
        hits = await world.inc(id_)
        async with world.readers(id_) as readers:
            world.here.barriers.open()
            assert (await fill).json()["hits"] == hits - 1
            await readers.further()

    async def forgotten() -> bool:
        return await world.kept(id_) == [2, 2]

    await eventually(forgotten)


async def test_lost_purges_and_proxies_restarted(world: World) -> None:
    """Varnish restarts empty, nginx with its cache; purges meanwhile did not reach them."""
    id_ = await world.make()
    varnish, nginx = world.caches
    async with world.readers(id_) as readers:
        for _ in range(2):
            await world.inc(id_)
            await asyncio.gather(varnish.restart(), nginx.restart())
            await world.inc(id_)
            await readers.further()
    assert world.judge.reads


async def test_the_sketch_restarted_without_its_last_second(world: World, server: Server) -> None:
    """The write that the sketch forgets was acknowledged, and caches hold what it overwrote."""
    id_ = await world.make()
    async with world.readers(id_) as readers:
        before = await world.filter()
        kept = server.log.read_bytes()
        await readers.end()
        world.here.barriers.arm("purge taken")
        await world.inc(id_)
        server.kill()
        server.log.write_bytes(kept)
        server.start()
        assert await world.kept(id_) == [0, 0], "what is old is still there"
        await asyncio.sleep(2 * DELTA_S)
        await readers.begin()
        await readers.further()
        after = await world.filter()
        assert after.revalidate_all
        assert after.revision != before.revision
        world.here.barriers.open()
        await eventually(partial(world.cacheable, id_))
        await world.inc(id_)
        await readers.further()
