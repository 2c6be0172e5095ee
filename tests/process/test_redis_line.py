"""What becomes of a line to Redis when it is closed."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from mediator.base.clock import SystemClock
from mediator.stores.port import StoreUnavailable, SystemConfig
from mediator.stores.redis.commands import command
from mediator.stores.redis.line import Line
from tests.faults.conditions import eventually


async def test_a_closed_line_is_not_made_again_by_a_read_that_waits(
    redis_config: SystemConfig,
) -> None:
    line = Line(redis_config, SystemClock(), [])
    (own,) = await line.ask([command("CLIENT", "ID")])
    read = asyncio.create_task(line.ask([command("BLPOP", "nothing-is-pushed-here", "0")]))

    async with Redis.from_url(redis_config.url) as redis:

        async def others() -> set[str]:
            told = await redis.client_list()
            return {each["id"] for each in told if each["cmd"] == "blpop"}

        async def waits() -> bool:
            return await others() == {str(own)}

        await eventually(waits)
        await line.close()
        with pytest.raises(StoreUnavailable):
            await read
        assert not await others() - {str(own)}
    with pytest.raises(StoreUnavailable):
        await line.ask([command("PING")])
