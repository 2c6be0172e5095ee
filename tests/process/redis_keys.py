"""All that a Redis has under a prefix, and its return to that."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

__all__ = ["go_back", "keys_under"]


async def keys_under(redis: Redis, prefix: str) -> dict[Any, Any]:
    """Return what Redis has under a prefix."""
    return {name: await redis.dump(name) for name in await redis.keys(f"{prefix}*")}


async def go_back(redis: Redis, prefix: str, state: dict[Any, Any]) -> None:
    """Let Redis lose what it has acknowledged since, in one step, as a failover does."""
    present = await redis.keys(f"{prefix}*")
    async with redis.pipeline(transaction=True) as pipe:
        if present:
            pipe.delete(*present)
        for name, value in state.items():
            pipe.restore(name, 0, value)
        await pipe.execute()
