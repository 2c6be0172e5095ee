"""Counts of the matches of a filter, over a million objects, against each store's own statement.

The mediator is called in process, as the service calls it. Its counts are those of totals and of
aggregates alike. `--objects` sets the number of objects (1,000,000 by default; quick: 10,000);
a stand-in for MongoDB that has no indexes gets 10,000 at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import asyncpg
import redis.asyncio
from pymongo import ASCENDING, AsyncMongoClient

from app.commands.demo.failed import Failed
from benchmarks.harness.report import Measured, Options, Result, medians, timed_ms
from benchmarks.harness.shared_servers import (
    SharedService,
    field_on,
    object_limit,
    shared_service,
    state_metrics,
)
from mediator.embedded.port import Kind
from mediator.query.execution import QueryResult
from mediator.query.parser import parse_query_document

__all__ = ["run"]

_BAR: Final = 1.5
_OBJECTS: Final = 1_000_000
_QUICK_OBJECTS: Final = 10_000
_BATCH: Final = 5_000
_CLASS: Final = "things"
_SHARES: Final = 10
"""Values of the grouping field: each object has one of them, in turn."""

_COUNT_ALL: Final = {"aggregate": {"compute": {"n": {"count": "*"}}}}
_ONE_SHARE: Final = 3
_COUNT_SHARE: Final = {**_COUNT_ALL, "filter": {"eq": ["share", _ONE_SHARE]}}
_COUNT_GROUPS: Final = {"aggregate": {"group": ["share"], "compute": {"n": {"count": "*"}}}}
_ESTIMATE: Final = {"count": "estimated", "limit": 1, "fields": ["id"]}

_Count = Callable[[], Awaitable[int]]


class _Driver(Protocol):
    """A driver with its own copy of the data; ids are ``t0`` and so on."""

    async def open(self, url: str) -> None: ...

    async def load(self, objects: range) -> None: ...

    async def finish_load(self) -> None:
        """Finish the load after the last object."""

    async def count(self) -> int: ...

    async def count_some(self) -> int:
        """Count the objects of one share."""

    async def count_groups(self) -> int:
        """Count the objects of each share; returns how many shares there are."""

    async def close(self) -> None: ...


class _Postgres:
    async def open(self, url: str) -> None:
        self._connection = await asyncpg.connect(url)
        await self._connection.execute(
            'CREATE TABLE bare (id text COLLATE "C" PRIMARY KEY, share bigint)'
        )

    async def load(self, objects: range) -> None:
        rows = [(f"t{number}", number % _SHARES) for number in objects]
        await self._connection.copy_records_to_table("bare", records=rows)

    async def finish_load(self) -> None:
        await self._connection.execute("CREATE INDEX ON bare (share)")
        # Both tables: otherwise the server would do it at any time.
        await self._connection.execute("VACUUM ANALYZE")

    async def count(self) -> int:
        return int(await self._connection.fetchval("SELECT count(*) FROM bare"))

    async def count_some(self) -> int:
        text = "SELECT count(*) FROM bare WHERE share = $1"
        return int(await self._connection.fetchval(text, _ONE_SHARE))

    async def count_groups(self) -> int:
        return len(
            await self._connection.fetch("SELECT share, count(*) FROM bare GROUP BY 1 ORDER BY 1")
        )

    async def close(self) -> None:
        await self._connection.close()


class _Mongo:
    async def open(self, url: str) -> None:
        self._client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, w=1)
        self._things = self._client["native"]["bare"]

    async def load(self, objects: range) -> None:
        rows = [{"_id": f"t{number}", "share": number % _SHARES} for number in objects]
        await self._things.insert_many(rows)

    async def finish_load(self) -> None:
        await self._things.create_index([("share", ASCENDING)])

    async def count(self) -> int:
        return await self._things.count_documents({})

    async def count_some(self) -> int:
        return await self._things.count_documents({"share": _ONE_SHARE})

    async def count_groups(self) -> int:
        grouped = await self._things.aggregate([{"$group": {"_id": "$share", "n": {"$sum": 1}}}])
        return len(await grouped.to_list())

    async def close(self) -> None:
        await self._client.close()


class _Redis:
    async def open(self, url: str) -> None:
        self._client: Any = redis.asyncio.Redis.from_url(url)

    async def load(self, objects: range) -> None:
        await self._client.sadd("bare", *(f"t{number}" for number in objects))
        await self._client.zadd("bare.share", {f"t{n}": n % _SHARES for n in objects})

    async def finish_load(self) -> None:
        """Do nothing: indexes are filled with the objects."""

    async def count(self) -> int:
        return int(await self._client.scard("bare"))

    async def count_some(self) -> int:
        return int(await self._client.zcount("bare.share", _ONE_SHARE, _ONE_SHARE))

    async def count_groups(self) -> int:
        """Count each share as if it were known: the server has no groups."""
        pipeline = self._client.pipeline(transaction=False)
        for share in range(_SHARES):
            pipeline.zcount("bare.share", share, share)
        return len(await pipeline.execute())

    async def close(self) -> None:
        await self._client.aclose()


_DRIVERS: Final[Mapping[Kind, Callable[[], _Driver]]] = {
    "redis": _Redis,
    "postgresql": _Postgres,
    "mongodb": _Mongo,
}


@dataclass(frozen=True, slots=True)
class _Store:
    """A database on one kind of system, and the driver that it is compared with."""

    running: SharedService
    kind: Kind
    driver: _Driver
    objects: int

    @property
    def database(self) -> str:
        return f"counted_{self.kind}"

    async def fill(self) -> None:
        share = {"type": "integer", "index": True, **field_on(self.kind)}
        classes = {_CLASS: {"fields": {"share": share}}}
        service = self.running.service
        await service.set_schema(self.database, {"mode": "mixed", "classes": classes})
        for first in range(0, self.objects, _BATCH):
            numbers = range(first, min(first + _BATCH, self.objects))
            batch = {f"t{number}": {"share": number % _SHARES} for number in numbers}
            await service.create(self.database, {_CLASS: batch})
            await self.driver.load(numbers)
        await self.driver.finish_load()
        await service.caught_up()

    def querying(self, body: Mapping[str, Any]) -> Callable[[], Awaitable[QueryResult]]:
        plane = self.running.plane
        schema = plane.model.databases[self.database].schema
        # Once: the service caches parsed queries.
        query = parse_query_document(body, schema, _CLASS).query
        return partial(plane.query, query)

    def counting(self, body: Mapping[str, Any]) -> _Count:
        """Return a function that counts the objects, or the groups."""
        execute = self.querying(body)

        async def count() -> int:
            rows = (await execute()).rows
            return int(str(rows[0].computed["n"])) if len(rows) == 1 else len(rows)

        return count


async def run(options: Options) -> Measured:
    objects = options.objects or (_QUICK_OBJECTS if options.quick else _OBJECTS)
    async with shared_service() as running:
        await state_metrics(running.service)
        results: list[Result] = []
        for kind, server in running.servers.items():
            store = _Store(running, kind, _DRIVERS[kind](), object_limit(server, objects))
            await store.driver.open(server.url)
            try:
                await store.fill()
                results += await _measure(options, store)
            finally:
                await store.driver.close()
        return Measured(results, await running.service.versions())


async def _measure(options: Options, store: _Store) -> list[Result]:
    cases: dict[str, tuple[Mapping[str, Any], _Count]] = {
        "all objects": (_COUNT_ALL, store.driver.count),
        "one in ten": (_COUNT_SHARE, store.driver.count_some),
        "objects by group": (_COUNT_GROUPS, store.driver.count_groups),
    }
    results = []
    for name, (body, bare) in cases.items():
        ours = store.counting(body)
        if await ours() != await bare():
            raise Failed(f"{name} on {store.kind}: the counts differ")
        title = f"{name}, {store.objects:,} on {store.kind}"
        results.append(await _compare(options, title, ours, bare, _BAR))
    estimate, bare = store.querying(_ESTIMATE), store.driver.count
    name = f"a page and the estimated total, {store.objects:,} on {store.kind}"
    return [*results, await _compare(options, name, estimate, bare, None)]


async def _compare(
    options: Options,
    name: str,
    ours: Callable[[], Awaitable[object]],
    bare: Callable[[], Awaitable[object]],
    bar: float | None,
) -> Result:
    """Compare the median times of a count, ours and the driver's."""
    rounds = 11 if options.quick else 21
    measures = {"ours": partial(timed_ms, ours), "bare": partial(timed_ms, bare)}
    times = await medians(rounds, measures)
    result = Result(name, "ms", times["ours"], times["bare"], bar, small_is_good=True)
    options.note(f"{name}: {times['ours']:.2f} ms against {times['bare']:.2f} ms")
    return result
