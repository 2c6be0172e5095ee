"""Costly queries by their shape: without the constants, which may be secrets."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import orjson

from mediator.base.observation import CostlyQueryFound
from mediator.model.filters import And, Exists, Filter, Not, Or, Path, paths_of
from mediator.model.query import Query
from mediator.query.explain import filter_document
from mediator.query.proposed_indexes import proposed_indexes
from mediator.routing.model import ClassRoute
from mediator.schema.types import SCALARS

__all__ = ["Refusal", "costly_query", "shape_of"]

Refusal: TypeAlias = Literal["needs a scan", "too costly"]

_MAX_LENGTH: Final = 1_000
"""Characters of a shape that are kept; a filter can be far longer."""


def shape_of(query: Query) -> str:
    """Return a query as JSON with ``?`` in place of each constant, truncated if it is long.

    A path within a field may contain keys of a map, which are data, so only the field is shown.
    """
    shape: dict[str, Any] = {}
    if query.filter is not None:
        shape["filter"] = _shape(query.filter)
    if query.order:
        shape["order"] = [f"{'-' * level.descending}{_field(level.path)}" for level in query.order]
    if query.joins:
        shape["join"] = [_field(join.reference) for join in query.joins]
    if query.aggregate is not None:
        shape["group"] = [_field(path) for path in query.aggregate.group]
    if query.count is not None:
        shape["count"] = query.count.value
    return orjson.dumps(shape).decode()[:_MAX_LENGTH]


def costly_query(
    query: Query,
    route: ClassRoute | None,
    seconds: float,
    rows: int | None,
    refusal: Refusal | None,
) -> CostlyQueryFound:
    """Describe a query that took long or was refused; see `CostlyQueryFound`."""
    database, class_name = query.database, query.class_name
    fields = () if route is None else _without_index(query, route)
    shape, indexes = shape_of(query), () if route is None else proposed_indexes(query, route)
    return CostlyQueryFound(database, class_name, shape, seconds, rows, fields, refusal, indexes)


def _without_index(query: Query, route: ClassRoute) -> tuple[str, ...]:
    fields = route.schema.fields
    paths = {*paths_of(query.filter), *(level.path for level in query.order)}
    names = {path[0] for path in paths if len(path) == 1 and path[0] in fields}
    return tuple(sorted(n for n in names if fields[n].type in SCALARS and not fields[n].index))


def _shape(filter_: Filter) -> Any:
    match filter_:
        case And((operand,)):  # as parsed from parameters
            return _shape(operand)
        case And(operands):
            return {"and": [_shape(operand) for operand in operands]}
        case Or(operands):
            return {"or": [_shape(operand) for operand in operands]}
        case Not(operand):
            return {"not": _shape(operand)}
        case Exists(path):
            return {"exists": _field(path)}
    [operator] = filter_document(filter_) or {}  # with the path and the constants
    return {operator: [_field(filter_.path), "?"]}


def _field(path: Path) -> str:
    return path[0] + ".…" * (len(path) > 1)
