"""Co-partitioning of queries by value: each result lies in one partition of all stores.

An equivalence class of attributes that covers every relation of a query has a single value in a
result. Queries that agree on such a class are partitioned by it together. A partition of other
queries cannot be moved, since its tuples have partners in other partitions (D-CAPE, section 2).
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, cast

from mediator.base.errors import Conflict
from mediator.standing.model import Attribute, Join

__all__ = ["NotCoPartitioned", "partition_attributes", "partition_of"]

_DETAIL: Final = (
    "The predicates do not make one attribute of each relation equal in all results, so tuples of a"
    " partition have partners in others: it cannot be moved by itself."
)


class NotCoPartitioned(Conflict):
    """The queries cannot be partitioned by value."""


def partition_attributes(queries: Iterable[Join]) -> Mapping[str, Attribute]:
    """Return the attribute of each relation by which all queries are partitioned.

    The time is quadratic in the number of queries. If equal attributes of one relation leave a
    choice, only one is tried, so rare sets of queries are refused that another choice would allow.

    Raises:
        NotCoPartitioned: No such attributes exist.
    """
    remaining = sorted(set(queries), key=lambda query: sorted(query.relations))
    attributes: dict[str, Attribute] = {}
    while remaining:
        first, *remaining = remaining
        group = _take_joined(first, remaining)
        for covering in _coverings(first):
            agreed = _agree(group, covering)
            if agreed is not None:
                attributes |= agreed
                break
        else:
            raise NotCoPartitioned(_DETAIL)
    return attributes


def partition_of(key: Hashable | None, partitions: int) -> int | None:
    """Return the partition of a value, the same in every process; None: nothing equals it.

    Args:
        key: A result of `JoinedTuple.key`.
    """
    if key is None:
        return None
    _, value = cast("tuple[bool, str | int | float | bool]", key)
    # Python's hash of a string differs by process; equal numbers always have the same hash.
    number = zlib.crc32(value.encode()) if isinstance(value, str) else hash(value)
    return number % partitions


def _take_joined(first: Join, remaining: list[Join]) -> list[Join]:
    """Remove from a list the queries that transitively share relations with a query."""
    group, reached = [first], set(first.relations)
    while more := [query for query in remaining if query.relations & reached]:
        for query in more:
            remaining.remove(query)
            reached |= query.relations
        group += more
    return group


def _agree(group: Sequence[Join], covering: frozenset[Attribute]) -> dict[str, Attribute] | None:
    """Choose the attributes of some queries from a class of the first; None: they disagree."""
    allowed = _by_relation(covering)
    for query in group[1:]:
        for candidate in map(_by_relation, _coverings(query)):
            common = {
                name: attributes & allowed.get(name, attributes)
                for name, attributes in candidate.items()
            }
            if all(common.values()):
                allowed |= common
                break
        else:
            return None
    return {name: min(attributes) for name, attributes in allowed.items()}


def _coverings(query: Join) -> list[frozenset[Attribute]]:
    """Return the classes of equal attributes that cover every relation."""
    attributes = {at for predicate in query.predicates for at in predicate}
    classes = {query.equal_to(attribute) for attribute in attributes}
    covering = (equal for equal in classes if {at.relation for at in equal} == query.relations)
    return sorted(covering, key=sorted)


def _by_relation(equal: frozenset[Attribute]) -> dict[str, frozenset[Attribute]]:
    names = sorted({at.relation for at in equal})
    return {name: frozenset(at for at in equal if at.relation == name) for name in names}
