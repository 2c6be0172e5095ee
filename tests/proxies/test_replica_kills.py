"""SIGKILL of a replica between every two steps of a write, with real caches before another one.

Coherent clients read through Varnish and nginx all the time, and every read is checked: none may be
older than the bound, whatever the outcome of the write. The other replica recovers pending writes,
and the filter then has exactly the keys that were written while caches had copies of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import httpx
import pytest

from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import unique
from tests.proxies.replica import Step, stoppable
from tests.proxies.two_replicas import CLASS, INC, UPDATE, World, world_on

Systems = tuple[SystemConfig, SystemConfig, SystemConfig]


@pytest.fixture(scope="session")
def systems(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> Systems:
    return redis_config, postgresql_config, mongodb_config


@pytest.fixture(scope="module")
async def world(systems: Systems) -> AsyncIterator[World]:
    async with world_on(systems, purged=True) as opened:
        yield opened


# The stored hits when the replica is killed, and whether the write is still pending.
STEPS: dict[Step, tuple[int, bool]] = {
    "begin": (0, False),
    "begun": (0, True),
    "stored": (1, True),
    "ended": (1, False),
    "purge taken": (1, False),
    "purge sent": (1, False),
}


@pytest.mark.parametrize("step", STEPS)
async def test_a_replica_killed_at_a_step(world: World, step: Step) -> None:
    hits, pending = STEPS[step]
    await world.reset()
    id_ = await world.create()
    async with stoppable(world.plan) as other, world.readers(id_) as readers:
        # The first replica to take purges sends them, which this one must not do.
        world.here.barriers.arm("purge taken")
        await other.arm(step)
        write = asyncio.create_task(_write(other.url + world.at(id_)))
        await other.at(step)
        if pending:
            assert not await world.is_cacheable(id_)
        await readers.read_all()
        await other.kill()
        assert await write is (step in ("purge taken", "purge sent"))
        await readers.read_all()
        if step != "begin":
            world.written.add(f"{CLASS}/{id_}#hits")
        world.here.barriers.open()
        await eventually(partial(world.is_cacheable, id_))
        await eventually(world.is_exact)
        assert await world.here.sketch.orphans([world.partition], 10) == []
        await world.fill(id_)
        await readers.read_all()
    assert await world.cached_hits(id_) == [hits, hits]


async def test_a_replica_killed_that_has_a_cached_write_lease(world: World) -> None:
    """Its write was acknowledged, as no cache had the record; the pending write stays."""
    await world.reset()
    id_ = unique("x")
    created = await world.http.put(world.here.url + world.at(id_), json={"title": "One"})
    assert created.is_success, created.text
    async with stoppable(world.plan) as other:
        await other.arm("stored")
        assert await _write(other.url + world.at(id_))
        await other.at("stored")
        assert not await world.is_cacheable(id_)
        await other.kill()
    assert not await world.is_cacheable(id_)
    await eventually(partial(world.is_cacheable, id_))
    assert await world.here.sketch.orphans([world.partition], 10) == []
    await world.fill(id_)
    assert await world.cached_hits(id_) == [1, 1]
    async with world.readers(id_):
        assert await world.inc(id_) == 2
    await eventually(world.is_exact)


async def _write(url: str) -> bool:
    """Write; return whether the write was acknowledged."""
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as http:
        try:
            answer = await http.patch(url, content=INC, headers=UPDATE)
        except httpx.TransportError:
            return False
    assert answer.is_success, answer.text
    return True
