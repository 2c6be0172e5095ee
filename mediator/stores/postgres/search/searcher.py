"""Searches: what is done of them here (`pushdown`), and running them within their time.

Done here are the conjuncts that have an exact condition, and the order by whole fields.

Users decide on the shapes of searches, so their number is unbounded. On sessions of their own the
statements of searches evict no statement of a read or write; and these sessions only read.
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
from mediator.stores.postgres.search.conditions import named, served
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
    ranks,
    values_named,
)
from mediator.stores.postgres.statements import SEARCHES, Statements

__all__ = ["GRACE_S", "STEP", "Searcher", "pushdown"]

_R = TypeVar("_R")

_SMALL: Final = 8
"""Constants of a filter up to which its statement is put together in a millisecond or two."""

_NARROW: Final = 100
"""Columns of a page of documents up to which it is."""

GRACE_S: Final = 2.0
"""How long after its time a statement is given up: by then the server has failed."""

_STEP_S: Final = 0.25
"""Times are rounded up to this, so that the timeout of a session seldom changes."""

STEP: Final = 101
"""Rows that are received at once where they may be large: a page of the default limit, and one."""

_PARTS: Final = (*PARTS, SemiJoin, ShownJoin)


class _Fetch(NamedTuple):
    """What is fetched.

    Attributes:
        text: The statement.
        arguments: Its parameters.
        limit: How many rows it may return.
        max_bytes: Rows are fetched in steps, and no more of them once they have so many bytes;
            None: all at once.
    """

    text: str
    arguments: list[Any]
    limit: int = 0
    max_bytes: int | None = None

    async def run(self, connection: Any, timeout_s: float) -> tuple[list[Any], bool]:
        """Return the rows, and whether there are more of them, which were not fetched."""
        if self.max_bytes is None:
            return await connection.fetch(self.text, *self.arguments, timeout=timeout_s), False
        rows: list[Any] = []
        size = 0
        # One snapshot, which a statement for each step would not be.
        async with transaction(connection):
            cursor = await connection.cursor(self.text, *self.arguments, timeout=timeout_s)
            while size <= self.max_bytes:
                some = await cursor.fetch(STEP, timeout=timeout_s)
                rows += some
                if len(some) < STEP or len(rows) >= self.limit:
                    return rows, False
                size += size_of(some)
        return rows, True


class _Prepared(NamedTuple, Generic[_R]):
    """A search from its beginning.

    Attributes:
        search: The search.
        constants: The parameters that its filters give.
        reader: What reads rows.
        is_long: Whether to put its statement together takes more than a millisecond or two.
        decodes: Whether it computes values, and so takes longer for large ones.
        is_bounded: Whether no value is large.
    """

    search: SearchShape
    constants: Mapping[str, Any]
    reader: _R
    is_long: bool
    decodes: bool
    is_bounded: bool

    def is_long_to_read(self, rows: Sequence[Any]) -> bool:
        """Whether to read rows takes more than about a millisecond."""
        return self.decodes and are_large(rows)


class Searcher:
    """Searches through a pool of its own, which its store closes."""

    def __init__(self, config: SystemConfig, statements: Statements) -> None:
        self._config, self._statements = config, statements
        self.pool = Pool(lambda: connect_to_search(config), max(2, config.pool_size // 2))
        self._prepared = IdentityCache(self._prepare, SEARCHES, _PARTS)
        self._joined = IdentityCache(self._prepare_documents, SEARCHES, _PARTS)
        self._limits_ms: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    async def find(self, find: SearchRequest) -> SearchPage:
        """Return a page of records; see `Queryable`."""
        prepared = self._prepared(
            find.fragment, find.filter, find.order, find.fields, find.semi_joins
        )
        rows, has_more = await self._page(prepared, find)
        found = await offload(prepared.is_long_to_read(rows), _read, prepared.reader, rows)
        more = None
        if has_more and found:
            more = position(found[-1], prepared.search)
        return SearchPage(_narrowed(found, find), more)

    async def documents(
        self, find: SearchRequest, names: tuple[str, ...], joins: tuple[ShownJoin, ...]
    ) -> DocumentPage:
        """Return a page of documents; see `Joining`."""
        prepared = self._joined(find.fragment, find.filter, find.order, names, joins)
        rows, has_more = await self._page(prepared, find)
        reader = prepared.reader
        last = reader.record(rows[-1]) if has_more and rows else None
        documents = await offload(prepared.is_long_to_read(rows), reader.documents, rows)
        return DocumentPage(documents, last)

    async def _page(self, prepared: _Prepared[Any], find: SearchRequest) -> tuple[list[Any], bool]:
        """Read the rows of a page; return whether more follow, too."""
        start: Position | None = find.after if find.resume is None else find.resume
        search = prepared.search
        if start is not None:
            search = search._replace(ranks=ranks(start))
        statement = await offload(prepared.is_long, self._statements.search, search)
        given = {**prepared.constants, **values_named(start, search), "limit": find.limit + 1}
        most = None if prepared.is_bounded or find.limit < STEP else find.max_bytes
        if most is not None and not find.order:
            # Most searches find few rows, and those in the order of ids find the first ones soon:
            # to try that takes one round trip, a transaction with its steps takes three.
            few = statement.arguments({**given, "limit": STEP + 1})
            rows, _ = await self._fetched(_Fetch(statement.text, few), find.deadline_s)
            if len(rows) <= STEP:
                return rows, False
        fetch = _Fetch(statement.text, statement.arguments(given), find.limit + 1, most)
        rows, ends_early = await self._fetched(fetch, find.deadline_s)
        return rows[: find.limit], ends_early or len(rows) > find.limit

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        """Return groups with what was computed; see `Aggregating`."""
        shaped = self._shaped_filter(fragment, filter_)
        grouping = grouping_of(fragment, shaped.shape, aggregate)
        is_long = len(shaped.constants) > _SMALL
        statement = await offload(is_long, self._statements.aggregate, grouping)
        given = named(shaped.constants) | {"limit": limit}
        rows = await self._rows(statement.text, statement.arguments(given), deadline_s)
        records, names = self._statements.records(fragment), tuple(aggregate.compute)
        # Nulls and missing values may be one row, and a group more.
        return list(groups_of(records, grouping, names, rows))[:limit]

    async def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> int:
        """Return how many records the planner expects; see `Estimating`."""
        shaped = self._shaped_filter(fragment, filter_)
        is_long = len(shaped.constants) > _SMALL
        statement = await offload(is_long, self._statements.estimate, fragment, shaped.shape)
        arguments = statement.arguments(named(shaped.constants))
        [row] = await self._rows(f"EXPLAIN (FORMAT JSON) {statement.text}", arguments, deadline_s)
        [explained] = orjson.loads(row[0])
        return int(explained["Plan"]["Plan Rows"])

    def _shaped_filter(self, fragment: Fragment, filter_: Filter | None) -> ShapedFilter:
        shaped = shaped_filter(fragment, filter_)
        if shaped is None:
            raise StoreRefused(f"{self._config.name}: a filter that has no exact condition")
        return shaped

    def _prepare(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        order: tuple[OrderBy, ...],
        fields: tuple[str, ...] | None,
        semi_joins: tuple[SemiJoin, ...],
    ) -> _Prepared[RecordReader]:
        shaped, chosen = self._shaped_filter(fragment, filter_), self._levels(fragment, order)
        # Sorted, as they are shown in the end.
        wanted = sorted(fragment.fields) if fields is None else fields
        names = tuple(dict.fromkeys((*wanted, *(level.field for level in chosen[:-1]))))
        constants = list(shaped.constants)
        bound = tuple(shape_of(each, self._shaped_filter, constants) for each in semi_joins)
        search = SearchShape(fragment, shaped.shape, chosen, None, names, bound)
        reader, decodes = self._statements.reader(fragment, names), self._decodes(fragment, names)
        is_bounded = not large_fields(fragment.fields, names)
        is_long = len(constants) > _SMALL
        return _Prepared(search, named(constants), reader, is_long, decodes, is_bounded)

    def _prepare_documents(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        order: tuple[OrderBy, ...],
        names: tuple[str, ...],
        joins: tuple[ShownJoin, ...],
    ) -> _Prepared[DocumentReader]:
        shaped, chosen = self._shaped_filter(fragment, filter_), self._levels(fragment, order)
        ordering = tuple(level.field for level in chosen[:-1])
        constants = list(shaped.constants)
        shape = document_shape(names, ordering, joins, self._shaped_filter, constants)
        search = SearchShape(fragment, shaped.shape, chosen, None, names, (), shape)
        tables = self._statements.records
        reader = DocumentReader(tables(fragment), shape, ordering, tables)
        is_long = len(constants) > _SMALL or shape.width > _NARROW
        shown = [(fragment, names), *((join.fragment, join.names) for join in joins)]
        decodes = any(self._decodes(*each) for each in shown)
        is_bounded = not any(large_fields(each.fields, of) for each, of in shown)
        return _Prepared(search, named(constants), reader, is_long, decodes, is_bounded)

    def _decodes(self, fragment: Fragment, names: Iterable[str]) -> bool:
        codecs = self._statements.records(fragment).codecs
        return any(codecs[name].decode is not None for name in names)

    def _levels(self, fragment: Fragment, order: tuple[OrderBy, ...]) -> tuple[OrderLevel, ...]:
        chosen = levels(fragment, order)
        if chosen is None:
            raise StoreRefused(f"{self._config.name}: an order that is not by fields")
        return chosen

    async def _rows(self, text: str, arguments: list[Any], deadline_s: float) -> list[Any]:
        rows, _ = await self._fetched(_Fetch(text, arguments), deadline_s)
        return rows

    async def _fetched(self, fetch: _Fetch, deadline_s: float) -> tuple[list[Any], bool]:
        limit_ms = round(1000 * _STEP_S * max(1, math.ceil(deadline_s / _STEP_S)))
        given_up_s = deadline_s + GRACE_S

        async def run(connection: Any) -> tuple[list[Any], bool]:
            if self._limits_ms.get(connection) != limit_ms:
                await self._limit(connection, limit_ms, given_up_s)
            return await fetch.run(connection, given_up_s)

        try:
            return await self.pool.use(run, deadline_s)
        except (asyncpg.QueryCanceledError, PoolExhausted):
            text = f"{self._config.name}: a search took longer than it was given"
            raise StoreTooCostly(text) from None
        except FAILURES as error:
            # The cause is left out: its text may quote values, or the URL with its password.
            raise as_store_error(self._config.name, error) from None

    async def _limit(self, connection: Any, limit_ms: int, given_up_s: float) -> None:
        """Let the server end statements by itself; giving up here would not stop them."""
        await connection.execute(f"SET statement_timeout = {limit_ms}", timeout=given_up_s)
        self._limits_ms[connection] = limit_ms


def _read(read: RecordReader, rows: Sequence[Any]) -> list[Record]:
    return list(map(read, rows))


def _narrowed(found: list[Record], find: SearchRequest) -> list[Record]:
    """Leave out what was read for the order only."""
    wanted = find.fields
    if wanted is None or all(level.path[0] in wanted for level in find.order):
        return found
    return [replace(record, values=projected(record.values, wanted)) for record in found]


def pushdown(fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]) -> Pushdown:
    """Split a filter into what is done here and what is not, and say how records are found."""
    parts = [(part, shaped_filter(fragment, part)) for part in conjuncts(filter_)]
    pushed = [part for part, shaped in parts if shaped is not None]
    residual = [part for part, shaped in parts if shaped is None]
    shapes = [shaped.shape for _, shaped in parts if shaped is not None]
    chosen = levels(fragment, order)
    by_order = chosen is not None and _leads(fragment, chosen, whole=filter_ is None)
    access = _access(fragment, shapes, by_order=by_order)
    return Pushdown(all_of(pushed), all_of(residual), access, chosen is not None)


def _access(fragment: Fragment, shapes: Iterable[FilterShape], *, by_order: bool) -> AccessPath:
    indexed = [shape for shape in shapes if served(fragment, shape)]
    if any(_names_ids(shape) for shape in indexed):
        return AccessPath.KEYS
    return AccessPath.INDEX if indexed or by_order else AccessPath.SERVER_SCAN


def _names_ids(shape: FilterShape) -> bool:
    return isinstance(shape, Predicate) and shape.field == ID[0] and shape.test in ("eq", "among")


def _leads(fragment: Fragment, order: tuple[OrderLevel, ...], *, whole: bool) -> bool:
    """Whether an index gives the order; that of ids helps only where all records are wanted."""
    *before, ids = order
    if not before:
        return whole
    names = tuple(level.field for level in before)
    one_way = all(level.descending is ids.descending for level in before)
    return one_way and names in fragment.ordered_indexes
