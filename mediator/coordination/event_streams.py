"""Event streams in the coordination Redis; `scripts/event_streams_common.lua` lists the keys.

All keys of a database share one hash tag, so that one script sees them all;
`portolan:event-streams` is the set of databases that have streams. An entry of a Redis stream holds
tuples of one batch, and its id is the number of the last one. Retention uses the clock of Redis, of
which only differences count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf
from time import monotonic
from typing import Any, Final
from uuid import uuid4

import orjson
from redis.asyncio import Redis

from mediator.base.errors import Conflict, IdempotencyReused, NotFound, TooManyRequests
from mediator.changes.feed import PositionGone
from mediator.coordination.definitions import Databases
from mediator.coordination.errors import reply_of
from mediator.coordination.scripts import RETRIED_S, text_of
from mediator.event_streams.port import (
    Appended,
    EventStream,
    NewTuple,
    StoredTuple,
    StreamKey,
    StreamReport,
    TuplePage,
    TupleRange,
)

__all__ = ["RedisEventStreams", "StreamBounds"]

BATCH_ID_TTL_S: Final = 3600
"""Seconds for which the id of a batch is remembered."""

RATE_S: Final = 60
"""Seconds in which a rate falls to 37 % if nothing is appended."""

_PAGE_BYTES: Final = 2**20
"""Bytes beyond which a page gets no further entries."""

_ENTRY_TUPLES: Final = 100
"""Limit of tuples in an entry, besides the bytes below: a reader may want a single one."""

_ENTRY_BYTES: Final = 2**16

_BLOCK_S: Final = 1.0
"""Limit of the wait in Redis, below the timeout of its replies."""

_FULL, _BEHIND, _NO_STREAM, _REUSED = -1, -2, -3, -4


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """The bounds of a stream.

    Attributes:
        bytes: The bytes of all kept tuples, as JSON.
        behind: Tuples by which a consumer may lag behind.
        live_s: Seconds after which a silent consumer does not count.
    """

    bytes: int = 2**28
    behind: int = 100_000
    live_s: float = 60.0


class RedisEventStreams:
    """Implements `mediator.event_streams.port.EventStreams` in one Redis."""

    def __init__(self, redis: Redis, bounds: StreamBounds | None = None) -> None:
        self._redis = redis
        self._databases = Databases(redis, "portolan:event-streams")
        self._base = self._databases.base
        self._bounds = bounds or StreamBounds()
        constants = {
            "MAX_BEHIND": self._bounds.behind,
            "LIVE_MS": round(self._bounds.live_s * 1000),
            "RATE_MS": RATE_S * 1000,
            "RECORDS": 100,
            "TUPLES_A_RECORD": 1000,
            "ENTRIES": 10,
            "FORGOTTEN": 100,
            "MAX_DROPPED": 1000,
        }
        common = ("appends", "event_streams_common")
        self._scripts = {
            name: redis.register_script(text_of(*common, f"event_streams_{name}", **constants))
            for name in ("declare", "append", "read", "consumed", "drop")
        }

    async def declare(self, key: StreamKey, stream: EventStream, limit: int) -> bool:
        await self._databases.add(key.database)
        numbers = (round(stream.retention_s * 1000), stream.most_tuples)
        reply = await self._call("declare", key, _document(stream), limit, *numbers, stream.id)
        if reply < 0:
            raise Conflict(f"A database has {limit:,} event streams at most.")
        return bool(reply)

    async def databases(self, among: Collection[str]) -> set[str]:
        return (await self._databases.all()).intersection(among)

    async def of_database(self, database: str) -> dict[str, EventStream]:
        streams = await reply_of(self._redis.hgetall(f"{self._base(database)}streams"))
        return {name.decode(): _stream(name.decode(), text) for name, text in streams.items()}

    async def find(self, key: StreamKey) -> EventStream | None:
        text = await reply_of(self._redis.hget(f"{self._base(key.database)}streams", key.stream))
        return None if text is None else _stream(key.stream, text)

    async def drop(self, key: StreamKey) -> bool:
        return bool(await self._call("drop", key))

    async def clear(self, database: str) -> None:
        for name in await self.of_database(database):
            await self.drop(StreamKey(database, name))
        await self._databases.remove(database)
        base = self._base(database)
        await reply_of(self._redis.unlink(f"{base}dropped", f"{base}highest"))

    async def append(
        self, key: StreamKey, tuples: Sequence[NewTuple], declared: EventStream | None = None
    ) -> int:
        # With an id, as the driver resends the call if a connection was lost.
        batch = (uuid4().hex, "", RETRIED_S * 1000)
        return (await self._append(key, tuples, batch, declared)).last

    async def append_once(
        self,
        key: StreamKey,
        tuples: Sequence[NewTuple],
        id_: str,
        fingerprint: str,
        declared: EventStream | None = None,
    ) -> Appended:
        return await self._append(key, tuples, (id_, fingerprint, BATCH_ID_TTL_S * 1000), declared)

    async def _append(
        self,
        key: StreamKey,
        tuples: Sequence[NewTuple],
        batch: tuple[str, str, int],
        declared: EventStream | None,
    ) -> Appended:
        latest_s = ceil(max((new.time_s for new in tuples), default=0.0))
        head = (*batch, self._bounds.bytes, "" if declared is None else declared.id, latest_s)
        reply = await self._call("append", key, *head, *await _entries(tuples))
        if reply[0] >= 0:
            return Appended(int(reply[0]), bool(reply[1]))
        if reply[0] == _NO_STREAM:
            raise _not_found()
        if reply[0] == _REUSED:
            detail = "The Idempotency-Key was used for other tuples."
            raise IdempotencyReused(detail, fingerprint=reply[1].decode())
        raise _full(reply[1].decode(), reply[2]) if reply[0] == _FULL else self._behind(*reply[1:])

    def _behind(self, behind: int, consumer: bytes) -> TooManyRequests:
        name = consumer.decode()
        detail = (
            f"The consumer {name} would be {behind:,} tuples behind; {self._bounds.behind:,} are"
            " allowed. Send fewer tuples until it has caught up, or end it."
        )
        return TooManyRequests(detail, extra={"limit": "consumer", "consumer": name})

    async def last(self, key: StreamKey) -> int:
        state = f"{self._base(key.database)}state:{key.stream}"
        return int(await reply_of(self._redis.hget(state, "last")) or 0)

    async def report(self, key: StreamKey) -> StreamReport:
        base, name = self._base(key.database), key.stream
        names = ("last", "bytes", "rate", "rated", "clock", "elapsed")
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.time()
            pipe.hmget(f"{base}state:{name}", names)
            pipe.lindex(f"{base}records:{name}", 0)
            pipe.zrange(f"{base}consumed:{name}", 0, -1, withscores=True)
            pipe.zrange(f"{base}seen:{name}", 0, -1, withscores=True)
            (seconds, _), state, oldest, consumed, seen = await reply_of(pipe.execute())
        if state[0] is None:
            raise _not_found()
        last, total, rate, rated, clock, elapsed = (float(text or 0) for text in state)
        first, before, *_ = _record(oldest) if oldest else (int(last) + 1, int(total))
        now_s = elapsed / 1000 + max(0.0, seconds - clock / 1000 if clock else 0.0)
        live = {id_ for id_, at_ms in seen if now_s - at_ms / 1000 < self._bounds.live_s}
        consumers = {id_.decode(): int(number) for id_, number in consumed if id_ in live}
        current_rate = rate * exp((rated / 1000 - now_s) / RATE_S)
        return StreamReport(first, int(last), int(total) - before, current_rate, consumers)

    async def ranges(self, key: StreamKey) -> list[TupleRange]:
        base, name = self._base(key.database), key.stream
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(f"{base}state:{name}", "last")
            pipe.lrange(f"{base}records:{name}", 0, -1)
            last, texts = await reply_of(pipe.execute())
        if last is None:
            raise _not_found()
        records = [_record(text) for text in texts]
        lasts = [record[0] - 1 for record in records[1:]] + [int(last)]
        return [
            TupleRange(first, until, float(latest[0]) if latest else inf)
            for (first, _, _, _, *latest), until in zip(records, lasts, strict=False)
        ]

    async def read(
        self, key: StreamKey, after: int | None, limit: int, wait_s: float = 0.0
    ) -> TuplePage:
        until = monotonic() + wait_s
        while True:
            first, last, *entries = await self._read(key, after, limit)
            if after is None:
                after = first - 1
            if not first - 1 <= after <= last:
                raise _gone(first, last)
            remaining_s = until - monotonic()
            if entries or remaining_s <= 0:
                return TuplePage(_tuples(after, limit, entries), last)
            # Only waits: the entries are then read in pages.
            name = f"{self._base(key.database)}tuples:{key.stream}"
            block = ceil(min(remaining_s, _BLOCK_S) * 1000)
            await reply_of(self._redis.xread({name: f"{after}-0"}, 1, block))

    async def _read(self, key: StreamKey, after: int | None, limit: int) -> list[Any]:
        position = "" if after is None else after
        reply: list[Any] = await self._call("read", key, position, limit, _PAGE_BYTES)
        if not reply:
            raise _not_found()
        return reply

    async def consumed(self, key: StreamKey, consumer: str, number: int) -> None:
        await self._call("consumed", key, consumer, number)

    async def _call(self, name: str, key: StreamKey, *arguments: Any) -> Any:
        call = self._scripts[name](keys=[self._base(key.database)], args=[key.stream, *arguments])
        return await reply_of(call)


def _document(stream: EventStream) -> bytes:
    return orjson.dumps(
        {
            "attributes": sorted(stream.attributes),
            "types": dict(stream.types),
            "retention_s": stream.retention_s,
            "most_tuples": stream.most_tuples,
            "id": stream.id,
        }
    )


def _stream(name: str, text: bytes) -> EventStream:
    document: Mapping[str, Any] = orjson.loads(text)
    attributes = frozenset(document["attributes"])
    numbers = document["retention_s"], document["most_tuples"]
    return EventStream(name, attributes, *numbers, document["types"], document["id"])


async def _entries(tuples: Sequence[NewTuple]) -> list[Any]:
    """Return tuples as entries: the count and the text of each, one line per tuple."""
    entries: list[Any] = []
    rows: list[bytes] = []
    size = 0
    for new in tuples:
        # The text of a float is exact.
        row = b"%b %b" % (repr(float(new.time_s)).encode(), new.values)
        rows.append(row)
        size += len(row)
        if len(rows) == _ENTRY_TUPLES or size >= _ENTRY_BYTES:
            entries += (len(rows), b"\n".join(rows))
            rows, size = [], 0
            await asyncio.sleep(0)
    return [*entries, len(rows), b"\n".join(rows)] if rows else entries


def _tuples(after: int, limit: int, entries: Sequence[bytes]) -> list[StoredTuple]:
    """Parse the tuples after a number from entries of (last number, text)."""
    tuples: list[StoredTuple] = []
    for last, text in zip(entries[::2], entries[1::2], strict=True):
        rows = text.split(b"\n")
        first = int(last) - len(rows) + 1
        new = rows[max(0, after + 1 - first) :]
        tuples += (_tuple(int(last) - len(new) + 1 + index, row) for index, row in enumerate(new))
    return tuples[:limit]


def _tuple(number: int, row: bytes) -> StoredTuple:
    time, _, values = row.partition(b" ")
    return StoredTuple(number, float(time), orjson.loads(values))


def _record(text: bytes) -> tuple[int, ...]:
    """Parse a record of tuples, as described in `scripts/event_streams_common.lua`."""
    return tuple(map(int, text.split()))


def _not_found() -> NotFound:
    return NotFound("There is no such event stream.")


def _full(limit: str, room_in_ms: int) -> TooManyRequests:
    detail = (
        f"The stream has reached its limit of {limit}, and none of them is past its retention."
        " Send fewer tuples, or declare a stream that keeps more of them, or keeps them for less"
        " time."
    )
    retry_after_s = max(1.0, room_in_ms / 1000)
    return TooManyRequests(detail, retry_after_s=retry_after_s, extra={"limit": limit})


def _gone(first: int, last: int) -> PositionGone:
    return PositionGone(
        "The tuple after this number is not kept."
        + (f" Those from {first} to {last} are." if first <= last else "")
    )
