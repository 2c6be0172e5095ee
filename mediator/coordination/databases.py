"""The databases that have something of one kind: views, standing queries or event streams.

Replicas that serve what databases have ask those for it, however many others there are.
"""

from __future__ import annotations

from redis.asyncio import Redis

from mediator.coordination.errors import reply_of

__all__ = ["Databases"]


class Databases:
    """A set of databases, by their ids.

    Args:
        key: The key of the set.
    """

    def __init__(self, redis: Redis, key: str) -> None:
        self._redis = redis
        self._key = key

    def base(self, database: str) -> str:
        """Return what all keys of a database begin with: one hash tag, for scripts."""
        return f"{{{self._key}:{database}}}:"

    async def all(self) -> set[str]:
        """Return the databases that have, or had, something."""
        return {each.decode() for each in await reply_of(self._redis.smembers(self._key))}

    async def add(self, *databases: str) -> None:
        """Note databases, before they have what they are noted for."""
        await reply_of(self._redis.sadd(self._key, *databases))

    async def remove(self, database: str) -> None:
        """Forget a database that has nothing any more."""
        await reply_of(self._redis.srem(self._key, database))
