"""The feed in Redis: a stream for each partition, and hashes that move with them.

A database is named by its id, so that the feed of a later one of the same name is another. All keys
of a database share one hash tag, so that one script sees them all:

| key | what it holds |
|---|---|
| `{portolan:feed:<database>}:<partition>` | stream: class `k`, document `c` of each change |
| `…:cursors` | hash: position in each log, by system and log |
| `…:until` | hash: tick up to which the feed is complete, by system and replica |
| `…:appends` | hash: how often each replica has appended changes that waited in records |
| `…:retired:<period>` | the same of replicas that were retired, until it expires |
| `…:versions` | hash: last version of each group whose changes wait in records |
| `…:versions:<period>` | the same of those that are acknowledged, until it expires |
| `…:floor` | hash: id of the last change removed, by partition |
| `…:generation` | the feed's generation |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final
from uuid import uuid4

from redis.asyncio import Redis

from mediator.base.lease import Lease
from mediator.changes.document import change_from, document_of
from mediator.changes.feed import (
    BEGINNING,
    PARTITIONS,
    Event,
    FeedRolledBack,
    LeaseLost,
    LogBatch,
    PositionGone,
    Source,
    WriterProgress,
    partition_of,
)
from mediator.coordination.errors import pairs_of, reply_of, unavailable
from mediator.coordination.scripts import TICKS, script_of
from mediator.coordination.writers import RECOVERED, WRITERS
from mediator.model.change import Change
from mediator.stores.port import StoreError
from mediator.stores.redis.client import CommandClient
from redis_connection.commands import command

__all__ = ["SCRIPTS", "RedisFeed", "Retention"]

_NAMES: Final = (
    *("append", "append_newer", "acknowledged", "publish_progress"),
    *("relayed_until", "retire", "tick", "trim"),
)
_SCRIPTS: Final = {name: script_of(name) for name in _NAMES}
SCRIPTS: Final = tuple(_SCRIPTS.values())
"""The scripts that the feed calls."""

_KEPT: Final = (
    *("cursors", "until", "appends", "versions", "floor", "generation"),
    *("view", "reports"),  # of `RedisViewState`, beside the feed
)
"""Keys of a feed besides its streams and those that expire."""

_LEASE_LOST: Final = -1
_WENT_BACK: Final = -2
_TRIMMED_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Retention:
    """What the feed keeps: changes of one partition, and for how many seconds."""

    changes: int = 1_000_000
    seconds: float = 24 * 3600.0


class RedisFeed:
    """The feeds of all databases in one Redis; see `mediator.changes.feed.Feed`.

    The client knows `SCRIPTS`. It is for the calls that relays make all the time: they are short,
    and cost a fraction of one through the driver's pool.
    """

    def __init__(
        self, redis: Redis, client: CommandClient, retention: Retention | None = None
    ) -> None:
        self._redis = redis
        self._client = client
        self._retention = retention or Retention()

    async def cursors(self, database: str, system: str) -> Mapping[str, str]:
        """Return the cursors of a system's logs, by log."""
        cursors = await reply_of(self._redis.hgetall(_key(database, "cursors")))
        fields = ((k.decode().partition("/"), v.decode()) for k, v in cursors.items())
        return {log: cursor for (name, _, log), cursor in fields if name == system}

    async def create_cursor(self, database: str, source: Source, position: str) -> None:
        """Set the cursor of a log that has none."""
        await reply_of(self._redis.hsetnx(_key(database, "cursors"), _field(source), position))

    async def append(
        self,
        database: str,
        batches: Sequence[LogBatch],
        lease: Lease,
        until_tick: int | None = None,
    ) -> int:
        """Append what is beyond the cursors and move them, all in one step."""
        system = batches[0].source.system
        until = "" if until_tick is None else until_tick
        args: list[Any] = [uuid4().hex, lease.token, system, until]
        for each in batches:
            rows = list(_rows(each.entries))
            args += (_field(each.source), each.after, each.upto, len(rows))
            args += chain.from_iterable(rows)
        return _checked(await self._run("append", database, args, lease.key))

    async def append_newer(
        self, changes: Sequence[Change], progress: WriterProgress | None = None
    ) -> int:
        """Append changes, in order, whose version is above the last one of their group."""
        appended = 0
        for database, own in _by_database(changes).items():
            writer, count = _writer(progress, database)
            args: list[Any] = [uuid4().hex, writer, count]
            for change in own:
                args += (_partition(change), _group(change), change.version)
                args += (change.class_name, document_of(change))
            new, count = await self._call("append_newer", database, args)
            appended += _checked(new)
            if progress is not None:
                progress.appends[database] = count
        return appended

    async def acknowledged(self, changes: Sequence[Change]) -> None:
        """Let the last versions of these changes expire: their outbox was acknowledged."""
        for database, own in _by_database(changes).items():
            args = [arg for change in own for arg in (_group(change), change.version)]
            await self._run("acknowledged", database, args)

    async def publish_progress(
        self, database: str, progress: WriterProgress, until_tick: int
    ) -> None:
        """Publish that the feed has every change that a replica made before `until_tick`."""
        writer, count = _writer(progress, database)
        args = [uuid4().hex, writer, until_tick, count]
        _checked(await self._run("publish_progress", database, args))

    async def leave(self, database: str, progress: WriterProgress) -> None:
        """Remove a replica that has appended all its changes and writes no more."""
        writer, _ = _writer(progress, database)
        for name in ("until", "appends"):
            await reply_of(self._redis.hdel(_key(database, name), writer))

    async def published_progress(self, database: str, system: str) -> Mapping[str, int]:
        """Return for each replica of a system the last tick it published."""
        until = await reply_of(self._redis.hgetall(_key(database, "until")))
        fields = ((field.decode().partition("/"), int(tick)) for field, tick in until.items())
        return {replica: tick for (name, _, replica), tick in fields if replica and name == system}

    async def retire(self, database: str, system: str, published: Mapping[str, int]) -> None:
        """Remove replicas that are not registered any more, after a sweep of what they wrote."""
        rows = [each for replica, tick in published.items() for each in (system, replica, tick)]
        await self._run("retire", database, rows, WRITERS)

    async def relayed_until(self, database: str) -> Mapping[str, int]:
        """Return for each system the tick before which all that was acknowledged is here."""
        run, recovered, published = await self._call("relayed_until", database, (), RECOVERED)
        recovered_in = pairs_of(recovered)
        until: dict[str, int] = {}
        for field, tick in pairs_of(published).items():
            system, _, replica = field.partition("/")
            if not replica or recovered_in.get(system) == run.decode():
                until[system] = min(int(tick), until.get(system, int(tick)))
        return until

    async def tick(self) -> int:
        """Return the next tick."""
        (number,) = await self._execute(_SCRIPTS["tick"].call([TICKS]))
        return int(number)

    async def read(
        self, database: str, partition: int, after: str, limit: int
    ) -> list[tuple[str, Change]]:
        """Return up to `limit` changes of a partition beyond a stream id, with theirs."""
        events = await self.events(database, partition, after, limit)
        return [(event.id, change_from(event.data, database)) for event in events]

    async def events(self, database: str, partition: int, after: str, limit: int) -> list[Event]:
        """Return the same as `read` for subscribers."""
        # What is removed after the stream was read was not beyond what was read.
        stream = _key(database, partition)
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(_key(database, "floor"), str(partition))
            pipe.xrange(stream, f"({after}", "+", limit)
            floor, entries = await reply_of(pipe.execute())
        if floor is not None and _order(after) < _order(floor.decode()):
            raise PositionGone("Changes after this position are no longer kept.")
        return [_event(partition, *entry) for entry in entries]

    async def follow(
        self, database: str, after: Sequence[str], limit: int, wait_s: float
    ) -> list[Event]:
        """Wait up to `wait_s` for events beyond a stream id in each partition."""
        streams: dict[Any, Any] = {_key(database, p): id_ for p, id_ in enumerate(after)}
        block = max(1, round(wait_s * 1000))
        reply = await reply_of(self._redis.xread(streams, limit, block))
        newer = reply.items() if isinstance(reply, dict) else reply or ()
        return [
            _event(int(stream.rpartition(b":")[2]), *entry)
            for stream, entries in newer
            for entry in entries
        ]

    async def last(self, database: str, partition: int) -> str:
        """Return the stream id of the newest change there ever was in a partition."""
        newest = await reply_of(self._redis.xrevrange(_key(database, partition), count=1))
        if newest:
            return str(newest[0][0].decode())
        return await self.oldest(database, partition)

    async def oldest(self, database: str, partition: int) -> str:
        """Return the stream id after which every change is kept."""
        floor = await reply_of(self._redis.hget(_key(database, "floor"), str(partition)))
        return floor.decode() if floor else BEGINNING

    async def generation(self, database: str) -> str:
        """Return the feed's generation; in another one, former positions are gone."""
        key = _key(database, "generation")
        await reply_of(self._redis.set(key, uuid4().hex, nx=True))
        return str((await reply_of(self._redis.get(key)) or b"").decode())

    async def start_generation(self, database: str) -> None:
        """Start another generation: changes are missing that cannot be appended any more."""
        await reply_of(self._redis.set(_key(database, "generation"), uuid4().hex))

    async def trim(self, database: str) -> None:
        """Remove what is beyond the retention."""
        ((seconds, _),) = await self._execute(command("TIME"))
        oldest_ms = max(0, int((int(seconds) - self._retention.seconds) * 1000))
        for partition in range(PARTITIONS):
            args = [partition, self._retention.changes, f"{oldest_ms}-0", _TRIMMED_AT_ONCE]
            while await self._run("trim", database, args):
                pass

    async def clear(self, database: str) -> None:
        """Remove all there is of a database that was dropped; what expires goes by itself."""
        keys = [_key(database, what) for what in (*range(PARTITIONS), *_KEPT)]
        await reply_of(self._redis.unlink(*keys))

    async def _run(self, name: str, database: str, args: Iterable[Any], *keys: str) -> int:
        return int(await self._call(name, database, args, *keys) or 0)

    async def _call(self, name: str, database: str, args: Iterable[Any], *keys: str) -> Any:
        call = _SCRIPTS[name].call((_key(database, ""), *keys), *args)
        (reply,) = await self._execute(call)
        return reply

    async def _execute(self, call: bytes) -> list[Any]:
        """Call; once more if the connection breaks, for every script may be called twice."""
        try:
            return await self._client.execute([call])
        except StoreError as error:
            raise unavailable() from error


def _key(database: str, what: str | int) -> str:
    return f"{{portolan:feed:{database}}}:{what}"


def _field(source: Source) -> str:
    return f"{source.system}/{source.log}"


def _writer(progress: WriterProgress | None, database: str) -> tuple[str, int]:
    """Name a writer, and how often it has appended to the feed of a database."""
    if progress is None:
        return "", 0
    return f"{progress.system}/{progress.replica}", progress.appends.get(database, 0)


def _group(change: Change) -> str:
    return f"{change.class_name}/{change.object_id}#{change.group}"


def _partition(change: Change) -> int:
    return partition_of(change.class_name, change.object_id)


def _rows(entries: Sequence[tuple[str, Change]]) -> Iterator[tuple[int, str, str, bytes]]:
    """Yield for each partition its positions, classes and documents, as lines.

    To pack many arguments takes longer than anything else here, and a document in JSON is one line.
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


def _by_database(changes: Sequence[Change]) -> Mapping[str, list[Change]]:
    databases: defaultdict[str, list[Change]] = defaultdict(list)
    for change in changes:
        databases[change.database_id].append(change)
    return databases


def _checked(reply: int) -> int:
    if reply == _LEASE_LOST:
        raise LeaseLost
    if reply == _WENT_BACK:
        raise FeedRolledBack
    return reply


def _event(partition: int, id_: bytes, fields: Mapping[bytes, bytes]) -> Event:
    return Event(partition, id_.decode(), fields[b"k"].decode(), fields[b"c"])


def _order(stream_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = stream_id.partition("-")
    return int(milliseconds), int(sequence)
