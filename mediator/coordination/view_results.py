"""Incremental views in the coordination Redis.

All keys of a database share one hash tag, so that one script sees them all:

| key | what it holds |
|---|---|
| `portolan:views` | set: databases that have views |
| `{portolan:views:<database>}:views` | hash: the document of each view |
| `…:states` | hash: the state of each view that is no longer building |
| `…:published` | hash: `sequence` and `position` of the last publication, `revision` of the views |
| `…:rows:<view>` | hash: how many there are of each row |
| `…:deltas:<view>` | stream: `position` and `rows` of each delta |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from mediator.base.lease import Lease, LeaseLost
from mediator.changes.feed import PositionGone
from mediator.coordination.errors import entries_of, reply_of, texts_of
from mediator.views.results import (
    MOST_DELTAS,
    Publication,
    Published,
    Result,
    StoredDelta,
    StoredView,
    ViewKey,
    ViewState,
)
from mediator.views.view import View
from redis_connection.scripts import lua_text

__all__ = ["RedisViewResults"]

_DATABASES: Final = "portolan:views"
_LEASE_LOST: Final = -1


class RedisViewResults:
    """Implements `mediator.views.results.ViewResults` in one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._publish = redis.register_script(
            lua_text("mediator.coordination.scripts", "views_publish")
        )

    async def put_view(self, key: ViewKey, view: View, most: int) -> bool:
        document = {"view": view.document, "classes": sorted(view.class_names)}
        base = _base(key.database)
        if await reply_of(self._redis.hlen(f"{base}views")) >= most:
            return False
        await reply_of(self._redis.sadd(_DATABASES, key.database))
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(f"{base}views", key.view, orjson.dumps(document))
            pipe.hincrby(f"{base}published", "revision", 1)
            await reply_of(pipe.execute())
        return True

    async def databases(self) -> set[str]:
        return {each.decode() for each in await reply_of(self._redis.smembers(_DATABASES))}

    async def ids(self, database: str) -> set[str]:
        found = await reply_of(self._redis.hkeys(f"{_base(database)}views"))
        return {each.decode() for each in found}

    async def views(self, database: str, ids: Collection[str]) -> dict[str, StoredView]:
        if not ids:
            return {}
        base, names = _base(database), sorted(ids)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(f"{base}views", names)
            pipe.hmget(f"{base}states", names)
            documents, states = await reply_of(pipe.execute())
        return {
            id_: _view(orjson.loads(document), state)
            for id_, document, state in zip(names, documents, states, strict=True)
            if document is not None
        }

    async def view(self, key: ViewKey) -> StoredView | None:
        return (await self.views(key.database, [key.view])).get(key.view)

    async def drop_view(self, key: ViewKey) -> bool:
        base = _base(key.database)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hdel(f"{base}views", key.view)
            pipe.hdel(f"{base}states", key.view)
            pipe.unlink(f"{base}rows:{key.view}", f"{base}deltas:{key.view}")
            pipe.hincrby(f"{base}published", "revision", 1)
            removed, *_ = await reply_of(pipe.execute())
        return bool(removed)

    async def clear(self, database: str) -> None:
        for id_ in await self.ids(database):
            await self.drop_view(ViewKey(database, id_))
        await reply_of(self._redis.srem(_DATABASES, database))
        await reply_of(self._redis.unlink(f"{_base(database)}published"))

    async def published(self, database: str) -> Published:
        found = texts_of(await reply_of(self._redis.hgetall(f"{_base(database)}published")))
        return Published(int(found.get("sequence", 0)), int(found.get("revision", 0)))

    async def rows(self, key: ViewKey) -> dict[bytes, int]:
        return _rows(await reply_of(self._redis.hgetall(f"{_base(key.database)}rows:{key.view}")))

    async def publish(
        self,
        database: str,
        lease: Lease,
        sequence: int,
        position: str,
        publications: Mapping[str, Publication],
    ) -> None:
        args: list[Any] = [lease.token, sequence, position, MOST_DELTAS]
        for id_, each in publications.items():
            state = "" if each.state is None else orjson.dumps(list(each.state))
            delta = _delta_rows(each) if each.rows or each.is_first else ""
            args += (id_, state, delta, len(each.rows))
            for row, _, count in each.rows:
                args += (row, count)
        keys = [_base(database), lease.key]
        if await reply_of(self._publish(keys=keys, args=args)) == _LEASE_LOST:
            raise LeaseLost

    async def result(self, key: ViewKey) -> Result | None:
        base = _base(key.database)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(f"{base}published", "position")
            pipe.xrevrange(f"{base}deltas:{key.view}", count=1)
            pipe.hgetall(f"{base}rows:{key.view}")
            position, last, rows = await reply_of(pipe.execute())
        if position is None or not last:
            return None
        return Result(position.decode(), last[0][0].decode(), _rows(rows))

    async def last_delta(self, key: ViewKey) -> str | None:
        stream = f"{_base(key.database)}deltas:{key.view}"
        last = await reply_of(self._redis.xrevrange(stream, count=1))
        return last[0][0].decode() if last else None

    async def deltas(
        self, key: ViewKey, after: str, limit: int, wait_s: float
    ) -> list[StoredDelta]:
        stream = f"{_base(key.database)}deltas:{key.view}"
        # With the delta itself: if it is gone, others after it may be, too.
        found = await reply_of(self._redis.xrange(stream, after, "+", limit + 1))
        if not found or found[0][0].decode() != after:
            raise PositionGone("The deltas after this one are no longer kept.")
        newer = found[1:]
        if not newer and wait_s > 0:
            block = max(1, round(wait_s * 1000))
            reply = await reply_of(self._redis.xread({stream: after}, limit, block))
            newer = entries_of(reply)
        return [_delta(*entry) for entry in newer]


def _delta_rows(publication: Publication) -> bytes:
    """Return how rows changed as JSON; the rows are JSON already."""
    return b"[%b]" % b",".join(
        b'{"row":%b,"count":%d}' % (row, times) for row, times, _ in publication.rows
    )


def _base(database: str) -> str:
    return f"{{portolan:views:{database}}}:"


def _view(document: Mapping[str, Any], state: bytes | None) -> StoredView:
    return StoredView(document["view"], tuple(document["classes"]), _state(state))


def _state(text: bytes | None) -> ViewState:
    return ViewState() if text is None else ViewState(*orjson.loads(text))


def _rows(found: Mapping[bytes, bytes]) -> dict[bytes, int]:
    return {row: int(count) for row, count in found.items()}


def _delta(id_: bytes, fields: Mapping[bytes, bytes]) -> StoredDelta:
    return StoredDelta(id_.decode(), fields[b"position"].decode(), fields[b"rows"])
