"""Plans and filters as JSON, for clients that request `explain`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from mediator.model.filters import (
    And,
    Between,
    Compare,
    Contains,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Or,
    Path,
)
from mediator.query.budget import Budget
from mediator.query.planner import QueryPlan
from mediator.routing.fragments import resource_of
from mediator.schema.scalars import SCALAR_ENCODERS
from mediator.schema.types import FieldType, Value

__all__ = ["explanation", "filter_document"]


def filter_document(filter_: Filter | None) -> dict[str, Any] | None:
    match filter_:
        case None:
            return None
        case And(operands):
            return {"and": [filter_document(operand) for operand in operands]}
        case Or(operands):
            return {"or": [filter_document(operand) for operand in operands]}
        case Not(operand):
            return {"not": filter_document(operand)}
        case Exists(path):
            return {"exists": _dotted(path)}
    return _condition(filter_)


def _condition(filter_: Compare | Between | In | Like | Contains) -> dict[str, Any]:
    match filter_:
        case Like(path, pattern):
            return {"like": [_dotted(path), pattern]}
        case Contains(path, value):
            return {"contains": [_dotted(path), _json(value)]}
        case In(path, values):
            return {"in": [_dotted(path), [_json(value) for value in values]]}
        case Between(path, low, high):
            return {"between": [_dotted(path), _json(low), _json(high)]}
        case Compare(comparison, path, value):
            return {comparison.value: [_dotted(path), _json(value)]}


def _dotted(path: Path) -> str:
    return ".".join(path)


def _json(value: Value) -> Any:
    kinds = {
        Decimal: FieldType.DECIMAL,
        datetime: FieldType.TIMESTAMP,
        bytes: FieldType.BINARY,
    }
    kind = kinds.get(type(value))
    if kind is not None:
        return SCALAR_ENCODERS[kind](value)
    return [_json(item) for item in value] if isinstance(value, list) else value


def explanation(plan: QueryPlan, budget: Budget, returned: int) -> dict[str, Any]:
    return {
        **_search(plan),
        "others": _other_systems(plan),
        "after_joins": filter_document(plan.joined_filter),
        "joins": [
            {"as": join.alias, "class": join.class_name, "reference": _dotted(join.reference)}
            for join in (*plan.query.joins, *plan.query.list_joins)
        ],
        "reverse_joins": [
            {"as": join.alias, "class": join.class_name, "reference": join.reference}
            for join in plan.query.reverse_joins
        ],
        "rest": _search(plan.tail) if plan.tail else None,
        "count": _search(plan.total) if plan.total else None,
        "round_trips": dict(budget.round_trips),
        "rows": {"moved": budget.rows, "returned": returned},
    }


def _search(plan: QueryPlan) -> dict[str, Any]:
    return {
        "system": plan.driver.system,
        "access": plan.access.value,
        "index": plan.pushdown.index,
        "pushed": {
            "filter": filter_document(plan.pushdown.pushed),
            "joined": {
                alias: filter_document(filter_)
                for alias, filter_ in plan.semi_joins.filters.items()
            },
            "order": plan.ordered,
            "limit": plan.limited,
            "aggregate": plan.aggregated,
            "estimate": plan.estimated,
        },
        "residual": filter_document(plan.residual),
    }


def _other_systems(plan: QueryPlan) -> list[str]:
    if plan.aggregated:
        return []
    fragments = resource_of(plan.route, plan.fields).fragments
    return [fragment.system for fragment, _ in fragments if fragment is not plan.driver]
