"""Reading aggregates: groups, computations over them, and a filter on the results."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mediator.model.query import Aggregate, Computation, Function
from mediator.query.filter_parser import FilterParser
from mediator.query.json_node import Node
from mediator.query.paths import (
    JSON_SCALAR,
    ResolvedPath,
    Scope,
    only_member,
    path_of_field,
    resolve_path,
)
from mediator.schema.ids import FIELD_NAME
from mediator.schema.tree import Field
from mediator.schema.types import FieldType

__all__ = ["parse_aggregate"]

MOST_COMPUTATIONS: Final = 32
MOST_GROUPED: Final = 8

_NUMBERS: Final = frozenset({FieldType.INTEGER, FieldType.FLOAT, FieldType.DECIMAL, None})


def parse_aggregate(node: Node, scope: Scope) -> tuple[Aggregate | None, Scope | None]:
    """Read an aggregate, and the scope of its results; None if it is left out."""
    if not node.given:
        return None, None
    node.shape("group", "compute", "filter")
    groups: dict[str, ResolvedPath] = {}
    for each in node["group"].elements(MOST_GROUPED):
        target = resolve_path(each, scope)
        if target is not None and not target.is_scalar:
            each.error("cannot be grouped by")
        elif target is not None:
            groups[each.value] = target
    compute: dict[str, Computation] = {}
    results: dict[str, ResolvedPath] = {}
    for name, each in node["compute"].members(MOST_COMPUTATIONS, FIELD_NAME):
        if name in groups:
            each.error("is grouped by under this name")
        read = _computation(each, scope)
        if read is not None:
            compute[name], result = read
            results[name] = replace(result, path=(name,))
    results_scope = Scope(scope.schema, computed=results, groups=groups)
    having = FilterParser(results_scope).read(node["filter"])
    paths = tuple(target.path for target in groups.values())
    return Aggregate(paths, compute, having), results_scope


def _computation(node: Node, scope: Scope) -> tuple[Computation, ResolvedPath] | None:
    name = only_member(node, frozenset(Function), "function")
    if name is None:
        return None
    function, operand = Function(name), node[name]
    if function is Function.COUNT and operand.value == "*":
        return Computation(function), _result(FieldType.INTEGER)
    target = resolve_path(operand, scope)
    if target is None:
        return None
    result = _result_of(function, target)
    if result is None:
        operand.error(f"{function} of it cannot be computed")
        return None
    return Computation(function, target.path), result


def _result_of(function: Function, target: ResolvedPath) -> ResolvedPath | None:
    if function is Function.COUNT:
        return _result(FieldType.INTEGER)
    if function in {Function.MIN, Function.MAX}:
        return target if target.is_scalar else None
    if target.type not in _NUMBERS:
        return None
    if target.type is FieldType.DECIMAL or function is Function.SUM:
        return target
    return _result(FieldType.FLOAT)


def _result(type_: FieldType) -> ResolvedPath:
    # Sums may be beyond 64 bits, and may be compared with any number.
    whole = path_of_field(("result",), Field("result", type_))
    return replace(whole, type=type_, decode=JSON_SCALAR)
