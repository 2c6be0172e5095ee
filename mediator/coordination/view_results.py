"""Incremental views in the coordination Redis.

All keys of a database share one hash tag, so that one script sees them all:

| key | content |
|---|---|
| `portolan:views` | set: databases that have views |
| `{portolan:views:<database>}:views` | hash: the document of each view |
| `…:states` | hash: the state of each view that is no longer building |
| `…:published` | hash: `sequence` and `position` of the last publication, `revision` of the views |
| `…:rows:<view>` | hash: the count of each row |
| `…:deltas:<view>` | stream: `position` and `rows` of each delta, by its time and a random number |
| `…:delta_bytes` | hash: the bytes of all rows in the stream of each view |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from secrets import randbits
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from mediator.base.clock import EPOCH
from mediator.base.lease import Lease, LeaseLost
from mediator.changes.feed import PositionGone
from mediator.coordination.definitions import Definition, Definitions
from mediator.coordination.errors import reply_of, texts_of
from mediator.coordination.scripts import text_of
from mediator.views.results import (
    BYTES_AT_ONCE,
    MAX_DELTA_BYTES,
    MAX_DELTAS,
    Publication,
    Published,
    Result,
    StoredDelta,
    StoredView,
    ViewKey,
    ViewState,
)
from mediator.views.view import View

__all__ = ["RedisViewResults"]

_LEASE_LOST: Final = -1
_RANDOM_BITS: Final = 53
"""Random bits in a delta's id: 16 digits at most."""


class RedisViewResults:
    """Implements `mediator.views.results.ViewResults` in one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._definitions = Definitions(redis, "portolan:views", "views")
        self._base = self._definitions.base
        self._publish, self._deltas = (
            redis.register_script(text_of(name)) for name in ("views_publish", "views_deltas")
        )

    async def put_view(
        self, key: ViewKey, view: View, limit: int, created: datetime = EPOCH
    ) -> bool:
        document = {
            "view": view.document,
            "classes": sorted(view.class_names),
            "created": created.timestamp(),
        }
        return await self._definitions.put(key.database, key.view, document, limit)

    async def databases(self) -> set[str]:
        return await self._definitions.databases()

    async def ids(self, database: str) -> set[str]:
        return await self._definitions.ids(database)

    async def views(self, database: str, ids: Collection[str]) -> dict[str, StoredView]:
        definitions = await self._definitions.find(database, ids)
        return {id_: _view(definition) for id_, definition in definitions.items()}

    async def view(self, key: ViewKey) -> StoredView | None:
        return (await self.views(key.database, [key.view])).get(key.view)

    async def drop_view(self, key: ViewKey) -> bool:
        keys, hashes = ("rows", "deltas"), ("delta_bytes",)
        return await self._definitions.drop(key.database, key.view, keys, hashes)

    async def clear(self, database: str) -> None:
        for id_ in await self.ids(database):
            await self.drop_view(ViewKey(database, id_))
        await self._definitions.forget(database)

    async def published(self, database: str) -> Published:
        fields = texts_of(await reply_of(self._redis.hgetall(f"{self._base(database)}published")))
        return Published(int(fields.get("sequence", 0)), int(fields.get("revision", 0)))

    async def rows(self, key: ViewKey) -> dict[bytes, int]:
        return _rows(
            await reply_of(self._redis.hgetall(f"{self._base(key.database)}rows:{key.view}"))
        )

    async def publish(
        self,
        database: str,
        lease: Lease,
        sequence: int,
        position: str,
        publications: Mapping[str, Publication],
    ) -> None:
        args: list[Any] = [lease.token, sequence, position, randbits(_RANDOM_BITS)]
        args += (MAX_DELTAS, MAX_DELTA_BYTES)
        for id_, publication in publications.items():
            state = "" if publication.state is None else orjson.dumps(list(publication.state))
            delta = _delta_rows(publication) if publication.rows or publication.is_first else ""
            args += (id_, state, delta, len(publication.rows))
            for row, _, count in publication.rows:
                args += (row, count)
        keys = [self._base(database), lease.key]
        if await reply_of(self._publish(keys=keys, args=args)) == _LEASE_LOST:
            raise LeaseLost

    async def result(self, key: ViewKey) -> Result | None:
        base = self._base(key.database)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(f"{base}published", "position")
            pipe.xrevrange(f"{base}deltas:{key.view}", count=1)
            pipe.hgetall(f"{base}rows:{key.view}")
            position, last, rows = await reply_of(pipe.execute())
        if position is None or not last:
            return None
        return Result(position.decode(), last[0][0].decode(), _rows(rows))

    async def last_delta(self, key: ViewKey) -> str | None:
        stream = f"{self._base(key.database)}deltas:{key.view}"
        last = await reply_of(self._redis.xrevrange(stream, count=1))
        return last[0][0].decode() if last else None

    async def deltas(
        self, key: ViewKey, after: str, limit: int, wait_s: float
    ) -> list[StoredDelta]:
        stream = f"{self._base(key.database)}deltas:{key.view}"
        newer = await self._after(stream, after, limit)
        if not newer and wait_s > 0:
            block = max(1, round(wait_s * 1000))
            if await reply_of(self._redis.xread({stream: after}, 1, block)):
                # The server may have lost the delta meanwhile, so newer ones are not based on it.
                newer = await self._after(stream, after, limit)
        return newer

    async def _after(self, stream: str, after: str, limit: int) -> list[StoredDelta]:
        reply = await reply_of(self._deltas([stream], [after, limit, BYTES_AT_ONCE]))
        if reply is None:
            raise PositionGone("The deltas after this one are no longer kept.")
        return [StoredDelta(id_.decode(), at.decode(), rows) for id_, at, rows in reply]


def _delta_rows(publication: Publication) -> bytes:
    """Return the changes of rows as JSON; the rows are JSON already."""
    return b"[%b]" % b",".join(
        b'{"row":%b,"count":%d}' % (row, times) for row, times, _ in publication.rows
    )


def _view(definition: Definition) -> StoredView:
    document, state = definition.document, _state(definition.state)
    return StoredView(document["view"], tuple(document["classes"]), state, definition.created)


def _state(text: bytes | None) -> ViewState:
    return ViewState() if text is None else ViewState(*orjson.loads(text))


def _rows(counts: Mapping[bytes, bytes]) -> dict[bytes, int]:
    return {row: int(count) for row, count in counts.items()}
