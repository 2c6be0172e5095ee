"""Parsing queries and aggregates from JSON, or naming every error with its location."""

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

__all__ = ["DEFAULT_LIMIT", "MOST_LIMIT", "ParsedQuery", "parse_aggregate", "parse_query_document"]

MOST_LIMIT: Final = 1_000
DEFAULT_LIMIT: Final = 100

_SETTINGS: Final = ("limit", "after", "count", "explain")
"""What does not make another query of it: a cursor may be used with another limit."""

_COUNTS: Final = tuple(CountMode)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query as it was sent.

    Attributes:
        query: The query, without its position.
        levels: What the levels of its order mean, to read and write positions.
        after: The cursor, sealed as it is.
        identity: The query as one text, alike for alike queries.
        results: What an aggregate answers, in order: what it groups by, and what it computes.
    """

    query: Query
    levels: tuple[ResolvedPath, ...]
    after: str | None
    explain: bool
    identity: str
    results: dict[str, ResolvedPath] = field(default_factory=dict)


def parse_query_document(
    document: Any, schema: Schema, class_name: str, *, most: int = MOST_LIMIT
) -> ParsedQuery:
    """Read a query; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape(
        *("filter", "order", "limit", "after", "fields", "aggregate", "join"),
        *("count", "allow_scan", "explain"),
    )
    query, levels, results = _QueryParser(node, schema, class_name).read(most)
    after = node["after"].read(None, lambda raw: raw is None or isinstance(raw, str), "a string")
    explain = node["explain"].boolean()
    if node.errors:
        raise invalid(node.errors)
    return ParsedQuery(query, levels, after, explain, _identity(document), results)


class _QueryParser:
    """Reads one query; what is returned after an error is thrown away."""

    def __init__(self, node: Node, schema: Schema, class_name: str) -> None:
        self._node = node
        self._schema = schema
        self._class = schema.classes[class_name]

    def read(self, most: int) -> tuple[Query, tuple[ResolvedPath, ...], dict[str, ResolvedPath]]:
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
            limit=node["limit"].integer(min(DEFAULT_LIMIT, most), least=1, most=most),
            fields=parse_fields(node["fields"], self._class),
            joins=tuple(joins.single),
            list_joins=tuple(joins.lists),
            reverse_joins=tuple(joins.reverse),
            aggregate=aggregate,
            count=self._count(),
            allow_scan=node["allow_scan"].boolean(),
        )
        answered = {**results.groups, **(results.computed or {})} if results else {}
        return query, tuple(target for _, target in levels), answered

    def _count(self) -> CountMode | None:
        wanted = f"one of {', '.join(_COUNTS)}"
        name = self._node["count"].read(None, _COUNTS.__contains__, wanted)
        return None if name is None else CountMode(name)


def _identity(document: dict[str, Any]) -> str:
    canonical = {name: value for name, value in document.items() if name not in _SETTINGS}
    return orjson.dumps(canonical, option=orjson.OPT_SORT_KEYS).decode()


MOST_COMPUTATIONS: Final = 32
MOST_GROUPED: Final = 8

_NUMBERS: Final = frozenset({FieldType.INTEGER, FieldType.FLOAT, FieldType.DECIMAL, None})


def parse_aggregate(node: Node, scope: NameScope) -> tuple[Aggregate | None, NameScope | None]:
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
    # Sums may be beyond 64 bits, and may be compared with any number.
    whole = path_of_field(("result",), Field("result", type_))
    return replace(whole, type=type_, decode=JSON_SCALAR)
