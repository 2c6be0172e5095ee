"""The lag of feeds while they cannot be read, and after they are dropped."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from mediator.changes.service import ChangeService
from mediator.coordination.feed import RedisFeed
from mediator.coordination.scripts import feed_key
from mediator.coordination.writers import RECOVERED
from mediator.stores.port import StoreUnavailable, SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, scratch_catalogue, scratch_systems, service

AWAY_S = 60.0


class ShiftedClock:
    """The machine's clocks; a test shifts the monotonic one."""

    shift_s = 0.0
    now = staticmethod(time.time)

    def monotonic(self) -> float:
        return time.monotonic() + self.shift_s


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def fed(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    clock: ShiftedClock,
) -> AsyncIterator[Service]:
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        service(configs, url, coordination_url=redis_config.url, clock=clock) as started,
    ):
        await started.favour()
        yield started


async def test_the_lag_grows_while_feeds_cannot_be_read_and_ends_with_the_database(
    fed: Service, clock: ShiftedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: ChangeService = fed.mediator.changes
    database = await fed.put_schema({"notes": {"fields": {"n": field_on("postgres")}}})
    await fed.create(database, "notes", "a", n="1")
    key = (database, "postgres")

    async def is_measured() -> bool:
        return key in changes.lags()

    async def is_close() -> bool:
        return changes.lags()[key] < AWAY_S

    async def fail(_: RedisFeed) -> int:
        raise StoreUnavailable("it is away")

    await eventually(is_measured)
    with monkeypatch.context() as patched:
        patched.setattr(RedisFeed, "tick", fail)
        clock.shift_s = AWAY_S
        assert changes.lags()[key] >= AWAY_S
    await eventually(is_close)
    await fed.mediator.control.delete_schema(database)
    assert key not in changes.lags()


async def test_the_lag_grows_while_it_is_not_known_who_has_written_to_a_system(
    fed: Service, clock: ShiftedClock, redis_config: SystemConfig
) -> None:
    """As after a restart of the coordination Redis, or while a registered replica stalls."""
    changes: ChangeService = fed.mediator.changes
    database = await fed.put_schema({"notes": {"fields": {"n": field_on("mongo")}}})
    await fed.create(database, "notes", "a", n="1")
    key = (database, "mongo")

    async def is_measured() -> bool:
        return key in changes.lags()

    async def is_close() -> bool:
        return changes.lags()[key] < AWAY_S

    await eventually(is_measured)
    id_ = fed.mediator.data.model.databases[database].id
    async with Redis.from_url(redis_config.url) as redis:
        until, stalled = feed_key(id_, "until"), "mongo/stalled"
        await redis.hset(until, stalled, -1)
        clock.shift_s = AWAY_S
        await changes.measure()
        assert changes.lags()[key] >= AWAY_S
        await redis.hdel(until, stalled)
        await eventually(is_close)
        await redis.hdel(RECOVERED, "mongo")
        clock.shift_s += AWAY_S
        await changes.measure()
        assert changes.lags()[key] >= AWAY_S
    await eventually(is_close)
