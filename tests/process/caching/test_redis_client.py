"""What becomes of a client of Redis when it is closed."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from mediator.stores.port import StoreUnavailable, SystemConfig
from mediator.stores.redis.client import CommandClient
from redis_connection.commands import command
from tests.faults.conditions import eventually


async def test_a_closed_client_does_not_connect_again_by_a_read_that_waits(
    redis_config: SystemConfig,
) -> None:
    client = CommandClient(redis_config, [])
    (own,) = await client.execute([command("CLIENT", "ID")])
    read = asyncio.create_task(client.execute([command("BLPOP", "nothing-is-pushed-here", "0")]))

    async with Redis.from_url(redis_config.url) as redis:

        async def others() -> set[str]:
            clients = await redis.client_list()
            return {each["id"] for each in clients if each["cmd"] == "blpop"}

        async def waits() -> bool:
            return await others() == {str(own)}

        await eventually(waits)
        await client.close()
        with pytest.raises(StoreUnavailable):
            await read
        assert not await others() - {str(own)}
    with pytest.raises(StoreUnavailable):
        await client.execute([command("PING")])
