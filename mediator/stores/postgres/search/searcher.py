"""Plans searches (`pushdown`), and runs them within their deadline.

The server evaluates conjuncts that have an exact condition, and orders by whole fields.

Users decide on the shapes of searches, so their number is unbounded. Searches have separate,
read-only sessions, so that their statements do not evict those of reads and writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import asyncpg
import orjson

from mediator.base.bounded_cache import IdentityCache
from mediator.base.offload import offload
from mediator.model.filters import ID, Filter, all_of, conjuncts
from mediator.model.query import PARTS, Aggregate, OrderBy, Position
from mediator.model.sizes import large_fields
from mediator.schema.types import projected
from mediator.stores.port import (
    AccessPath,
    ComputedGroup,
    DocumentPage,
    Fragment,
    Pushdown,
    Record,
    SearchPage,
    SearchRequest,
    SemiJoin,
    ShownJoin,
    StoreRefused,
    StoreTooCostly,
    SystemConfig,
)
from mediator.stores.postgres.connection import (
    Pool,
    PoolExhausted,
    connect_to_search,
    transaction,
)
from mediator.stores.postgres.errors import FAILURES, as_store_error
from mediator.stores.postgres.read.statements import RecordReader, are_large, size_of
from mediator.stores.postgres.search.aggregates import grouping_of, groups_of
from mediator.stores.postgres.search.conditions import condition_arguments, is_indexed
from mediator.stores.postgres.search.joins import DocumentReader, document_shape, shape_of
from mediator.stores.postgres.search.predicates import (
    FilterShape,
    Predicate,
    ShapedFilter,
    shaped_filter,
)
from mediator.stores.postgres.search.statement import (
    OrderLevel,
    SearchShape,
    levels,
    position,
    position_values,
    ranks,
)
from mediator.stores.postgres.statements import SEARCHES, Statements

__all__ = ["GRACE_S", "STEP", "Searcher", "pushdown"]

_R = TypeVar("_R")

_MAX_INLINE_CONSTANTS: Final = 8
"""Maximum number of a filter's constants for building its statement in the event loop (1-2 ms)."""

_MAX_INLINE_COLUMNS: Final = 100
"""The same for columns of a page of documents."""

GRACE_S: Final = 2.0
"""How long after its deadline a statement is aborted, in seconds: the server has failed then."""

_TIMEOUT_STEP_S: Final = 0.25
"""Timeouts are rounded up to this, so that a session's timeout seldom changes."""

STEP: Final = 101
"""Rows fetched at a time where they can be large: a page of the default limit, plus one."""

_PARTS: Final = (*PARTS, SemiJoin, ShownJoin)


class _Fetch(NamedTuple):
    """The fetch of a statement's rows.

    Attributes:
        text: The statement.
        arguments: Its parameters.
        limit: Maximum number of rows.
        max_bytes: Rows are fetched in steps until they exceed so many bytes; None: all at once.
    """

    text: str
    arguments: list[Any]
    limit: int = 0
    max_bytes: int | None = None

    async def run(self, connection: Any, timeout_s: float) -> tuple[list[Any], bool]:
        """Return the rows, and whether more remain that were not fetched."""
        if self.max_bytes is None:
            return await connection.fetch(self.text, *self.arguments, timeout=timeout_s), False
        rows: list[Any] = []
        size = 0
        # A cursor reads from one snapshot; separate statements would not.
        async with transaction(connection):
            cursor = await connection.cursor(self.text, *self.arguments, timeout=timeout_s)
            while size <= self.max_bytes:
                batch = await cursor.fetch(STEP, timeout=timeout_s)
                rows += batch
                if len(batch) < STEP or len(rows) >= self.limit:
                    return rows, False
                size += size_of(batch)
        return rows, True


class _Prepared(NamedTuple, Generic[_R]):
    """A prepared search, without a position.

    Attributes:
        search: The search.
        constants: The parameters of its filters.
        reader: The reader of rows.
        is_long: Whether building its statement takes more than a millisecond or two.
        decodes: Whether the reader decodes values, and so takes longer for large ones.
        is_bounded: Whether no value is large.
    """

    search: SearchShape
    constants: Mapping[str, Any]
    reader: _R
    is_long: bool
    decodes: bool
    is_bounded: bool

    def is_long_to_read(self, rows: Sequence[Any]) -> bool:
        """Whether reading rows takes more than about a millisecond."""
        return self.decodes and are_large(rows)


class Searcher:
    """Runs searches through a separate pool, which the store closes."""

    def __init__(self, config: SystemConfig, statements: Statements) -> None:
        self._config, self._statements = config, statements
        self.pool = Pool(lambda: connect_to_search(config), max(2, config.pool_size // 2))
        self._prepared = IdentityCache(self._prepare, SEARCHES, _PARTS)
        self._prepared_documents = IdentityCache(self._prepare_documents, SEARCHES, _PARTS)
        self._limits_ms: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    async def find(self, find: SearchRequest) -> SearchPage:
        """Return a page of records; see `Queryable`."""
        prepared = self._prepared(
            find.fragment, find.filter, find.order, find.fields, find.semi_joins
        )
        rows, has_more = await self._page(prepared, find)
        records = await offload(prepared.is_long_to_read(rows), _read, prepared.reader, rows)
        resume = None
        if has_more and records:
            resume = position(records[-1], prepared.search)
        return SearchPage(_project(records, find), resume)

    async def documents(
        self, find: SearchRequest, names: tuple[str, ...], joins: tuple[ShownJoin, ...]
    ) -> DocumentPage:
        """Return a page of documents; see `Joining`."""
        prepared = self._prepared_documents(find.fragment, find.filter, find.order, names, joins)
        rows, has_more = await self._page(prepared, find)
        reader = prepared.reader
        last = reader.record(rows[-1]) if has_more and rows else None
        documents = await offload(prepared.is_long_to_read(rows), reader.documents, rows)
        return DocumentPage(documents, last)

    async def _page(self, prepared: _Prepared[Any], find: SearchRequest) -> tuple[list[Any], bool]:
        """Read the rows of a page; also return whether more follow."""
        start: Position | None = find.after if find.resume is None else find.resume
        search = prepared.search
        if start is not None:
            search = search._replace(ranks=ranks(start))
        statement = await offload(prepared.is_long, self._statements.search, search)
        values = {**prepared.constants, **position_values(start, search), "limit": find.limit + 1}
        max_bytes = None if prepared.is_bounded or find.limit < STEP else find.max_bytes
        if max_bytes is not None and not find.order:
            # Most searches find few rows, and searches in the order of ids find the first soon:
            # this attempt takes one round trip, a transaction with a cursor takes three.
            arguments = statement.arguments({**values, "limit": STEP + 1})
            rows, _ = await self._fetch(_Fetch(statement.text, arguments), find.deadline_s)
            if len(rows) <= STEP:
                return rows, False
        fetch = _Fetch(statement.text, statement.arguments(values), find.limit + 1, max_bytes)
        rows, is_cut = await self._fetch(fetch, find.deadline_s)
        return rows[: find.limit], is_cut or len(rows) > find.limit

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        """Return groups with their results; see `Aggregating`."""
        shaped = self._shaped_filter(fragment, filter_)
        grouping = grouping_of(fragment, shaped.shape, aggregate)
        is_long = len(shaped.constants) > _MAX_INLINE_CONSTANTS
        statement = await offload(is_long, self._statements.aggregate, grouping)
        values = condition_arguments(shaped.constants) | {"limit": limit}
        rows = await self._rows(statement.text, statement.arguments(values), deadline_s)
        records, names = self._statements.records(fragment), tuple(aggregate.compute)
        # A row of nulls and missing values can become two groups.
        return list(groups_of(records, grouping, names, rows))[:limit]

    async def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> int:
        """Return the planner's estimate of matching records; see `Estimating`."""
        shaped = self._shaped_filter(fragment, filter_)
        is_long = len(shaped.constants) > _MAX_INLINE_CONSTANTS
        statement = await offload(is_long, self._statements.estimate, fragment, shaped.shape)
        arguments = statement.arguments(condition_arguments(shaped.constants))
        [row] = await self._rows(f"EXPLAIN (FORMAT JSON) {statement.text}", arguments, deadline_s)
        [plan] = orjson.loads(row[0])
        return int(plan["Plan"]["Plan Rows"])

    def _shaped_filter(self, fragment: Fragment, filter_: Filter | None) -> ShapedFilter:
        shaped = shaped_filter(fragment, filter_)
        if shaped is None:
            raise StoreRefused(f"{self._config.name}: the filter has no exact condition")
        return shaped

    def _prepare(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        order: tuple[OrderBy, ...],
        fields: tuple[str, ...] | None,
        semi_joins: tuple[SemiJoin, ...],
    ) -> _Prepared[RecordReader]:
        shaped, order_levels = self._shaped_filter(fragment, filter_), self._levels(fragment, order)
        # Sorted, like the fields of documents.
        requested = sorted(fragment.fields) if fields is None else fields
        names = tuple(dict.fromkeys((*requested, *(level.field for level in order_levels[:-1]))))
        constants = list(shaped.constants)
        semi_join_shapes = tuple(
            shape_of(semi_join, self._shaped_filter, constants) for semi_join in semi_joins
        )
        search = SearchShape(fragment, shaped.shape, order_levels, None, names, semi_join_shapes)
        reader, decodes = self._statements.reader(fragment, names), self._decodes(fragment, names)
        is_bounded = not large_fields(fragment.fields, names)
        is_long = len(constants) > _MAX_INLINE_CONSTANTS
        return _Prepared(
            search, condition_arguments(constants), reader, is_long, decodes, is_bounded
        )

    def _prepare_documents(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        order: tuple[OrderBy, ...],
        names: tuple[str, ...],
        joins: tuple[ShownJoin, ...],
    ) -> _Prepared[DocumentReader]:
        shaped, order_levels = self._shaped_filter(fragment, filter_), self._levels(fragment, order)
        order_fields = tuple(level.field for level in order_levels[:-1])
        constants = list(shaped.constants)
        shape = document_shape(names, order_fields, joins, self._shaped_filter, constants)
        search = SearchShape(fragment, shaped.shape, order_levels, None, names, (), shape)
        tables = self._statements.records
        reader = DocumentReader(tables(fragment), shape, order_fields, tables)
        is_long = len(constants) > _MAX_INLINE_CONSTANTS or shape.width > _MAX_INLINE_COLUMNS
        sources = [(fragment, names), *((join.fragment, join.names) for join in joins)]
        decodes = any(self._decodes(*source) for source in sources)
        is_bounded = not any(large_fields(part.fields, shown) for part, shown in sources)
        return _Prepared(
            search, condition_arguments(constants), reader, is_long, decodes, is_bounded
        )

    def _decodes(self, fragment: Fragment, names: Iterable[str]) -> bool:
        codecs = self._statements.records(fragment).codecs
        return any(codecs[name].decode is not None for name in names)

    def _levels(self, fragment: Fragment, order: tuple[OrderBy, ...]) -> tuple[OrderLevel, ...]:
        order_levels = levels(fragment, order)
        if order_levels is None:
            raise StoreRefused(f"{self._config.name}: the order is not by whole fields")
        return order_levels

    async def _rows(self, text: str, arguments: list[Any], deadline_s: float) -> list[Any]:
        rows, _ = await self._fetch(_Fetch(text, arguments), deadline_s)
        return rows

    async def _fetch(self, fetch: _Fetch, deadline_s: float) -> tuple[list[Any], bool]:
        limit_ms = round(1000 * _TIMEOUT_STEP_S * max(1, math.ceil(deadline_s / _TIMEOUT_STEP_S)))
        abort_s = deadline_s + GRACE_S

        async def run(connection: Any) -> tuple[list[Any], bool]:
            if self._limits_ms.get(connection) != limit_ms:
                await self._limit(connection, limit_ms, abort_s)
            return await fetch.run(connection, abort_s)

        try:
            return await self.pool.use(run, deadline_s)
        except (asyncpg.QueryCanceledError, PoolExhausted):
            text = f"{self._config.name}: a search exceeded its deadline"
            raise StoreTooCostly(text) from None
        except FAILURES as error:
            # The cause is left out: its text can quote values, or the URL with its password.
            raise as_store_error(self._config.name, error) from None

    async def _limit(self, connection: Any, limit_ms: int, abort_s: float) -> None:
        """Set the server's statement timeout: a timeout here would not stop the statement."""
        await connection.execute(f"SET statement_timeout = {limit_ms}", timeout=abort_s)
        self._limits_ms[connection] = limit_ms


def _read(read: RecordReader, rows: Sequence[Any]) -> list[Record]:
    return list(map(read, rows))


def _project(records: list[Record], find: SearchRequest) -> list[Record]:
    """Remove fields that were read only for the order."""
    requested = find.fields
    if requested is None or all(level.path[0] in requested for level in find.order):
        return records
    return [replace(record, values=projected(record.values, requested)) for record in records]


def pushdown(fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]) -> Pushdown:
    """Split a filter into pushed and residual conjuncts, and choose the access path."""
    parts = [(part, shaped_filter(fragment, part)) for part in conjuncts(filter_)]
    pushed = [part for part, shaped in parts if shaped is not None]
    residual = [part for part, shaped in parts if shaped is None]
    shapes = [shaped.shape for _, shaped in parts if shaped is not None]
    order_levels = levels(fragment, order)
    by_order = order_levels is not None and _index_gives_order(
        fragment, order_levels, finds_all=filter_ is None
    )
    access = _access(fragment, shapes, by_order=by_order)
    return Pushdown(all_of(pushed), all_of(residual), access, order_levels is not None)


def _access(fragment: Fragment, shapes: Iterable[FilterShape], *, by_order: bool) -> AccessPath:
    indexed = [shape for shape in shapes if is_indexed(fragment, shape)]
    if any(_names_ids(shape) for shape in indexed):
        return AccessPath.KEYS
    return AccessPath.INDEX if indexed or by_order else AccessPath.SERVER_SCAN


def _names_ids(shape: FilterShape) -> bool:
    return isinstance(shape, Predicate) and shape.field == ID[0] and shape.test in ("eq", "among")


def _index_gives_order(
    fragment: Fragment, order: tuple[OrderLevel, ...], *, finds_all: bool
) -> bool:
    """Whether an index gives the order; the index of ids helps only without a filter."""
    *fields, ids = order
    if not fields:
        return finds_all
    names = tuple(level.field for level in fields)
    same_direction = all(level.descending is ids.descending for level in fields)
    return same_direction and names in fragment.ordered_indexes
