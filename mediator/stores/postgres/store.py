"""PostgreSQL as a `Store`: composes reading, writing, searching and administration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from mediator.model.filters import Filter
from mediator.model.operators import APPLICABLE, Operator
from mediator.model.query import Aggregate, OrderBy
from mediator.schema.types import FieldType
from mediator.stores.port import (
    ComputedGroup,
    DocumentPage,
    Fragment,
    FragmentOf,
    LogPage,
    Pushdown,
    Read,
    Record,
    RecordKey,
    RecordState,
    RememberedOperation,
    SearchPage,
    SearchRequest,
    ServerFacts,
    ShownJoin,
    SystemConfig,
    TakenClaim,
    Write,
    WriteResult,
    by_fragment,
    record_states,
)
from mediator.stores.port.search import computes
from mediator.stores.postgres import admin
from mediator.stores.postgres.connection import Pool, connect, transaction
from mediator.stores.postgres.errors import FAILURES, as_store_error
from mediator.stores.postgres.mirror import absorb, forget, replace_copies
from mediator.stores.postgres.outbox import LOG, OutboxLog
from mediator.stores.postgres.read.reader import Reader
from mediator.stores.postgres.retention import reap
from mediator.stores.postgres.search.aggregates import SUMMABLE
from mediator.stores.postgres.search.predicates import shaped_filter
from mediator.stores.postgres.search.searcher import Searcher, pushdown
from mediator.stores.postgres.sql import Statement
from mediator.stores.postgres.statements import Statements
from mediator.stores.postgres.write.prepared import remembered_operation
from mediator.stores.postgres.write.reserving import reserve
from mediator.stores.postgres.write.writer import Writer

__all__ = ["PostgresStore"]

T = TypeVar("T")

_TIME: Final = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_DDL_S: Final = 300.0
"""Timeout of schema changes that build no index, in seconds."""

_BUILD_S: Final = 7200.0
"""Timeout of a table with its indexes, which are built while it is read and written."""


class PostgresStore:
    """One PostgreSQL server as a store, with every protocol of `port` except `PendingChanges`.

    Attributes:
        statements: The statements of its namespace.
        pool: Its sessions, except for searches.
        searcher: Runs searches, on separate sessions.
    """

    def __init__(self, config: SystemConfig) -> None:
        self.config = config
        self.statements = Statements(config.namespace)
        self.pool = Pool(partial(connect, config), config.pool_size)
        self._reader = Reader(self.statements, self.pool)
        self._writer = Writer(config.name, self.statements, self.pool, self._reader.read)
        self.searcher = Searcher(config, self.statements)
        self._outbox = OutboxLog(self.statements, self.use)

    async def open(self) -> None:
        """Connect, and create the namespace if it is absent.

        Raises:
            StoreUnavailable: The server does not answer.
            StoreRefused: It refuses the connection, or the creation of the namespace.
        """
        await self.ping()
        tables = self.statements.namespace_tables
        await self.use(lambda c: admin.prepare_namespace(c, tables), _DDL_S)

    async def close(self) -> None:
        with suppress(*FAILURES):
            async with asyncio.timeout(self.config.deadline_s):
                await self.pool.close()
                await self.searcher.pool.close()

    async def ping(self) -> None:
        await self.use(lambda c: c.fetch("SELECT 1"))

    async def time_us(self) -> int:
        """Return the server's time in microseconds."""
        [(now_us,)] = await self.use(lambda c: c.fetch(_TIME))
        return int(now_us)

    async def facts(self) -> ServerFacts:
        """Query the server's version and configuration."""
        return await self.use(admin.observe)

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        """Whether the store applies the operator to the type exactly: always if applicable."""
        return type_ in APPLICABLE[operator]

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Create table, columns and indexes for the fragment; idempotent, keeps existing data."""
        tables, records = self.statements.namespace_tables, self.statements.records(fragment)
        await self.use(lambda c: admin.prepare_class(c, tables, records, previous), _BUILD_S)

    async def build(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Add missing columns and indexes; see `IndexBuilding`."""
        tables, records = self.statements.namespace_tables, self.statements.records(fragment)
        await self.use(
            lambda c: admin.prepare_class(c, tables, records, previous, add_only=True), _BUILD_S
        )

    async def built(self, fragment: Fragment) -> float | None:
        """Return the progress of an index build by any process, as the server reports it."""
        records = self.statements.records(fragment)
        return await self.use(lambda c: admin.built(c, records))

    async def drop(self, fragment: Fragment) -> None:
        """Remove the fragment with all its data; changes stay in the outbox for the feed."""
        tables = self.statements.namespace_tables
        await self.use(lambda c: admin.drop_class(c, tables, fragment), _DDL_S)

    async def erase(
        self, fragment: Fragment, names: Sequence[str], after: str | None, limit: int
    ) -> str | None:
        """Remove fields from records, and then their columns; see `Erasing`."""
        records = self.statements.records(fragment)
        return await self.use(lambda c: admin.erase(c, records, names, after, limit), _DDL_S)

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records; None for absent records."""
        return await self._bounded(self._reader.read(calls))

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        """Apply writes, each atomically with its outbox entry; return the results in order."""
        return await self._bounded(self._writer.write(calls, token), writes=True)

    async def fence(self, fragment: Fragment, id_: str, token: str) -> dict[str, int]:
        """Fence a record against the writes of a token; see `Store.fence`."""
        statement = self.statements.fence(fragment)
        row = await self.use(lambda c: c.fetchrow(statement, id_, token))
        pairs = zip(fragment.groups, row, strict=True)
        return {group: version for group, version in pairs if version}

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        """Set an intent on each record that has none; see `Lockable`."""
        intents = self.statements.intents
        return await record_states(
            keys,
            lambda f, ids: self.use(partial(intents(f).lock, ids=ids, intent=intent, redo=redo)),
        )

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        """Remove this intent from the records that have it; see `Lockable`."""
        for fragment, ids in by_fragment(keys).items():
            intents = self.statements.intents(fragment)
            await self.use(partial(intents.unlock, ids=ids, intent=intent, joint=joint))

    async def reserve(self, writes: Sequence[Write]) -> list[TakenClaim | None]:
        """Reserve the claims of writes; see `Claiming`."""
        return await self._bounded(reserve(self.statements, self.pool, writes))

    async def record_states(
        self, keys: Sequence[RecordKey], *, redo: bool = False
    ) -> list[RecordState]:
        """Return the states of records; see `Lockable`."""
        intents = self.statements.intents
        return await record_states(
            keys, lambda f, ids: self.use(partial(intents(f).read, ids=ids, redo=redo))
        )

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        statement = self.statements.recall(fragment)
        rows = await self._rows(statement, {"id": id_, "operation": operation})
        return remembered_operation(self.statements.records(fragment), rows[0]) if rows else None

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read up to `limit` records in the order of their ids, beyond `after`."""
        names = tuple(fragment.fields) if fields is None else fields
        statement = self.statements.scan(fragment, names, after is not None)
        rows = await self._rows(statement, {"after": after, "limit": limit})
        return list(map(self.statements.reader(fragment, names), rows))

    async def count(self, fragment: Fragment) -> int:
        text = self.statements.count(fragment).text

        async def run(connection: Any) -> int:
            # Sessions avoid sequential scans (see `connection`), which are best only here.
            async with transaction(connection):
                await connection.execute("SET LOCAL enable_seqscan = on")
                return int(await connection.fetchval(text))

        return await self.use(run)

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        """Plan a search; see `Queryable`."""
        return pushdown(fragment, filter_, order)

    async def find(self, find: SearchRequest) -> SearchPage:
        """Return a page of records. Raises `StoreTooCostly` beyond the deadline."""
        return await self.searcher.find(find)

    async def documents(
        self, find: SearchRequest, names: tuple[str, ...], joins: tuple[ShownJoin, ...]
    ) -> DocumentPage:
        """Return a page as documents. Raises `StoreTooCostly` beyond the deadline."""
        return await self.searcher.documents(find, names, joins)

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        """Whether it applies the whole filter and aggregates exactly."""
        is_pushed = shaped_filter(fragment, filter_) is not None
        return is_pushed and computes(fragment, aggregate, SUMMABLE)

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        """Return groups with their results. Raises `StoreTooCostly` beyond the deadline."""
        return await self.searcher.aggregate(
            fragment, filter_, aggregate, limit=limit, deadline_s=deadline_s
        )

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:
        return shaped_filter(fragment, filter_) is not None

    async def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> int:
        return await self.searcher.estimate(fragment, filter_, deadline_s=deadline_s)

    async def absorb(self, fragment: Fragment, records: Sequence[Record]) -> list[bool]:
        """Replace copies by newer records; see `Mirror`."""
        table, statement = self.statements.records(fragment), self.statements.absorb(fragment)
        return await self._bounded(absorb(self.pool, self._reader.read, table, statement, records))

    async def replace_copies(
        self, fragment: Fragment, copies: Sequence[Record], records: Sequence[Record]
    ) -> int:
        """Replace copies that are unchanged since they were read; see `Mirror`."""
        table, statement = self.statements.records(fragment), self.statements.replace(fragment)
        return await self._bounded(replace_copies(self.pool, table, statement, copies, records))

    async def forget(self, fragment: Fragment, tombstones: Sequence[tuple[str, int]]) -> None:
        """Remove the copies of deleted objects; see `Mirror`."""
        await self._bounded(forget(self.pool, self.statements.forget(fragment), tombstones))

    async def reap(self, limit: int) -> int:
        """Remove up to `limit` rows past their retention; return how many were removed."""
        now_s, namespace = await self.time_us() / 1_000_000, self.config.namespace
        return await self.use(lambda c: reap(c, namespace, now_s, limit))

    def logs(self) -> Sequence[str]:
        """Return the names of the logs; see `ChangeLog`."""
        return (LOG,)

    async def changes(
        self, log: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> LogPage:
        """Return changes beyond a position, oldest first; see `ChangeLog`."""
        del log  # there is only one
        return await self._outbox.read(after, limit, fragment_of)

    async def horizon(self) -> tuple[int, int]:
        """Return the bounds of readable and of committed changes; see `OutboxLog.horizon`."""
        return await self._outbox.horizon()

    async def oldest(self, log: str) -> str | None:
        """Return the position of the oldest remaining change, or None."""
        del log
        return await self._outbox.oldest()

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        """Remove changes up to a position, but none younger than `keep_s`; return the number."""
        del log
        return await self._outbox.trim(upto, keep_s)

    async def _rows(self, statement: Statement, values: dict[str, Any]) -> list[Any]:
        arguments = statement.arguments(values)
        rows: list[Any] = await self.use(lambda c: c.fetch(statement.text, *arguments))
        return rows

    async def use(self, work: Callable[[Any], Awaitable[T]], deadline_s: float | None = None) -> T:
        """Run work with a session, until the deadline."""
        return await self._bounded(self.pool.use(work), deadline_s)

    async def _bounded(
        self, work: Awaitable[T], deadline_s: float | None = None, *, writes: bool = False
    ) -> T:
        """Await work until the deadline; raise failures as the port's errors."""
        try:
            async with asyncio.timeout(deadline_s or self.config.deadline_s):
                return await work
        except FAILURES as error:
            # The cause is left out: its text can quote values, or the URL with its password.
            raise as_store_error(self.config.name, error, writes=writes) from None
