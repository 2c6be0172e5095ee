"""Whether queries can be divided by value: each result then lies in one partition of all stores.

An equivalence class of attributes that covers every relation of a query has one value in a result.
Queries that agree on it are partitioned by it together; of any others a partition cannot be moved,
since its tuples have partners in other partitions (D-CAPE, section 2).
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
    """Queries that cannot be divided by value."""


def partition_attributes(queries: Iterable[Join]) -> Mapping[str, Attribute]:
    """Return the attribute of each relation by which all queries are partitioned.

    Time grows with the square of the queries. Where equal attributes of one relation leave a choice
    it is made once, so that rare sets of queries are refused for which another choice would do.

    Raises:
        NotCoPartitioned: There is none.
    """
    left = sorted(set(queries), key=lambda query: sorted(query.relations))
    found: dict[str, Attribute] = {}
    while left:
        first, *left = left
        group = _take_joined(first, left)
        for equal in _coverings(first):
            chosen = _agreed(group, equal)
            if chosen is not None:
                found |= chosen
                break
        else:
            raise NotCoPartitioned(_DETAIL)
    return found


def partition_of(key: Hashable | None, partitions: int) -> int | None:
    """Return the partition of a value, the same in every process; None: nothing equals it.

    Args:
        key: What `JoinedTuple.key` returns.
    """
    if key is None:
        return None
    _, value = cast("tuple[bool, str | int | float | bool]", key)
    # Python hashes texts anew in each process, and numbers that are equal always alike.
    number = zlib.crc32(value.encode()) if isinstance(value, str) else hash(value)
    return number % partitions


def _take_joined(first: Join, left: list[Join]) -> list[Join]:
    """Take out of a list what shares relations with a query, or with what does so."""
    group, reached = [first], set(first.relations)
    while more := [query for query in left if query.relations & reached]:
        for query in more:
            left.remove(query)
            reached |= query.relations
        group += more
    return group


def _agreed(group: Sequence[Join], equal: frozenset[Attribute]) -> dict[str, Attribute] | None:
    """Choose the attributes of some queries, from a class of the first; None: they disagree."""
    allowed = _by_relation(equal)
    for query in group[1:]:
        for each in map(_by_relation, _coverings(query)):
            both = {name: of & allowed.get(name, of) for name, of in each.items()}
            if all(both.values()):
                allowed |= both
                break
        else:
            return None
    return {name: min(of) for name, of in allowed.items()}


def _coverings(query: Join) -> list[frozenset[Attribute]]:
    """Return the classes of equal attributes that have one of every relation."""
    named = {at for predicate in query.predicates for at in predicate}
    classes = {query.equal_to(attribute) for attribute in named}
    covering = (each for each in classes if {at.relation for at in each} == query.relations)
    return sorted(covering, key=sorted)


def _by_relation(equal: frozenset[Attribute]) -> dict[str, frozenset[Attribute]]:
    names = sorted({at.relation for at in equal})
    return {name: frozenset(at for at in equal if at.relation == name) for name in names}
