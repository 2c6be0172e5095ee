"""Dumping and restoring the Redis keys under a prefix."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

__all__ = ["go_back", "keys_under"]


async def keys_under(redis: Redis, prefix: str) -> dict[Any, Any]:
    """Return the dump of each key under a prefix."""
    return {name: await redis.dump(name) for name in await redis.keys(f"{prefix}*")}


async def go_back(redis: Redis, prefix: str, state: dict[Any, Any]) -> None:
    """Restore the keys under a prefix atomically, as a failover loses acknowledged writes."""
    current_keys = await redis.keys(f"{prefix}*")
    async with redis.pipeline(transaction=True) as pipe:
        if current_keys:
            pipe.delete(*current_keys)
        for name, value in state.items():
            pipe.restore(name, 0, value)
        await pipe.execute()
