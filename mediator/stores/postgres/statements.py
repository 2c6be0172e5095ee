"""The statements of one namespace, built on first use and kept in bounded caches.

Fragments are compared by identity, so a new routing model starts with new statements and the old
ones are evicted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, TypeVar

from mediator.base.bounded_cache import BoundedCache
from mediator.stores.port import Fragment, StoreRefused
from mediator.stores.postgres.claims import ClaimStatements
from mediator.stores.postgres.fencing import fence_statement
from mediator.stores.postgres.layout import RecordTable, fragment_table, namespace_tables
from mediator.stores.postgres.mirror import (
    absorb_statement,
    forget_statement,
    replace_statement,
)
from mediator.stores.postgres.read.statements import (
    RecordReader,
    count_statement,
    read_statement,
    reader,
    scan_statement,
)
from mediator.stores.postgres.search.aggregates import Grouping, aggregate_statement
from mediator.stores.postgres.search.predicates import FilterShape
from mediator.stores.postgres.search.statement import (
    SearchShape,
    estimate_statement,
    search_statement,
)
from mediator.stores.postgres.sql import Statement
from mediator.stores.postgres.transactions import IntentStatements
from mediator.stores.postgres.write.multi_row import MultiRowWrite, takes_rows
from mediator.stores.postgres.write.prepared import PreparedWrite, WriteShape, check
from mediator.stores.postgres.write.statement import (
    lock_statement,
    recall_statement,
    write_statement,
)

__all__ = ["SEARCHES", "STATEMENTS", "Statements"]

_T = TypeVar("_T")

STATEMENTS: Final = 1024
"""Maximum number of cached statements of each kind; connections prepare as many."""

SEARCHES: Final = 256
"""Maximum number of cached search statements: users decide on their shapes, so their number is
unbounded, and one can be large."""


class Statements:
    """The statements for one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace_tables = namespace_tables(namespace)
        self.records = lru_cache(maxsize=256)(partial(fragment_table, namespace=namespace))
        self.reader = lru_cache(maxsize=STATEMENTS)(self._reader)
        self.write = lru_cache(maxsize=STATEMENTS)(self._write)
        self.multi_row = lru_cache(maxsize=STATEMENTS)(self._multi_row)
        self.read = lru_cache(maxsize=STATEMENTS)(self._read)
        self.scan = lru_cache(maxsize=STATEMENTS)(self._scan)
        self.search = BoundedCache(self._search, SEARCHES)
        self.aggregate = BoundedCache(self._aggregate, SEARCHES)
        self.estimate = BoundedCache(self._estimate, SEARCHES)
        self.count = self._of_table(count_statement)
        self.lock = self._of_table(lock_statement)
        self.fence = self._of_table(fence_statement)
        self.absorb = self._of_table(absorb_statement)
        self.replace = self._of_table(replace_statement)
        self.forget = self._of_table(forget_statement)
        self.intents = self._of_table(lambda t: IntentStatements(t, self.lock(t.fragment)))
        self.claims = self._of_table(ClaimStatements)
        self.recall = self._of_table(lambda t: recall_statement(t.fragment, self.namespace_tables))

    def _of_table(self, build: Callable[[RecordTable], _T]) -> Callable[[Fragment], _T]:
        """Return a function that builds and caches something from a fragment's table."""
        return lru_cache(maxsize=256)(lambda fragment: build(self.records(fragment)))

    def _checked_records(self, fragment: Fragment, names: tuple[str, ...]) -> RecordTable:
        if not fragment.fields.keys() >= set(names):
            raise StoreRefused(f"{fragment.system}: a read names an unknown field")
        return self.records(fragment)

    def _reader(self, fragment: Fragment, names: tuple[str, ...]) -> RecordReader:
        return reader(self._checked_records(fragment, names), names)

    def _write(self, shape: WriteShape) -> PreparedWrite:
        check(shape)
        records = self.records(shape.fragment)
        build = partial(write_statement, shape, records, self.namespace_tables)
        return PreparedWrite(shape, records, build)

    def _multi_row(self, shape: WriteShape) -> MultiRowWrite | None:
        """Return the statement for many writes of a shape; None if the shape has none."""
        records = self.records(shape.fragment)
        if not takes_rows(shape, records):
            return None
        return MultiRowWrite(self.write(shape), records, self.namespace_tables)

    def _read(self, fragment: Fragment, names: tuple[str, ...], many: bool) -> Statement:
        return read_statement(self._checked_records(fragment, names), names, many=many)

    def _scan(self, fragment: Fragment, names: tuple[str, ...], after: bool) -> Statement:
        return scan_statement(self._checked_records(fragment, names), names, after=after)

    def _search(self, search: SearchShape) -> Statement:
        records = self._checked_records(search.fragment, search.names)
        return search_statement(records, search, self.records)

    def _estimate(self, fragment: Fragment, shape: FilterShape) -> Statement:
        return estimate_statement(self.records(fragment), shape)

    def _aggregate(self, grouping: Grouping) -> Statement:
        return aggregate_statement(self.records(grouping.fragment), grouping)
