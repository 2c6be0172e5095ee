"""Searches: what a store can do of them, their requests and pages."""

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
        pushed: The part of the filter that it applies exactly; None: nothing.
        residual: The rest, to be evaluated on the records it returns; the filter is equivalent to
            both together.
        access: How it finds the records. CLIENT_SCAN: it can only send them all.
        ordered: Whether it returns them in the requested order, so that `SearchRequest.after` may
            be used: of each level missing, nulls, values, or the reverse; then ids, in the
            direction of the last level.
        index: The fields of the index that it reads; None: that of the ids, none, or one that the
            server chooses by its statistics.
    """

    pushed: Filter | None
    residual: Filter | None
    access: AccessPath
    ordered: bool
    index: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """Leaves out records whose reference does not lead to a live record that passes.

    Attributes:
        reference: The field that holds the reference.
        fragment: The fragment of the record that it leads to, in the same store.
        filter: What must hold for that record, a filter that `Queryable.pushdown` has pushed whole;
            None: it must be there.
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
        order: An order for which it has said `ordered`; empty: any.
        limit: Records per page at most.
        after: Return only records beyond this position of `order`; first page only.
        resume: `SearchPage.resume` of the page before.
        fields: Fields to return; None: all.
        deadline_s: Time for this page; beyond it `StoreTooCostly` is raised.
        semi_joins: What leaves out further records; only where the store is `Joining`.
        most_bytes: A page may end once it has so many bytes of values, about; None: it does not.
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
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of a search; `resume` leads to the next one and is None on the last."""

    records: Sequence[Record]
    resume: Any = None


@runtime_checkable
class Queryable(Protocol):
    """A store that searches by filters; it leaves to the caller what it cannot apply exactly."""

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        """Plan a search; pure, without a call to the server.

        The filter's and the order's paths begin with fields of the fragment, or are `ID`. An empty
        order means the order of ids here.
        """

    async def find(self, find: SearchRequest) -> SearchPage:
        """Return a page of records. Raises `StoreTooCostly` beyond the deadline."""


@dataclass(frozen=True, slots=True)
class ShownJoin:
    """A record that a reference leads to, shown in the document of the record that is found.

    Attributes:
        alias: The member that shows it; null if there is no such record.
        outer: The alias of the record that holds the reference; empty: the one that is found.
        reference: The field that holds it.
        fragment: The fragment of the record, in the same store.
        names: The fields that are shown, sorted.
        filter: What must hold for that record, a filter that `Queryable.pushdown` has pushed whole,
            and that nothing but a record meets; None: nothing, not even that it is there.
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
        documents: For each record its id as ``id``, the values of the fields shown that are not
            missing, and by alias what is joined: a document alike, or None.
        last: The last record with the fields of the order, if more follow.
    """

    documents: list[dict[str, Any]]
    last: Record | None


@runtime_checkable
class Joining(Queryable, Protocol):
    """A store whose searches follow references to its own records.

    It leaves records out by those that they lead to (`SearchRequest.semi_joins`), and joins these
    to the records that it finds, in one snapshot.
    """

    async def documents(
        self, find: SearchRequest, names: tuple[str, ...], joins: tuple[ShownJoin, ...]
    ) -> DocumentPage:
        """Return the first page of a search, or in the order of ids any page, as documents.

        `names` are sorted; each join comes after the one that holds its reference.
        """


def is_queryable(store: object) -> TypeGuard[Queryable]:
    # Cached by class, which `isinstance` of a protocol is not.
    return issubclass(type(store), Queryable)


def is_joining(store: object) -> TypeGuard[Joining]:
    return issubclass(type(store), Joining)


ComputedGroup: TypeAlias = tuple[tuple[Value | MissingType, ...], Mapping[str, Value]]
"""The values that make up a group, and what was computed over it, by name."""


@runtime_checkable
class Aggregating(Protocol):
    """A store that groups and computes."""

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        """Whether it applies the whole filter and computes all this exactly (floats to 1e-9)."""

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        """Return up to `limit` groups, in no order; what they must meet (`having`) is left.

        A sum of integers may be beyond 64 bits; an average is a float (of decimals, a Decimal).
        Raises `StoreTooCostly` beyond the deadline.
        """


def group_of_all(aggregate: Aggregate, records: int) -> list[ComputedGroup]:
    """Return what an aggregate that `only_counts` computes of so many records."""
    computed: dict[str, Value] = dict.fromkeys(aggregate.compute, records)
    return [((), computed)]


@runtime_checkable
class Estimating(Protocol):
    """A store that knows about how many records there are, without looking at them."""

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:
        """Whether it estimates what the whole filter finds, faster than it can count it."""

    async def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> int:
        """Return about how many records a filter finds; deleted and expired ones may be counted.

        Raises `StoreTooCostly` beyond the deadline.
        """


_ID_FIELD: Final = Field(ID[0], FieldType.STRING)

_ORDERED: Final = SCALARS - {FieldType.BINARY}
"""Types whose least and greatest values servers find as we do."""


def field_at(fragment: Fragment, path: Path) -> Field | None:
    """Return the field that a path is, the id included; None: it leads into one, or to none."""
    if path == ID:
        return _ID_FIELD
    return fragment.fields.get(path[0]) if len(path) == 1 else None


def computes(fragment: Fragment, aggregate: Aggregate, summable: frozenset[FieldType]) -> bool:
    """Whether a server that sums exactly what is `summable` groups and computes all this."""
    fields = [field_at(fragment, path) for path in aggregate.group]
    grouped = all(field is not None and field.type in SCALARS for field in fields)
    return grouped and all(
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
    """Return the one level that decides an order, if there is one.

    Ids follow the values of the last level in its direction anyway, and nothing is left to be
    ordered behind them. No level at all is the order of ids.
    """
    match order:
        case ():
            return OrderBy(ID)
        case (level, *_) if level.path == ID:
            return level
        case (level, *rest) if not rest or rest[0] == OrderBy(ID, level.descending):
            return level
    return None
