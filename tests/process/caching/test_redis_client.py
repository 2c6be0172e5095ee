"""A closed client of Redis stays closed."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from mediator.stores.port import StoreUnavailable, SystemConfig
from mediator.stores.redis.client import CommandClient
from redis_connection.commands import command
from tests.faults.conditions import eventually


async def test_a_blocked_read_does_not_reconnect_a_closed_client(
    redis_config: SystemConfig,
) -> None:
    client = CommandClient(redis_config, [])
    (own_id,) = await client.execute([command("CLIENT", "ID")])
    read = asyncio.create_task(client.execute([command("BLPOP", "nothing-is-pushed-here", "0")]))

    async with Redis.from_url(redis_config.url) as redis:

        async def blocked_ids() -> set[str]:
            clients = await redis.client_list()
            return {row["id"] for row in clients if row["cmd"] == "blpop"}

        async def waits() -> bool:
            return await blocked_ids() == {str(own_id)}

        await eventually(waits)
        await client.close()
        with pytest.raises(StoreUnavailable):
            await read
        assert not await blocked_ids() - {str(own_id)}
    with pytest.raises(StoreUnavailable):
        await client.execute([command("PING")])
