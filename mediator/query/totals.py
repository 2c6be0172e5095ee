"""Totals: how many objects a query finds, whatever its limit and its position."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mediator.base.immutable import immutable
from mediator.model.filters import paths_of
from mediator.model.query import Aggregate, Computation, CountMode, Function, Query

__all__ = ["TOTAL", "Total", "counting"]

TOTAL: Final = "total"
"""The name of what a query for a total computes."""

_COUNTED: Final = Aggregate((), {TOTAL: Computation(Function.COUNT)})


@immutable
class Total:
    """How many objects a query finds, and how they were counted."""

    objects: int
    count: CountMode


def counting(query: Query) -> Query:
    """Return the query that computes the total of another one.

    What is joined adds no object and removes none, unless a condition is about it.
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
        aggregate=_COUNTED,
        as_documents=False,
    )
