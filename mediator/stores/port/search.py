"""Searches: their plans, requests and pages, and the protocols of stores that offer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, runtime_checkable

from mediator.base.immutable import immutable
from mediator.model.filters import ID, Filter, Path
from mediator.model.query import Aggregate, Computation, Function, OrderBy, Position
from mediator.schema.tree import Field, MissingType
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.stores.port.records import Fragment, Record

__all__ = [
    "AccessPath",
    "Aggregating",
    "ComputedGroup",
    "DocumentPage",
    "Estimating",
    "Joining",
    "Pushdown",
    "Queryable",
    "SearchPage",
    "SearchRequest",
    "SemiJoin",
    "ShownJoin",
    "computes",
    "field_at",
    "group_of_all",
    "is_joining",
    "is_queryable",
    "only_level",
]


class AccessPath(StrEnum):
    """How a store finds the records of a search, cheapest first."""

    KEYS = "keys"
    INDEX = "index"
    SERVER_SCAN = "server scan"
    CLIENT_SCAN = "client scan"


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The plan of a store for a search.

    Attributes:
        pushed: The conditions that the store applies exactly; None: none.
        residual: The conditions left for the caller to evaluate on the returned records; the filter
            is the conjunction of both.
        access: How the store finds the records. CLIENT_SCAN: it can only send all of them.
        ordered: Whether it returns them in the requested order, so that `SearchRequest.after` can
            be used: per level missing, nulls, values, or the reverse; then ids, in the
            direction of the last level.
        index: The fields of the index that it reads; None: the index of ids, none, or one that the
            server chooses by its statistics.
    """

    pushed: Filter | None
    residual: Filter | None
    access: AccessPath
    ordered: bool
    index: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """Keeps only records whose reference leads to a live record that matches.

    Attributes:
        reference: The field that holds the reference.
        fragment: The fragment of the referenced record, in the same store.
        filter: The filter on that record, which `Queryable.pushdown` has pushed completely; None:
            the record need only exist.
        inner: Semi-joins of that record.
    """

    reference: str
    fragment: Fragment
    filter: Filter | None
    inner: tuple[SemiJoin, ...] = ()


@immutable
class SearchRequest:
    """A search among the live records of a fragment, page by page.

    Attributes:
        filter: A filter that `Queryable.pushdown` has returned as pushed; None: all records.
        order: An order that the `Pushdown` calls `ordered`; empty: any order.
        limit: Maximum number of records per page.
        after: Return only records beyond this position of `order`; first page only.
        resume: `SearchPage.resume` of the page before.
        fields: Fields to return; None: all.
        deadline_s: Time for this page; beyond it `StoreTooCostly` is raised.
        semi_joins: Semi-joins that filter the records; only where the store is `Joining`.
        max_bytes: About how many bytes of values end a page; None: no limit.
    """

    fragment: Fragment
    filter: Filter | None
    order: tuple[OrderBy, ...]
    limit: int
    after: Position | None = None
    resume: Any = None
    fields: tuple[str, ...] | None = None
    deadline_s: float = 10.0
    semi_joins: tuple[SemiJoin, ...] = ()
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of a search; `resume` leads to the next one and is None on the last."""

    records: Sequence[Record]
    resume: Any = None


@runtime_checkable
class Queryable(Protocol):
    """A store that searches by filters; the caller evaluates what it cannot apply exactly."""

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        """Plan a search; pure, without a call to the server.

        The paths of the filter and the order begin with fields of the fragment, or are `ID`. An
        empty order means the order of ids here.
        """

    async def find(self, find: SearchRequest) -> SearchPage:
        """Return a page of records. Raises `StoreTooCostly` beyond the deadline."""


@dataclass(frozen=True, slots=True)
class ShownJoin:
    """A referenced record, shown in the document of the matching record (an outer join).

    Attributes:
        alias: The member that shows it; null if there is no such record.
        outer: The alias of the record that holds the reference; empty: the matching record.
        reference: The field that holds the reference.
        fragment: The fragment of the referenced record, in the same store.
        names: The fields that are shown, sorted.
        filter: The filter on the referenced record, which `Queryable.pushdown` has pushed
            completely, and which is false for an absent one; None: none, the record can be absent.
    """

    alias: str
    outer: str
    reference: str
    fragment: Fragment
    names: tuple[str, ...]
    filter: Filter | None


@immutable
class DocumentPage:
    """A page of a search as documents.

    Attributes:
        documents: For each record its id as ``id``, the shown fields that are not missing, and by
            alias the joined record: a document of the same form, or None.
        last: The last record with the fields of the order, if more follow.
    """

    documents: list[dict[str, Any]]
    last: Record | None


@runtime_checkable
class Joining(Queryable, Protocol):
    """A store whose searches follow references among its own records.

    It filters records by those that they reference (`SearchRequest.semi_joins`), and joins these
    to the matching records, in one snapshot.
    """

    async def documents(
        self, find: SearchRequest, names: tuple[str, ...], joins: tuple[ShownJoin, ...]
    ) -> DocumentPage:
        """Return the first page of a search, or any page in the order of ids, as documents.

        `names` are sorted; each join comes after the one that holds its reference.
        """


def is_queryable(store: object) -> TypeGuard[Queryable]:
    # `issubclass` is cached by class; `isinstance` of a protocol is not.
    return issubclass(type(store), Queryable)


def is_joining(store: object) -> TypeGuard[Joining]:
    return issubclass(type(store), Joining)


ComputedGroup: TypeAlias = tuple[tuple[Value | MissingType, ...], Mapping[str, Value]]
"""The values that define a group, and the results computed over it, by name."""


@runtime_checkable
class Aggregating(Protocol):
    """A store that groups and computes."""

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        """Whether it applies the whole filter and aggregates exactly (floats to 1e-9)."""

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        """Return up to `limit` groups, in no order; the caller applies `having`.

        A sum of integers can exceed 64 bits; an average is a float (of decimals, a Decimal).
        Raises `StoreTooCostly` beyond the deadline.
        """


def group_of_all(aggregate: Aggregate, records: int) -> list[ComputedGroup]:
    """Return the result of an aggregate that `only_counts`, for this number of records."""
    computed: dict[str, Value] = dict.fromkeys(aggregate.compute, records)
    return [((), computed)]


@runtime_checkable
class Estimating(Protocol):
    """A store that estimates numbers of records from statistics, without reading records."""

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:
        """Whether it can estimate the matches of the whole filter faster than count them."""

    async def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> int:
        """Estimate how many records match a filter; deleted and expired ones may be counted.

        Raises `StoreTooCostly` beyond the deadline.
        """


_ID_FIELD: Final = Field(ID[0], FieldType.STRING)

_ORDERED: Final = SCALARS - {FieldType.BINARY}
"""Types of which servers find the same minimum and maximum as the mediator."""


def field_at(fragment: Fragment, path: Path) -> Field | None:
    """Return the field (or the id) that a path names; None: a path into a field, or no field."""
    if path == ID:
        return _ID_FIELD
    return fragment.fields.get(path[0]) if len(path) == 1 else None


def computes(fragment: Fragment, aggregate: Aggregate, summable: frozenset[FieldType]) -> bool:
    """Whether a server that sums the `summable` types exactly can compute the whole aggregate."""
    fields = [field_at(fragment, path) for path in aggregate.group]
    groupable = all(field is not None and field.type in SCALARS for field in fields)
    return groupable and all(
        _is_exact(fragment, computation, summable) for computation in aggregate.compute.values()
    )


def _is_exact(fragment: Fragment, computation: Computation, summable: frozenset[FieldType]) -> bool:
    function, path = computation.function, computation.path
    if path is None:
        return function is Function.COUNT
    field = field_at(fragment, path)
    if field is None:
        return False
    if function in (Function.SUM, Function.AVG):
        return field.type in summable
    return function is Function.COUNT or field.type in _ORDERED


def only_level(order: tuple[OrderBy, ...]) -> OrderBy | None:
    """Return the only level that decides an order, if there is just one.

    Ids always break ties of the last level, in its direction, and nothing is ordered after ids. An
    empty order is the order of ids.
    """
    match order:
        case ():
            return OrderBy(ID)
        case (level, *_) if level.path == ID:
            return level
        case (level, *rest) if not rest or rest[0] == OrderBy(ID, level.descending):
            return level
    return None
