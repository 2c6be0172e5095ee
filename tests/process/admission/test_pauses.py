"""Pauses in Redis: when they end, and by which rules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from mediator.coordination.pauses import Pauses
from mediator.coordination.scripts import text_of
from mediator.model.pause import Pause
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import unique


@pytest.fixture
async def redis(redis_config: SystemConfig) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_config.url) as client:
        yield client


@pytest.fixture
def pauses(redis: Redis) -> Pauses:
    return Pauses(redis, f"{text_of('pauses')}\nreturn pause(unpack(ARGV))")


@pytest.fixture
async def base(redis: Redis) -> AsyncIterator[str]:
    prefix = f"{{{unique('paused')}}}:"
    yield prefix
    await redis.delete(f"{prefix}pauses")


async def test_a_pause_lasts_until_it_expires(pauses: Pauses, base: str) -> None:
    assert await pauses.begin(base, "a", Pause(1, 2, 3600.0)) is True
    assert await pauses.begin(base, "b", Pause(1, 3, 3600.0)) is True
    active = await pauses.lasting(base)
    assert {id_: (pause.version, pause.rule) for id_, pause in active.items()} == {
        "a": (1, 2),
        "b": (1, 3),
    }
    assert 3000 < active["a"].seconds <= 3600
    # A later pause replaces the duration.
    assert await pauses.begin(base, "a", Pause(1, 4, 0.01)) is False

    async def has_ended() -> bool:
        return set(await pauses.lasting(base)) == {"b"}

    await eventually(has_ended)
    assert not await pauses.resume(base, "a")
    assert await pauses.begin(base, "a", Pause(1, 4, 3600.0)) is True
    assert await pauses.resume(base, "a")
    assert set(await pauses.lasting(base)) == {"b"}


async def test_only_pauses_by_former_rules_are_ended(pauses: Pauses, base: str) -> None:
    await pauses.begin(base, "a", Pause(9, 1, 3600.0))
    await pauses.begin(base, "b", Pause(10, 1, 3600.0))
    await pauses.end([base, unique()], 10)
    assert set(await pauses.lasting(base)) == {"b"}
    await pauses.end([], 11)
    assert set(await pauses.lasting(base)) == {"b"}


async def test_setting_back_the_clock_of_redis_prolongs_no_pause(
    pauses: Pauses, base: str, redis: Redis
) -> None:
    """The stored end is then an hour away."""
    await pauses.begin(base, "a", Pause(1, 2, 10.0))
    stored: Any = await redis.hget(f"{base}pauses", "a")
    *rule, until_ms = stored.split()
    later = b" ".join([*rule, b"%d" % (int(until_ms) + 3_600_000)])
    await redis.hset(f"{base}pauses", "a", later)
    assert (await pauses.lasting(base))["a"].seconds <= 10
    # The stored end is corrected to the current clock.
    assert await redis.hget(f"{base}pauses", "a") != later
