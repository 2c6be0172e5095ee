"""How far feeds are known to be behind while they cannot be asked, and when they are dropped."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from mediator.changes.service import ChangeService
from mediator.coordination.feed import RedisFeed
from mediator.stores.port import StoreUnavailable, SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, scratch_catalogue, scratch_systems, service

AWAY_S = 60.0


class ShiftedClock:
    """The machine's clocks, and what a test adds to the monotonic one."""

    shift_s = 0.0
    now = staticmethod(time.time)

    def monotonic(self) -> float:
        return time.monotonic() + self.shift_s


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def fed(
    redis_config: SystemConfig, postgresql_config: SystemConfig, clock: ShiftedClock
) -> AsyncIterator[Service]:
    async with (
        scratch_systems(redis_config, postgresql_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        service(configs, url, coordination_url=redis_config.url, clock=clock) as started,
    ):
        yield started


async def test_the_lag_grows_while_feeds_cannot_be_asked_and_ends_with_the_database(
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

    async def away(_: RedisFeed) -> int:
        raise StoreUnavailable("it is away")

    await eventually(is_measured)
    with monkeypatch.context() as patched:
        patched.setattr(RedisFeed, "tick", away)
        clock.shift_s = AWAY_S
        assert changes.lags()[key] >= AWAY_S
    await eventually(is_close)
    await fed.mediator.control.delete_schema(database)
    assert key not in changes.lags()
