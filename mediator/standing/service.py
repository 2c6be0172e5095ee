"""Standing queries of an installation: definitions, results, plans, and their holders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

import orjson

from mediator.base.errors import Conflict, Invalid, Location, NotFound
from mediator.base.holding import Holders
from mediator.base.observation import StandingQueriesCounted
from mediator.base.offload import offload
from mediator.base.periodic_tasks import PeriodicTask
from mediator.data_plane.port import Admitted, DataPlane, at_once, is_outdated
from mediator.event_streams.port import EventStream, StreamKey
from mediator.model.pause import Pause
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute
from mediator.standing.class_deliveries import ClassDeliveries
from mediator.standing.context import HolderContext
from mediator.standing.holder import StandingHolder
from mediator.standing.lag import lag_of
from mediator.standing.needs import Needs, needs_of, stream_into
from mediator.standing.planning import Mode
from mediator.standing.query import Source, StandingQuery, feeds_itself
from mediator.standing.query_parser import DEFAULT_MAX_LAG
from mediator.standing.replanning import plans_of, workload_of
from mediator.standing.report import add_measurements, describe
from mediator.standing.results import (
    BEHIND,
    QueryKey,
    QueryState,
    StandingResults,
    StoredQuery,
    StoredResult,
)
from mediator.standing.sampling import Sampling

__all__ = [
    "MAX_QUERIES",
    "StandingLoad",
    "StandingQueries",
    "StandingState",
    "load_document",
    "query_document",
]

MAX_QUERIES: Final = 100
"""Standing queries of a database."""

_RECONCILE_EVERY_S: Final = 0.5


class StandingLoad(NamedTuple):
    """Measurements of a query.

    Attributes:
        lag: Tuples of its relations that it has not executed.
        max_lag: The lag above which it is late, in tuples.
        pause: The pause by a rule of admission control; None: not paused.
    """

    lag: int
    max_lag: int
    pause: Pause | None


class StandingState(NamedTuple):
    """A query with its measurements; `database` is the name."""

    id: str
    database: str
    query: StoredQuery
    load: StandingLoad

    @property
    def late(self) -> int:
        """Tuples beyond its maximum lag; 0 while it is behind because of a pause."""
        if self.query.state.name in BEHIND:
            return 0
        return max(0, self.load.lag - self.load.max_lag)


@dataclass(eq=False)
class StandingQueries:
    """Serves standing queries, whichever replica holds them.

    Attributes:
        admitted: Admits writes to classes; the composition root sets it.
    """

    _context: HolderContext
    # By a factory: a function as a class attribute would be bound as a method.
    admitted: Admitted = field(default_factory=lambda: at_once, init=False)
    _holders: Holders[str] = field(default_factory=Holders, init=False)
    _deliveries: Holders[str] = field(default_factory=Holders, init=False)
    _planning: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Serialises requests for plans: each takes seconds of a processor."""

    def relaying_tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks of the process that relays, which executes queries as well."""
        name = "reconcile holders of standing queries"
        return [PeriodicTask(name, _RECONCILE_EVERY_S, self.reconcile)]

    def serving_tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks of a replica that serves, which writes objects."""
        name = "reconcile deliveries into classes"
        return [PeriodicTask(name, _RECONCILE_EVERY_S, self.reconcile_deliveries)]

    @property
    def _results(self) -> StandingResults:
        return self._context.results

    async def streams(self, database: DatabaseRoute) -> dict[str, EventStream]:
        """Return the event streams that a query can read."""
        return await self._context.streams.of_database(database.id)

    async def create(
        self, database: DatabaseRoute, query: StandingQuery, administered: Iterable[str]
    ) -> tuple[str, StoredQuery]:
        """Store a query, which is executed from now on; return it with its id.

        Args:
            database: The query's database.
            query: The query to create.
            administered: Classes that its creator may administer.

        Raises:
            Conflict: The database has too many queries.
            Invalid: Its results would return to it.
        """
        streams = await self.streams(database)
        needs = await self._needs(await self.of_database(database), database, streams)
        if feeds_itself(query, needs.queries.values()):
            assert query.into is not None
            pointer = f"/into/{query.into.target.kind}"
            locations = [Location(pointer, "leads back to what the query reads")]
            raise Invalid("Results of a query must not come back to it.", locations=locations)
        key = QueryKey(database.id, uuid4().hex)
        relations, into = tuple(sorted(query.join.relations)), stream_into(query, streams)
        created = datetime.fromtimestamp(self._context.clock.now(), UTC)
        stored = StoredQuery(
            query.document, relations, QueryState(), into, frozenset(administered), created
        )
        if not await self._results.put_query(key, stored, MAX_QUERIES):
            raise Conflict(f"A database has {MAX_QUERIES:,} standing queries at most.")
        return key.query, stored

    async def of_database(self, database: DatabaseRoute) -> dict[str, StoredQuery]:
        """Return the queries of a database by id."""
        return await self._results.queries(database.id)

    async def find(self, database: DatabaseRoute, query: str) -> StoredQuery:
        """Raises `NotFound`."""
        stored = await self._results.query(QueryKey(database.id, query))
        if stored is None:
            raise _not_found()
        return stored

    async def drop(self, database: DatabaseRoute, query: str) -> None:
        """Remove a query with its results; raises `NotFound`."""
        if not await self._results.drop_query(QueryKey(database.id, query)):
            raise _not_found()

    async def loads(
        self, database: str, queries: Mapping[str, StoredQuery]
    ) -> dict[str, StandingLoad]:
        """Measure the queries of a database, given by its id."""
        results, streams = self._context.results, self._context.streams
        # Before the streams: a lag may be overestimated, but is never negative.
        progress = (await results.published(database)).progress
        pauses = await results.pauses(database)
        sources = {Source.of(name) for stored in queries.values() for name in stored.relations}
        names = sorted(source.name for source in sources if source.kind == "stream")
        numbers = await asyncio.gather(*(streams.last(StreamKey(database, name)) for name in names))
        lasts = dict(zip(names, numbers, strict=True))
        return {
            id_: StandingLoad(
                lag_of(stored, progress, lasts),
                stored.document.get("max_lag", DEFAULT_MAX_LAG),
                pauses.get(id_),
            )
            for id_, stored in queries.items()
        }

    async def states(self) -> list[StandingState]:
        """Return the queries of all databases, with their measurements."""
        states: list[StandingState] = []
        database_ids = await self._results.databases()
        for name, database in self._context.plane.model.databases.items():
            if database.id in database_ids:
                stored = await self.of_database(database)
                loads = await self.loads(database.id, stored)
                states += [StandingState(id_, name, q, loads[id_]) for id_, q in stored.items()]
        return states

    async def pause(self, database: str, query: str, pause: Pause) -> bool:
        """Pause a query for some time; false if none exists."""
        key = self._key(database, query)
        started = None if key is None else await self._results.pause(key, pause)
        if started:
            self._context.observe(StandingQueriesCounted(database, {"pauses": 1}))
        return started is not None

    async def resume(self, database: str, query: str) -> bool:
        """End a pause; false if none exists."""
        key = self._key(database, query)
        return key is not None and await self._results.resume(key)

    async def end_pauses(self, before: int) -> None:
        """End the pauses by rules of versions before this one."""
        for database in await self._results.databases():
            await self._results.end_pauses(database, before)

    def _key(self, database: str, query: str) -> QueryKey | None:
        route = self._context.plane.model.databases.get(database)
        return None if route is None else QueryKey(route.id, query)

    async def last_result(self, database: DatabaseRoute, query: str) -> ResultPosition:
        """Return the position after the last result."""
        return await self._results.last_result(QueryKey(database.id, query))

    async def results(
        self, database: DatabaseRoute, query: str, after: ResultPosition, limit: int, wait_s: float
    ) -> list[StoredResult]:
        """Return results after a position, waiting for the first; raises `PositionGone`."""
        return await self._results.results(QueryKey(database.id, query), after, limit, wait_s)

    async def plan(
        self, database: DatabaseRoute, mode: Mode, require: Callable[[StoredQuery], None]
    ) -> dict[str, Any]:
        """Plan the queries of a database by the measurements, and describe the plans as JSON.

        Args:
            database: The database of the queries.
            mode: The planning mode.
            require: Raises an error if the caller may not see a query.

        Raises:
            NotFound: No query is executed.
            Invalid: There are too many candidate probe orders.
        """
        stored = await self.of_database(database)
        needs = await self._needs(stored, database, await self.streams(database))
        if not needs.queries:
            raise NotFound("The database has no standing queries that are executed.")
        for id_ in needs.queries:
            require(stored[id_])
        report = await self._results.report(database.id)
        running = None if report is None else orjson.loads(report)
        sampling = Sampling.from_json(running["statistics"]) if running else Sampling()
        workload = workload_of(needs.joins, sampling.statistics(needs.joins.values()))
        async with self._planning:
            plans = await offload(True, plans_of, workload, mode, materialise=True)
        names = {id_: stored[id_].document.get("name", "") for id_ in needs.queries}
        # If a rule has paused all queries, the last report is out of date.
        return add_measurements(describe(plans, mode), names, running if needs.executed else None)

    async def _needs(
        self,
        stored: Mapping[str, StoredQuery],
        database: DatabaseRoute,
        streams: Mapping[str, EventStream],
    ) -> Needs:
        """Parse queries by a schema that is not older than they are."""
        needs, plane = needs_of(stored, database, streams), self._context.plane
        if needs.refused and await is_outdated(plane, database):
            return needs_of(stored, plane.model.by_id.get(database.id, database), streams)
        return needs

    async def reconcile(self) -> None:
        """Start holders of databases that have queries, cancel holders of removed databases."""
        database_ids = await self._databases()
        await self._holders.reconcile(
            database_ids, lambda id_: StandingHolder(self._context, id_).run()
        )

    async def reconcile_deliveries(self) -> None:
        """Start and cancel the deliveries of results into classes accordingly."""
        context, database_ids = self._context, await self._databases()
        await self._deliveries.reconcile(
            database_ids, lambda id_: ClassDeliveries(context, id_, self._admit).run()
        )

    async def _databases(self) -> set[str]:
        routes = self._context.plane.model.by_id
        return {id_ for id_ in await self._results.databases() if id_ in routes}

    def _admit(self, plane: DataPlane, database: str) -> AbstractAsyncContextManager[DataPlane]:
        # `admitted` may be set after the first deliveries were started.
        return self.admitted(plane, database)

    async def close(self) -> None:
        """End all subscriptions, upon which holders end."""
        self._context.subscriptions.end()
        await asyncio.gather(self._holders.close(), self._deliveries.close())


def query_document(id_: str, stored: StoredQuery) -> dict[str, Any]:
    """Return a query with its state as JSON."""
    name, detail = stored.document.get("name", ""), stored.state.detail
    document = {"id": id_, "name": name, "state": stored.state.name}
    return {**document, "detail": detail} if detail else document


def load_document(load: StandingLoad) -> dict[str, Any]:
    """Return the measurements of a query as JSON."""
    pause = None if load.pause is None else load.pause.to_json()
    return {"lag": load.lag, "max_lag": load.max_lag, "paused": pause}


def _not_found() -> NotFound:
    return NotFound("There is no such standing query.")
