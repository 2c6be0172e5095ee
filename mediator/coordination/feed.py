"""The feed in Redis: a stream for each partition, and hashes that move with them.

A database is named by its id, so that a later database of the same name has another feed. All keys
of a database share one hash tag, so that one script sees them all:

| key | content |
|---|---|
| `{portolan:feed:<database>}:<partition>` | stream: class `k`, document `c` of each change |
| `…:cursors` | hash: position in each log, by system and log |
| `…:until` | hash: tick up to which the feed is complete, by system and replica |
| `…:appends` | hash: how often each replica has appended changes pending in records |
| `…:retired:<period>` | the same for retired replicas, until it expires |
| `…:versions` | hash: last version of each group with changes pending in records |
| `…:versions:<period>` | the same for acknowledged ones, until it expires |
| `…:floor` | hash: id of the last change removed, by partition |
| `…:generation` | the feed's generation |
| `…:run` | the run id of the server that appended the last changes, or began the generation |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final
from uuid import uuid4

from redis.asyncio import Redis

from mediator.base.lease import Lease, LeaseLost
from mediator.changes.document import EncodedChange, change_from, document_of
from mediator.changes.feed import (
    BEGINNING,
    PARTITIONS,
    Event,
    FeedRolledBack,
    LogBatch,
    LogSource,
    PositionGone,
    WriterProgress,
    partition_of,
)
from mediator.changes.naming import Naming
from mediator.changes.position import order_of
from mediator.coordination.errors import pairs_of, reply_of, texts_of, unavailable
from mediator.coordination.scripts import TICKS, feed_key, script_of
from mediator.coordination.writers import RECOVERED, WRITERS
from mediator.model.change import Change
from mediator.stores.port import StoreError
from mediator.stores.redis.client import CommandClient
from redis_connection.commands import command

__all__ = ["SCRIPTS", "RedisFeed", "Retention"]

_NAMES: Final = (
    *("append", "append_newer", "acknowledged", "generation", "publish_progress"),
    *("relayed_until", "retire", "tick", "trim"),
)
_SCRIPTS: Final = {name: script_of(name) for name in _NAMES}
SCRIPTS: Final = tuple(_SCRIPTS.values())
"""The scripts that the feed calls."""

_PERSISTENT_KEYS: Final = (
    *("cursors", "until", "appends", "versions", "floor", "generation", "run"),
    *("view", "reports"),  # of `RedisViewState`
)
"""Keys of a feed besides its streams and those that expire."""

_LEASE_LOST: Final = -1
_ROLLED_BACK: Final = -2
_TRIM_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of the feed: changes per partition, and seconds."""

    changes: int = 1_000_000
    seconds: float = 24 * 3600.0


class RedisFeed:
    """Implements `mediator.changes.feed.Feed` in one Redis.

    The client has `SCRIPTS` loaded. It serves the frequent, short calls of relays, which cost a
    fraction of a call through the driver's pool. `naming` is applied to events read.
    """

    def __init__(
        self,
        redis: Redis,
        client: CommandClient,
        retention: Retention | None = None,
        naming: Naming = lambda _, event: event,
    ) -> None:
        self._redis = redis
        self._client = client
        self._retention = retention or Retention()
        self._naming = naming

    async def cursors(self, database: str, system: str) -> Mapping[str, str]:
        return await self._of_system(feed_key(database, "cursors"), system)

    async def create_cursor(self, database: str, source: LogSource, position: str) -> None:
        await reply_of(self._redis.hsetnx(feed_key(database, "cursors"), _field(source), position))

    async def append(
        self,
        database: str,
        batches: Sequence[LogBatch],
        lease: Lease,
        until_tick: int | None = None,
    ) -> int:
        system = batches[0].source.system
        until = "" if until_tick is None else until_tick
        args: list[Any] = [uuid4().hex, lease.token, system, until]
        for batch in batches:
            rows = list(_rows(batch.entries))
            args += (_field(batch.source), batch.after, batch.upto, len(rows))
            args += chain.from_iterable(rows)
        return _check_reply(await self._run("append", database, args, lease.key))

    async def append_newer(
        self, database: str, changes: Sequence[EncodedChange], progress: WriterProgress
    ) -> int:
        writer, count = _writer(progress, database)
        args: list[Any] = [uuid4().hex, writer, count]
        for change in changes:
            args += (_partition(change), _group(change), change.version)
            args += (change.class_name, change.document)
        appended, count = await self._call("append_newer", database, args)
        _check_reply(appended)
        progress.appends[database] = count
        return int(appended)

    async def acknowledged(self, database: str, changes: Sequence[Change]) -> None:
        args = [arg for change in changes for arg in (_group(change), change.version)]
        await self._run("acknowledged", database, args)

    async def publish_progress(
        self, database: str, progress: WriterProgress, until_tick: int
    ) -> None:
        writer, count = _writer(progress, database)
        args = [uuid4().hex, writer, until_tick, count]
        _check_reply(await self._run("publish_progress", database, args))

    async def leave(self, database: str, progress: WriterProgress) -> None:
        writer, _ = _writer(progress, database)
        for name in ("until", "appends"):
            await reply_of(self._redis.hdel(feed_key(database, name), writer))

    async def published_progress(self, database: str, system: str) -> Mapping[str, int]:
        until = await self._of_system(feed_key(database, "until"), system)
        return {replica: int(tick) for replica, tick in until.items() if replica}

    async def retire(self, database: str, system: str, published: Mapping[str, int]) -> None:
        rows = [arg for replica, tick in published.items() for arg in (system, replica, tick)]
        await self._run("retire", database, rows, WRITERS)

    async def relayed_until(self, database: str) -> Mapping[str, int]:
        run, recovered, published = await self._call("relayed_until", database, (), RECOVERED)
        recovered_in = pairs_of(recovered)
        until: dict[str, int] = {}
        for field, tick in pairs_of(published).items():
            system, _, replica = field.partition("/")
            # A log relay publishes for the system; writers count only in a recovered run.
            if not replica or recovered_in.get(system) == run.decode():
                # Each replica appends its own changes: the feed is complete up to the earliest.
                until[system] = min(int(tick), until.get(system, int(tick)))
        return until

    async def tick(self) -> int:
        (number,) = await self._execute(_SCRIPTS["tick"].call([TICKS]))
        return int(number)

    async def read(
        self, database: str, partition: int, after: str, limit: int
    ) -> list[tuple[str, Change]]:
        events = await self.events(database, partition, after, limit)
        return [(event.id, change_from(event.data, database)) for event in events]

    async def events(self, database: str, partition: int, after: str, limit: int) -> list[Event]:
        stream = feed_key(database, partition)
        # In one transaction: entries trimmed in between would be skipped.
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(feed_key(database, "floor"), str(partition))
            pipe.xrange(stream, f"({after}", "+", limit)
            floor, entries = await reply_of(pipe.execute())
        if floor is not None and order_of(after) < order_of(floor.decode()):
            raise PositionGone("Changes after this position are no longer kept.")
        return [self._naming(database, _event(partition, *entry)) for entry in entries]

    async def follow(
        self, database: str, after: Sequence[str], limit: int, wait_s: float
    ) -> list[Event]:
        streams: dict[Any, Any] = {feed_key(database, p): id_ for p, id_ in enumerate(after)}
        # BLOCK 0 would wait for ever.
        block = max(1, round(wait_s * 1000))
        reply = await reply_of(self._redis.xread(streams, limit, block))
        newer = reply.items() if isinstance(reply, dict) else reply or ()
        return [
            self._naming(database, _event(int(stream.rpartition(b":")[2]), *entry))
            for stream, entries in newer
            for entry in entries
        ]

    async def last(self, database: str, partition: int) -> str:
        newest = await reply_of(self._redis.xrevrange(feed_key(database, partition), count=1))
        if newest:
            return str(newest[0][0].decode())
        return await self.oldest(database, partition)

    async def oldest(self, database: str, partition: int) -> str:
        floor = await reply_of(self._redis.hget(feed_key(database, "floor"), str(partition)))
        return floor.decode() if floor else BEGINNING

    async def generation(self, database: str) -> str:
        # The first of several replicas names the generation.
        return str((await self._call("generation", database, [uuid4().hex])).decode())

    async def start_generation(self, database: str) -> None:
        await reply_of(self._redis.set(feed_key(database, "generation"), uuid4().hex))

    async def trim(self, database: str) -> None:
        ((seconds, _),) = await self._execute(command("TIME"))
        # By the clock of the stream ids.
        oldest_ms = max(0, int((int(seconds) - self._retention.seconds) * 1000))
        for partition in range(PARTITIONS):
            args = [partition, self._retention.changes, f"{oldest_ms}-0", _TRIM_BATCH]
            while await self._run("trim", database, args):
                pass

    async def clear(self, database: str) -> None:
        """Remove the keys of a database; those with an expiry are left to expire."""
        keys = [feed_key(database, key) for key in (*range(PARTITIONS), *_PERSISTENT_KEYS)]
        await reply_of(self._redis.unlink(*keys))

    async def _of_system(self, key: str, system: str) -> dict[str, str]:
        """Return the fields of a hash that belong to a system, without its name."""
        values = texts_of(await reply_of(self._redis.hgetall(key)))
        fields = ((field.partition("/"), value) for field, value in values.items())
        return {field: value for (name, _, field), value in fields if name == system}

    async def _run(self, name: str, database: str, args: Iterable[Any], *keys: str) -> int:
        return int(await self._call(name, database, args, *keys) or 0)

    async def _call(self, name: str, database: str, args: Iterable[Any], *keys: str) -> Any:
        call = _SCRIPTS[name].call((feed_key(database, ""), *keys), *args)
        (reply,) = await self._execute(call)
        return reply

    async def _execute(self, call: bytes) -> list[Any]:
        """Execute a call; if the connection breaks it is resent, so any script can run twice."""
        try:
            return await self._client.execute([call])
        except StoreError as error:
            raise unavailable() from error


def _field(source: LogSource) -> str:
    return f"{source.system}/{source.log}"


def _writer(progress: WriterProgress, database: str) -> tuple[str, int]:
    return f"{progress.system}/{progress.replica}", progress.appends.get(database, 0)


def _group(change: Change | EncodedChange) -> str:
    return f"{change.class_name}/{change.object_id}#{change.group}"


def _partition(change: Change | EncodedChange) -> int:
    return partition_of(change.class_name, change.object_id)


def _rows(entries: Sequence[tuple[str, Change]]) -> Iterator[tuple[int, str, str, bytes]]:
    """Yield for each partition its positions, classes and documents, one per line.

    Encoding many arguments takes longer than all else here; a document in JSON is one line.
    """
    rows: list[tuple[list[str], list[str], list[bytes]]]
    rows = [([], [], []) for _ in range(PARTITIONS)] if entries else []
    for position, change in entries:
        positions, classes, documents = rows[_partition(change)]
        positions.append(position)
        classes.append(change.class_name)
        documents.append(document_of(change))
    for partition, (positions, classes, documents) in enumerate(rows):
        if documents:
            yield partition, "\n".join(positions), "\n".join(classes), b"\n".join(documents)


def _check_reply(reply: int) -> int:
    if reply == _LEASE_LOST:
        raise LeaseLost
    if reply == _ROLLED_BACK:
        raise FeedRolledBack
    return reply


def _event(partition: int, id_: bytes, fields: Mapping[bytes, bytes]) -> Event:
    return Event(partition, id_.decode(), fields[b"k"].decode(), fields[b"c"])
