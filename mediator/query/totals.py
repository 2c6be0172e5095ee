"""Totals: the number of objects that a query finds, regardless of limit and position."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mediator.base.immutable import immutable
from mediator.model.filters import paths_of
from mediator.model.query import Aggregate, Computation, CountMode, Function, Query

__all__ = ["TOTAL", "Total", "total_query"]

TOTAL: Final = "total"
"""The name of the result of a query for a total."""

_COUNT: Final = Aggregate((), {TOTAL: Computation(Function.COUNT)})


@immutable
class Total:
    """The number of objects that a query finds, and how they were counted."""

    objects: int
    count: CountMode


def total_query(query: Query) -> Query:
    """Return the query that computes the total of another one.

    Joins neither add nor remove objects, unless a condition uses them.
    """
    aliases = {join.alias for join in query.joins}
    is_joined = any(path[0] in aliases for path in paths_of(query.filter))
    return replace(
        query,
        order=(),
        limit=1,
        after=None,
        fields=None,
        joins=query.joins if is_joined else (),
        list_joins=(),
        reverse_joins=(),
        aggregate=_COUNT,
        as_documents=False,
    )
