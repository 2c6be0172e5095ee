"""Semi-joins: records whose references lead to records that meet a condition of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from mediator.model.filters import Filter
from mediator.stores.port import Fragment, SemiJoin
from mediator.stores.postgres.layout import RecordTable, TableOf
from mediator.stores.postgres.search.conditions import condition
from mediator.stores.postgres.search.predicates import FilterShape, ShapedFilter
from mediator.stores.postgres.sql import number

__all__ = ["SemiJoinShape", "ShapeFilter", "conditions_of", "shape_of"]

ShapeFilter: TypeAlias = Callable[[Fragment, Filter | None], ShapedFilter]


class SemiJoinShape(NamedTuple):
    """The shape of a semi-join.

    Attributes:
        reference: The field that refers.
        fragment: What it refers to.
        shape: The shape of the condition there.
        first: The position of the condition's first constant.
        inner: What the record that is referred to must itself refer to.
    """

    reference: str
    fragment: Fragment
    shape: FilterShape
    first: int
    inner: tuple[SemiJoinShape, ...]


def shape_of(semi_join: SemiJoin, shape_filter: ShapeFilter, constants: list[Any]) -> SemiJoinShape:
    """Return the shape of a semi-join.

    Args:
        semi_join: The semi-join.
        shape_filter: Returns the shape and the constants of a filter.
        constants: Those of the whole search so far; its own are added.
    """
    shaped, first = shape_filter(semi_join.fragment, semi_join.filter), len(constants)
    constants += shaped.constants
    inner = tuple(shape_of(each, shape_filter, constants) for each in semi_join.inner)
    return SemiJoinShape(semi_join.reference, semi_join.fragment, shaped.shape, first, inner)


def conditions_of(
    outer: RecordTable, semi_joins: Sequence[SemiJoinShape], tables: TableOf, depth: int = 1
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the condition of each semi-join.

    Args:
        outer: The table with the references.
        semi_joins: The semi-joins.
        tables: Finds the tables that they lead to.
        depth: How many references lead there.
    """
    for each in semi_joins:
        inner = tables(each.fragment).aliased(f"_{depth}")
        refers = inner.id == outer.columns[each.reference]
        meets = condition(inner, each.shape, each.first)
        further = conditions_of(inner, each.inner, tables, depth + 1)
        there: sa.Select[Any] = sa.select(number(1)).where(refers, inner.live, meets, *further)
        yield there.correlate(outer.table).exists()
