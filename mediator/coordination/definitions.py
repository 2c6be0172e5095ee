"""The definitions of databases, of views or standing queries, and their states.

All keys of a database share one hash tag: a hash of documents; a hash of states, without those
still building; and the number of changes to the documents, `revision` in `published`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson
from redis.asyncio import Redis

from mediator.coordination.errors import reply_of

__all__ = ["Databases", "Definition", "Definitions"]

_PUT: Final = """
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[2], 'revision', 1)
return 1
"""


class Databases:
    """The databases with entries of one kind, by their ids.

    Replicas query only these databases, however many others exist.

    Args:
        key: The key of the set.
    """

    def __init__(self, redis: Redis, key: str) -> None:
        self._redis = redis
        self._key = key

    def base(self, database: str) -> str:
        """Return the prefix of all keys of a database, with one hash tag for scripts."""
        return f"{{{self._key}:{database}}}:"

    async def all(self) -> set[str]:
        """Return the databases that have, or had, entries."""
        return {id_.decode() for id_ in await reply_of(self._redis.smembers(self._key))}

    async def add(self, *databases: str) -> None:
        """Register databases, before they get entries."""
        await reply_of(self._redis.sadd(self._key, *databases))

    async def remove(self, database: str) -> None:
        """Remove a database without entries."""
        await reply_of(self._redis.srem(self._key, database))


class Definition(NamedTuple):
    """A document and its state; None while it is building."""

    document: dict[str, Any]
    state: bytes | None

    @property
    def created(self) -> datetime:
        """When it was created."""
        return datetime.fromtimestamp(self.document["created"], UTC)


class Definitions:
    """The definitions of one kind.

    Args:
        databases: The key of the set of databases that have some.
        name: The name of the hash of documents.
    """

    def __init__(self, redis: Redis, databases: str, name: str) -> None:
        self._redis = redis
        self._databases, self._name = Databases(redis, databases), name
        self.base: Final = self._databases.base
        self._put = redis.register_script(_PUT)

    async def databases(self) -> set[str]:
        """Return the databases that have, or had, definitions."""
        return await self._databases.all()

    async def put(self, database: str, id_: str, document: dict[str, Any], limit: int) -> bool:
        """Store a definition, unless the database has `limit` of them already."""
        await self._databases.add(database)
        base = self.base(database)
        keys = [f"{base}{self._name}", f"{base}published"]
        return bool(await reply_of(self._put(keys, [id_, orjson.dumps(document), limit])))

    async def ids(self, database: str) -> set[str]:
        """Return the ids of a database's definitions."""
        names = await reply_of(self._redis.hkeys(f"{self.base(database)}{self._name}"))
        return {name.decode() for name in names}

    async def find(self, database: str, ids: Iterable[str]) -> dict[str, Definition]:
        """Return the existing definitions among `ids`."""
        names = sorted(ids)
        if not names:
            return {}
        base = self.base(database)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(f"{base}{self._name}", names)
            pipe.hmget(f"{base}states", names)
            documents, states = await reply_of(pipe.execute())
        return {
            id_: Definition(orjson.loads(document), state)
            for id_, document, state in zip(names, documents, states, strict=True)
            if document is not None
        }

    async def all(self, database: str) -> dict[str, Definition]:
        """Return all definitions of a database."""
        base = self.base(database)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hgetall(f"{base}{self._name}")
            pipe.hgetall(f"{base}states")
            documents, states = await reply_of(pipe.execute())
        return {
            id_.decode(): Definition(orjson.loads(document), states.get(id_))
            for id_, document in documents.items()
        }

    async def drop(
        self, database: str, id_: str, keys: Iterable[str], hashes: Iterable[str] = ()
    ) -> bool:
        """Remove a definition, its own keys, and its fields of other hashes.

        Returns:
            Whether it existed.
        """
        base = self.base(database)
        async with self._redis.pipeline(transaction=True) as pipe:
            for name in (self._name, "states", *hashes):
                pipe.hdel(f"{base}{name}", id_)
            pipe.unlink(*(f"{base}{key}:{id_}" for key in keys))
            pipe.hincrby(f"{base}published", "revision", 1)
            removed, *_ = await reply_of(pipe.execute())
        return bool(removed)

    async def forget(self, database: str, keys: Iterable[str] = ()) -> None:
        """Remove the remaining keys of a database without definitions: `keys` and its revision."""
        base = self.base(database)
        await self._databases.remove(database)
        await reply_of(self._redis.unlink(*(f"{base}{key}" for key in ("published", *keys))))
