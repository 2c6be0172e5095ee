"""A query, parsed and validated against its class: plain immutable data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, get_args

from mediator.model.filters import ID, Filter, Path, paths_of
from mediator.schema.tree import MissingType
from mediator.schema.types import Value

__all__ = [
    "PARTS",
    "Aggregate",
    "Computation",
    "CountMode",
    "Function",
    "Join",
    "OrderBy",
    "Position",
    "Query",
    "ReverseJoin",
]


@dataclass(frozen=True, slots=True)
class OrderBy:
    """One level of an order. Ascending: missing, null, values."""

    path: Path
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where an object is in an order: its value (or MISSING) at each level, and its id.

    Objects that are equal at all levels follow in the order of their ids, which has the direction
    of the last level (ascending if there is none).
    """

    values: tuple[Value | MissingType, ...]
    id: str


@dataclass(frozen=True, slots=True)
class Join:
    """The object that a reference points to, joined under an alias; null if missing.

    For a list or set of references: the list of the existing objects.

    Attributes:
        reference: Path of the reference: ``("author",)``, or of a reference of an object joined
            before: ``("writer", "employer")``.
        class_name: The class that it points to.
        fields: The returned fields of the joined object; None: all.
    """

    alias: str
    reference: Path
    class_name: str
    fields: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReverseJoin:
    """The objects of a class whose reference points to an object, joined as a list.

    Attributes:
        class_name: The referring class.
        reference: Its field, a reference to the queried class.
        filter: A condition on these objects.
        order: Their order; empty: by id.
        limit: How many are joined to one object at most.
        fields: The returned fields of these objects; None: all.
    """

    alias: str
    class_name: str
    reference: str
    filter: Filter | None = None
    order: tuple[OrderBy, ...] = ()
    limit: int = 10
    fields: tuple[str, ...] | None = None


class Function(StrEnum):
    """An aggregate function over a group of objects; ignores nulls and missing values."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Computation:
    """A function of a field; without a path, COUNT counts objects (``*``)."""

    function: Function
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups of objects, and the computations over each.

    Attributes:
        group: Paths whose values (null and missing are values here) make up a group. None: all
            objects are one group, which exists even if it is empty.
        compute: Computations by the name of their result.
        having: A filter on the results, whose paths are names of `compute` or paths of `group`.
    """

    group: tuple[Path, ...]
    compute: Mapping[str, Computation]
    having: Filter | None = None

    @property
    def counts_objects(self) -> bool:
        """Whether it only counts the objects of each group."""
        return all(
            computation == Computation(Function.COUNT) for computation in self.compute.values()
        )

    @property
    def only_counts(self) -> bool:
        """Whether it only counts all objects."""
        return not self.group and self.counts_objects

    @property
    def paths(self) -> set[Path]:
        """The paths that are grouped by or aggregated."""
        computed = {c.path for c in self.compute.values() if c.path is not None}
        return {*self.group, *computed}


class CountMode(StrEnum):
    """How the objects that a query finds are counted."""

    EXACT = "exact"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a class.

    Attributes:
        filter: The condition on objects; None: all.
        order: Their order; empty: by id (aggregates: by group).
        limit: How many objects at most.
        after: The position after which they start.
        fields: The returned fields, sorted; None: all.
        joins: The joins of single objects, each after those that its reference needs.
        list_joins: The joins of lists of references; conditions and orders cannot use them.
        reverse_joins: The joins along references to the objects found; likewise unusable.
        aggregate: Computed instead of listing objects.
        count: How all objects that the filter matches are counted, regardless of limit and
            position; None: not counted.
        allow_scan: Whether a store without a fitting index may be scanned (within the cost
            limits).
        as_documents: Whether documents may answer instead of objects (`QueryResult.documents`).
        may_end_early: Whether large objects may end the answer before the limit; the caller
            continues after the last one. Else the query is refused.
        is_sized: Whether the caller knows the sizes of objects, and adapts the limit to them.
    """

    database: str
    class_name: str
    filter: Filter | None = None
    order: tuple[OrderBy, ...] = ()
    limit: int = 100
    after: Position | None = None
    fields: tuple[str, ...] | None = None
    joins: tuple[Join, ...] = ()
    list_joins: tuple[Join, ...] = ()
    reverse_joins: tuple[ReverseJoin, ...] = ()
    aggregate: Aggregate | None = None
    count: CountMode | None = None
    allow_scan: bool = False
    as_documents: bool = False
    may_end_early: bool = False
    is_sized: bool = False

    @property
    def paths(self) -> set[Path]:
        """All paths that are compared, ordered by, followed, grouped by or aggregated."""
        paths = {*paths_of(self.filter), *(level.path for level in self.order)}
        paths |= {join.reference for join in (*self.joins, *self.list_joins)}
        return paths if self.aggregate is None else paths | self.aggregate.paths

    @property
    def joined_classes(self) -> set[str]:
        """The classes whose objects are joined."""
        forward = {join.class_name for join in (*self.joins, *self.list_joins)}
        return forward | {join.class_name for join in self.reverse_joins}

    @property
    def own_fields(self) -> set[str]:
        """The fields of its class that the query names."""
        reserved = {ID[0], *(join.alias for join in self.joins)}
        computed = {} if self.aggregate is None else self.aggregate.compute
        names = {path[0] for path in self.paths if path[0] not in computed}
        return {*names, *(self.fields or ())} - reserved


PARTS: Final[tuple[type, ...]] = (
    *get_args(Filter),
    *(OrderBy, Position, Join, ReverseJoin, Computation, Aggregate, Query),
)
"""All classes of which queries consist and whose instances they do not share."""
