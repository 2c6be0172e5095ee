"""A decorator of stores that translates the names of renamed fields to stored names.

A renamed field keeps its *stored name*: no record is touched, no index is built, and processes with
the old and the new name write to the same column. Only this decorator handles stored names: below
it fragments, and everything about them, have stored names, above it the names of the schema. Calls
on other fragments are passed on unchanged.

Changes are the exception: they are passed on with stored names, which they keep in the feed, and
get the names of the schema when they are read there (`mediator.changes.naming`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol, cast

from mediator.model.filters import Filter
from mediator.model.query import Aggregate, OrderBy
from mediator.stores.port import (
    Aggregating,
    Bounded,
    ChangeLog,
    Claiming,
    ComputedGroup,
    Estimating,
    Fragment,
    FragmentOf,
    LogPage,
    Pushdown,
    Queryable,
    Read,
    Record,
    RecordKey,
    RememberedOperation,
    SearchPage,
    SearchRequest,
    SizedWrite,
    Store,
    TakenClaim,
    Write,
    WriteResult,
)
from mediator.stores.stored_names import names_of, stored_fragment

__all__ = ["with_stored_names"]


def with_stored_names(store: Store) -> Store:
    """Return a store that offers the same protocols, for fragments with names of the schema."""
    return cast("Store", _decorator_class(type(store))(cast("_FullStore", store)))


class _FullStore(Store, Queryable, Aggregating, Estimating, Claiming, Bounded, ChangeLog, Protocol):
    """A store with all methods that `_Renaming` calls; `_decorator_class` omits absent ones."""


class _Decorator:
    def __init__(self, store: _FullStore) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


_OF_FRAGMENTS: Final = (
    "prepare",
    "drop",
    "erase",
    "build",
    "built",
    "fence",
    "count",
    "pending",
    "sweep",
)
"""Calls that name fields only by the fragments among their arguments."""

_OF_RECORDS: Final = ("lock", "unlock", "record_states")
"""Calls that name fields only by the fragments of the records in their first argument."""


class _Renaming(_Decorator):
    """The other calls that name fields, of all protocols of the port.

    A call whose result needs no translation creates no additional coroutine: usually nothing is
    renamed, and then this must cost nothing.
    """

    def read(self, calls: Sequence[Read]) -> Coroutine[Any, Any, list[Record | None]]:
        for call in calls:
            if call.fragment.stored_names:
                return _read(self.store, calls)
        return self.store.read(calls)

    def write(
        self, calls: Sequence[Write], token: str = ""
    ) -> Coroutine[Any, Any, list[WriteResult]]:
        for call in calls:
            if call.fragment.stored_names:
                return _write(self.store, calls, token)
        return self.store.write(calls, token)

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        remembered = await self.store.recall(stored_fragment(fragment), id_, operation)
        if remembered is None or not fragment.stored_names:
            return remembered
        result = names_of(fragment).result(remembered.result)
        return RememberedOperation(remembered.fingerprint, result)

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        if not fragment.stored_names:
            return await self.store.scan(fragment, after, limit, fields)
        names = names_of(fragment)
        stored_fields = names.read(Read(fragment, "", fields)).fields
        records = await self.store.scan(names.fragment, after, limit, stored_fields)
        return [names.record(record) for record in records]

    async def reserve(self, writes: Sequence[Write]) -> list[TakenClaim | None]:
        replies = await self.store.reserve([_stored_write(write) for write in writes])
        pairs = zip(writes, replies, strict=True)
        return [names_of(write.fragment).taken_claim(taken) for write, taken in pairs]

    def exceeding(self, calls: Sequence[SizedWrite]) -> Coroutine[Any, Any, list[bool]]:
        return self.store.exceeding([(_stored_write(write), state) for write, state in calls])

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        if not fragment.stored_names:
            return self.store.pushdown(fragment, filter_, order)
        names = names_of(fragment)
        plan = self.store.pushdown(names.fragment, names.filter(filter_), names.order(order))
        return names.pushdown(plan)

    def find(self, find: SearchRequest) -> Coroutine[Any, Any, SearchPage]:
        return _find(self.store, find) if _is_renamed(find) else self.store.find(find)

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        return self.store.aggregates(*_stored_aggregate(fragment, filter_, aggregate))

    def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> Coroutine[Any, Any, list[ComputedGroup]]:
        arguments = _stored_aggregate(fragment, filter_, aggregate)
        return self.store.aggregate(*arguments, limit=limit, deadline_s=deadline_s)

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:
        return self.store.estimates(*_stored_filter(fragment, filter_))

    def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> Coroutine[Any, Any, int]:
        return self.store.estimate(*_stored_filter(fragment, filter_), deadline_s=deadline_s)

    def changes(
        self, log: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> Coroutine[Any, Any, LogPage]:
        def stored_fragment_of(database: str, class_name: str) -> Fragment | None:
            fragment = fragment_of(database, class_name)
            return None if fragment is None else stored_fragment(fragment)

        return self.store.changes(log, after, limit, stored_fragment_of)


def _of_fragments(name: str) -> Callable[..., Any]:
    def call(decorator: _Decorator, *arguments: Any) -> Any:
        stored = [stored_fragment(a) if isinstance(a, Fragment) else a for a in arguments]
        return getattr(decorator.store, name)(*stored)

    return call


def _of_records(name: str) -> Callable[..., Any]:
    def call(
        decorator: _Decorator, keys: Sequence[RecordKey], *others: Any, **keywords: Any
    ) -> Any:
        stored = [(stored_fragment(fragment), id_) for fragment, id_ in keys]
        return getattr(decorator.store, name)(stored, *others, **keywords)

    return call


_RENAMING: Final[Mapping[str, Any]] = {
    **vars(_Renaming),
    **{name: _of_fragments(name) for name in _OF_FRAGMENTS},
    **{name: _of_records(name) for name in _OF_RECORDS},
}


@cache
def _decorator_class(kind: type) -> type[_Decorator]:
    """Return a class with exactly the members of a store's class, so it offers the same protocols.

    Copies of views (`Mirror`) have no stored names: a class whose fields are renamed is copied
    again.
    """
    offered = {name: _Delegated(name) for name in dir(kind) if not name.startswith("_")}
    renaming = {name: call for name, call in _RENAMING.items() if name in offered}
    return type(kind.__name__, (_Decorator,), {**offered, **renaming})


class _Delegated:
    """A descriptor that delegates to a member of the decorated store."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, decorator: _Decorator | None, kind: type) -> Any:
        return self if decorator is None else getattr(decorator.store, self._name)


async def _read(store: Store, calls: Sequence[Read]) -> list[Record | None]:
    names = [names_of(call.fragment) for call in calls]
    records = await store.read([n.read(call) for n, call in zip(names, calls, strict=True)])
    pairs = zip(names, records, strict=True)
    return [None if record is None else n.record(record) for n, record in pairs]


async def _write(store: Store, calls: Sequence[Write], token: str) -> list[WriteResult]:
    names = [names_of(call.fragment) for call in calls]
    writes = [n.write(call) for n, call in zip(names, calls, strict=True)]
    results = await store.write(writes, token)
    return [n.result(result) for n, result in zip(names, results, strict=True)]


async def _find(store: Queryable, find: SearchRequest) -> SearchPage:
    names = names_of(find.fragment)
    page = await store.find(names.search(find))
    return SearchPage([names.record(record) for record in page.records], page.resume)


def _stored_write(write: Write) -> Write:
    return names_of(write.fragment).write(write) if write.fragment.stored_names else write


def _is_renamed(find: SearchRequest) -> bool:
    if find.fragment.stored_names:
        return True
    joins = list(find.semi_joins)
    while joins:
        join = joins.pop()
        if join.fragment.stored_names:
            return True
        joins += join.inner
    return False


def _stored_filter(fragment: Fragment, filter_: Filter | None) -> tuple[Fragment, Filter | None]:
    if not fragment.stored_names:
        return fragment, filter_
    names = names_of(fragment)
    return names.fragment, names.filter(filter_)


def _stored_aggregate(
    fragment: Fragment, filter_: Filter | None, aggregate: Aggregate
) -> tuple[Fragment, Filter | None, Aggregate]:
    if not fragment.stored_names:
        return fragment, filter_, aggregate
    return *_stored_filter(fragment, filter_), names_of(fragment).aggregate(aggregate)
