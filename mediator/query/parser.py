"""Parsing queries and aggregates from JSON; all errors are reported with their locations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from mediator.model.query import Aggregate, Computation, CountMode, Function, Query
from mediator.query.filter_parser import FilterParser
from mediator.query.join_parser import parse_joins
from mediator.query.json_node import Node
from mediator.query.paths import (
    JSON_SCALAR,
    NameScope,
    ResolvedPath,
    only_member,
    path_of_field,
    resolve_path,
)
from mediator.query.selection_parser import parse_fields, parse_order
from mediator.schema.errors import invalid
from mediator.schema.ids import FIELD_NAME
from mediator.schema.tree import Field, Schema
from mediator.schema.types import FieldType

__all__ = ["DEFAULT_LIMIT", "MAX_LIMIT", "ParsedQuery", "parse_aggregate", "parse_query_document"]

MAX_LIMIT: Final = 1_000
DEFAULT_LIMIT: Final = 100

_SETTINGS: Final = ("limit", "after", "count", "explain")
"""Members outside the identity of a query: a cursor can be used with another limit."""

_COUNTS: Final = tuple(CountMode)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query as sent.

    Attributes:
        query: The query, without its position.
        levels: The resolved paths of its order, to decode and encode positions.
        after: The cursor, still sealed.
        identity: The query as a canonical text, the same for equal queries.
        results: The columns of an aggregate, in order: groups, then computed results.
    """

    query: Query
    levels: tuple[ResolvedPath, ...]
    after: str | None
    explain: bool
    identity: str
    results: dict[str, ResolvedPath] = field(default_factory=dict)


def parse_query_document(
    document: Any, schema: Schema, class_name: str, *, max_limit: int = MAX_LIMIT
) -> ParsedQuery:
    """Parse a query; raises `Invalid` with the location of every error."""
    node = Node(document, "", [])
    node.shape(
        *("filter", "order", "limit", "after", "fields", "aggregate", "join"),
        *("count", "allow_scan", "explain"),
    )
    query, levels, results = _QueryParser(node, schema, class_name).read(max_limit)
    after = node["after"].read(None, lambda raw: raw is None or isinstance(raw, str), "a string")
    explain = node["explain"].boolean()
    if node.errors:
        raise invalid(node.errors)
    return ParsedQuery(query, levels, after, explain, _identity(document), results)


class _QueryParser:
    """Parses one query; after an error its result is discarded."""

    def __init__(self, node: Node, schema: Schema, class_name: str) -> None:
        self._node = node
        self._schema = schema
        self._class = schema.classes[class_name]

    def read(
        self, max_limit: int
    ) -> tuple[Query, tuple[ResolvedPath, ...], dict[str, ResolvedPath]]:
        node = self._node
        joins, scope = parse_joins(node["join"], self._schema, self._class)
        filter_ = FilterParser(scope).read(node["filter"])
        aggregate, results = parse_aggregate(node["aggregate"], scope)
        levels = parse_order(node["order"], results or scope)
        if aggregate is not None:
            for name in ("fields", "after", "count"):
                if node[name].given:
                    node[name].error("does not go together with aggregate")
            if scope.lists:
                node["join"].error("adds lists, which do not go together with aggregate")
        query = Query(
            database=self._schema.database,
            class_name=self._class.name,
            filter=filter_,
            order=tuple(order for order, _ in levels),
            limit=node["limit"].integer(
                min(DEFAULT_LIMIT, max_limit), minimum=1, maximum=max_limit
            ),
            fields=parse_fields(node["fields"], self._class),
            joins=tuple(joins.single),
            list_joins=tuple(joins.lists),
            reverse_joins=tuple(joins.reverse),
            aggregate=aggregate,
            count=self._count(),
            allow_scan=node["allow_scan"].boolean(),
        )
        columns = {**results.groups, **(results.computed or {})} if results else {}
        return query, tuple(target for _, target in levels), columns

    def _count(self) -> CountMode | None:
        expected = f"one of {', '.join(_COUNTS)}"
        name = self._node["count"].read(None, _COUNTS.__contains__, expected)
        return None if name is None else CountMode(name)


def _identity(document: dict[str, Any]) -> str:
    canonical = {name: value for name, value in document.items() if name not in _SETTINGS}
    return orjson.dumps(canonical, option=orjson.OPT_SORT_KEYS).decode()


MAX_COMPUTATIONS: Final = 32
MAX_GROUPED: Final = 8

_NUMBERS: Final = frozenset({FieldType.INTEGER, FieldType.FLOAT, FieldType.DECIMAL, None})


def parse_aggregate(node: Node, scope: NameScope) -> tuple[Aggregate | None, NameScope | None]:
    """Parse an aggregate, and return the scope of its results; None if it is absent."""
    if not node.given:
        return None, None
    node.shape("group", "compute", "filter")
    groups: dict[str, ResolvedPath] = {}
    for path in node["group"].elements(MAX_GROUPED):
        target = resolve_path(path, scope)
        if target is not None and not target.is_scalar:
            path.error("cannot be grouped by")
        elif target is not None:
            groups[path.value] = target
    compute: dict[str, Computation] = {}
    results: dict[str, ResolvedPath] = {}
    for name, member in node["compute"].members(MAX_COMPUTATIONS, FIELD_NAME):
        if name in groups:
            member.error("is grouped by under this name")
        computation = _computation(member, scope)
        if computation is not None:
            compute[name], result = computation
            results[name] = replace(result, path=(name,))
    results_scope = NameScope(scope.schema, computed=results, groups=groups)
    having = FilterParser(results_scope).read(node["filter"])
    paths = tuple(target.path for target in groups.values())
    return Aggregate(paths, compute, having), results_scope


def _computation(node: Node, scope: NameScope) -> tuple[Computation, ResolvedPath] | None:
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
    # Sums can exceed 64 bits, and be compared with any number.
    path = path_of_field(("result",), Field("result", type_))
    return replace(path, type=type_, decode=JSON_SCALAR)
