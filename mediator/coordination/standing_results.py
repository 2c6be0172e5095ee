"""Standing queries in the coordination Redis.

All keys of a database share one hash tag, so that one script sees them all:

| key | content |
|---|---|
| `portolan:standing` | set: databases that have standing queries |
| `{portolan:standing:<database>}:queries` | hash: the document of each query |
| `…:states` | hash: the state of each query that is no longer building |
| `…:counts` | hash: the number of the last result of each query |
| `…:digests` | hash: the position after the last result of each query |
| `…:pauses` | hash: the pause of each query, see `scripts/pauses.lua` |
| `…:deliveries` | hash: the last result of each query that was appended to a stream |
| `…:published` | hash: `sequence` of the last batch, `progress`, `revision` of the queries |
| `…:batches` | stream: `tuples` of each relation in a batch, by its sequence and the relation |
| `…:results:<query>` | stream: results, by their number |
| `…:report` | the executed plan, as JSON |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from mediator.base.lease import Lease, LeaseLost
from mediator.coordination.definitions import Definition, Definitions
from mediator.coordination.errors import entries_of, reply_of, texts_of
from mediator.coordination.pauses import Pauses
from mediator.coordination.result_positions import last_position, require_following
from mediator.coordination.scripts import text_of
from mediator.model.pause import Pause
from mediator.model.result_position import ResultPosition
from mediator.standing.results import (
    MAX_RESULTS,
    Delivery,
    LogEntry,
    LoggedBatch,
    LoggedTuple,
    Offset,
    Progress,
    Publication,
    Published,
    QueryKey,
    QueryState,
    StoredQuery,
    StoredResult,
)

__all__ = ["RedisStandingResults"]

_ENTRIES_AT_ONCE: Final = 100
_LEASE_LOST: Final = -1
_REFUSED: Final = -1
"""Follows the number of the last delivered result if the class refuses the next one."""
_REPORT: Final = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return end
redis.call('SET', KEYS[1], ARGV[2])
"""


_DELIVERY: Final = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
if redis.call('HEXISTS', KEYS[1] .. 'queries', ARGV[2]) == 1 then
  redis.call('HSET', KEYS[1] .. 'deliveries', ARGV[2], ARGV[3])
end
return 1
"""


class RedisStandingResults:
    """Implements `mediator.standing.results.StandingResults` in one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._definitions = Definitions(redis, "portolan:standing", "queries")
        self._base = self._definitions.base
        self._publish = redis.register_script(text_of("digests", "standing_publish"))
        self._report = redis.register_script(_REPORT)
        self._delivery = redis.register_script(_DELIVERY)
        self._pauses = Pauses(redis, text_of("pauses", "standing_pause"))

    async def put_query(self, key: QueryKey, query: StoredQuery, limit: int) -> bool:
        document = {
            "query": query.document,
            "relations": query.relations,
            "into": query.into,
            "administered": sorted(query.administered),
            "created": query.created.timestamp(),
        }
        return await self._definitions.put(key.database, key.query, document, limit)

    async def databases(self) -> set[str]:
        return await self._definitions.databases()

    async def queries(self, database: str) -> dict[str, StoredQuery]:
        definitions = await self._definitions.all(database)
        return {id_: _query(definition) for id_, definition in definitions.items()}

    async def query(self, key: QueryKey) -> StoredQuery | None:
        definitions = await self._definitions.find(key.database, [key.query])
        return _query(definitions[key.query]) if definitions else None

    async def drop_query(self, key: QueryKey) -> bool:
        hashes = ("counts", "digests", "deliveries", "pauses")
        return await self._definitions.drop(key.database, key.query, ["results"], hashes)

    async def clear(self, database: str) -> None:
        for id_ in await self._definitions.ids(database):
            await self.drop_query(QueryKey(database, id_))
        await self._definitions.forget(database, ("batches", "report"))

    async def published(self, database: str) -> Published:
        fields = texts_of(await reply_of(self._redis.hgetall(f"{self._base(database)}published")))
        progress = _progress(fields.get("progress"))
        return Published(int(fields.get("sequence", 0)), int(fields.get("revision", 0)), progress)

    async def batches(self, database: str) -> AsyncIterator[LoggedBatch]:
        sequence, rows = 0, list[Any]()
        async for id_, fields in self._entries(f"{self._base(database)}batches"):
            if _number(id_) != sequence:
                if rows:
                    yield LoggedBatch(sequence, _tuples(rows))
                sequence, rows = _number(id_), []
            rows += orjson.loads(fields[b"tuples"])
        if rows:
            yield LoggedBatch(sequence, _tuples(rows))

    async def _entries(self, key: str) -> AsyncIterator[tuple[bytes, Mapping[bytes, bytes]]]:
        after = "-"
        while True:
            entries = await reply_of(self._redis.xrange(key, after, "+", _ENTRIES_AT_ONCE))
            for entry in entries:
                yield entry
            if len(entries) < _ENTRIES_AT_ONCE:
                return
            after = f"({entries[-1][0].decode()}"

    async def publish(
        self, database: str, lease: Lease, sequence: int, publication: Publication
    ) -> None:
        entries = _rows_by_id(sequence + 1, publication.tuples)
        forgotten = [_entry_id(entry) for entry in publication.forgotten]
        args: list[Any] = [lease.token, sequence, _text(publication.progress)]
        args += (publication.keep_from, MAX_RESULTS, len(entries), len(forgotten))
        for id_, rows in entries.items():
            args += (id_, orjson.dumps(rows))
        args += forgotten
        for id_ in publication.states.keys() | publication.results.keys():
            state, results = publication.states.get(id_), publication.results.get(id_, ())
            args += (
                id_,
                "" if state is None else _state(state),
                len(results),
                *results,
            )
        keys = [self._base(database), lease.key]
        if await reply_of(self._publish(keys=keys, args=args)) == _LEASE_LOST:
            raise LeaseLost

    async def last_result(self, key: QueryKey) -> ResultPosition:
        digests = f"{self._base(key.database)}digests"
        return last_position(await reply_of(self._redis.hget(digests, key.query)))

    async def results(
        self, key: QueryKey, after: ResultPosition, limit: int, wait_s: float = 0.0
    ) -> list[StoredResult]:
        base = self._base(key.database)
        name = f"{base}results:{key.query}"
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hget(f"{base}digests", key.query)
            pipe.xrange(name, f"{after.number + 1}-0", "+", limit)
            last, entries = await reply_of(pipe.execute())
        results = _results(entries)
        _require_following(after, last_position(last), results)
        if not results and wait_s > 0:
            block = max(1, round(wait_s * 1000))
            reply = await reply_of(self._redis.xread({name: f"{after.number}-0"}, limit, block))
            if results := _results(entries_of(reply)):
                # Another server may have taken over by now.
                _require_following(after, results[-1].position, results)
        return results

    async def pause(self, key: QueryKey, pause: Pause) -> bool | None:
        return await self._pauses.begin(self._base(key.database), key.query, pause)

    async def resume(self, key: QueryKey) -> bool:
        return await self._pauses.resume(self._base(key.database), key.query)

    async def end_pauses(self, database: str, before: int) -> None:
        await self._pauses.end([self._base(database)], before)

    async def pauses(self, database: str) -> dict[str, Pause]:
        return await self._pauses.lasting(self._base(database))

    async def deliveries(self, database: str) -> dict[str, Delivery]:
        texts = texts_of(await reply_of(self._redis.hgetall(f"{self._base(database)}deliveries")))
        return {id_: _delivery(text) for id_, text in texts.items()}

    async def put_delivery(self, key: QueryKey, lease: Lease, delivery: Delivery) -> None:
        args = [lease.token, key.query, _delivery_text(delivery)]
        keys = [self._base(key.database), lease.key]
        if await reply_of(self._delivery(keys=keys, args=args)) == _LEASE_LOST:
            raise LeaseLost

    async def put_report(self, database: str, lease: Lease, report: bytes) -> None:
        keys = [f"{self._base(database)}report", lease.key]
        await reply_of(self._report(keys=keys, args=[lease.token, report]))

    async def report(self, database: str) -> bytes | None:
        report: bytes | None = await reply_of(self._redis.get(f"{self._base(database)}report"))
        return report


def _query(definition: Definition) -> StoredQuery:
    document, state = definition
    query_state = QueryState() if state is None else QueryState(*orjson.loads(state))
    relations = tuple(document["relations"])
    return StoredQuery(
        document["query"],
        relations,
        query_state,
        document["into"],
        frozenset(document["administered"]),
        definition.created,
    )


def _delivery(text: str) -> Delivery:
    delivered, until = map(int, text.split())
    return Delivery(delivered, is_refused=until == _REFUSED)


def _delivery_text(delivery: Delivery) -> str:
    return f"{delivery.done} {_REFUSED if delivery.is_refused else delivery.done}"


def _state(state: QueryState) -> bytes:
    return orjson.dumps([state.name, state.detail, dict(state.numbers)])


def _text(progress: Progress) -> bytes:
    offsets = {name: list(offset) for name, offset in progress.offsets.items()}
    return orjson.dumps([progress.latest_s, offsets, progress.feed])


def _progress(text: str | None) -> Progress:
    if text is None:
        return Progress()
    latest_s, offsets, feed = orjson.loads(text)
    # JSON has no infinity: null stands for it.
    latest_s = float("-inf") if latest_s is None else latest_s
    return Progress(latest_s, {name: Offset(*offset) for name, offset in offsets.items()}, feed)


def _rows_by_id(sequence: int, tuples: Sequence[LoggedTuple]) -> dict[str, list[Any]]:
    """Return the entries of a batch in the order of ids, as rows with their positions."""
    by_stream: defaultdict[str, list[Any]] = defaultdict(list)
    for position, t in enumerate(tuples):
        row = (position, t.stream, t.time_s, dict(t.values), t.number, t.versions)
        by_stream[t.stream].append(row)
    by_id = {_entry_id(LogEntry(sequence, name)): rows for name, rows in by_stream.items()}
    return dict(sorted(by_id.items(), key=lambda item: int(item[0].partition("-")[2])))


def _entry_id(entry: LogEntry) -> str:
    """Return the id of an entry, derived from 64 bits of a digest rather than looked up."""
    digest = blake2b(entry.relation.encode(), digest_size=8).digest()
    return f"{entry.sequence}-{int.from_bytes(digest)}"


def _tuples(rows: Sequence[Any]) -> list[LoggedTuple]:
    return [LoggedTuple(*row) for _, *row in sorted(rows, key=itemgetter(0))]


def _results(entries: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> list[StoredResult]:
    return [
        StoredResult(_number(id_), fields[b"r"], fields[b"d"].decode()) for id_, fields in entries
    ]


def _require_following(
    after: ResultPosition, last: ResultPosition, results: Sequence[StoredResult]
) -> None:
    first = (results[0].position, results[0].document) if results else None
    require_following(after, last, first)


def _number(id_: bytes) -> int:
    return int(id_.partition(b"-")[0])
