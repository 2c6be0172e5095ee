"""Parsing the joins of a query: along its references, and along references to its objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from mediator.model.query import Join, ReverseJoin
from mediator.query.filter_parser import FilterParser
from mediator.query.json_node import Node
from mediator.query.paths import NameScope, resolve_path
from mediator.query.selection_parser import parse_fields, parse_order
from mediator.schema.ids import FIELD_NAME
from mediator.schema.tree import ClassSchema, Field, Schema
from mediator.schema.types import FieldType

__all__ = ["ParsedJoins", "parse_joins"]

MAX_JOINS: Final = 8
DEFAULT_JOINED: Final = 10
MAX_JOINED: Final = 100
"""Limit of objects that a reverse join adds to one object."""

_LISTS: Final = frozenset({FieldType.LIST, FieldType.SET})


@dataclass(slots=True)
class ParsedJoins:
    """The joins of a query by kind: of an object, of a list of references, and in reverse."""

    single: list[Join] = field(default_factory=list)
    lists: list[Join] = field(default_factory=list)
    reverse: list[ReverseJoin] = field(default_factory=list)

    @property
    def list_aliases(self) -> frozenset[str]:
        return frozenset(join.alias for join in self.lists) | {join.alias for join in self.reverse}


def parse_joins(node: Node, schema: Schema, class_: ClassSchema) -> tuple[ParsedJoins, NameScope]:
    """Parse joins, and return the scope of names for the rest of the query."""
    joins, joined = ParsedJoins(), dict[str, ClassSchema]()
    nodes = node.elements(MAX_JOINS) if isinstance(node.value, list) else [node]
    for join_node in nodes if node.given else ():
        scope = NameScope(class_, joined, lists=joins.list_aliases)
        if join_node["class"].given:
            _parse_reverse_join(join_node, schema, scope, joins)
        else:
            _parse_join(join_node, schema, scope, joins)
        joined = {join.alias: schema.classes[join.class_name] for join in joins.single}
    return joins, NameScope(class_, joined, lists=joins.list_aliases)


def _parse_join(node: Node, schema: Schema, scope: NameScope, joins: ParsedJoins) -> None:
    node.shape("fields", required=("as", "reference"))
    alias, target = _parse_alias(node["as"], scope), resolve_path(node["reference"], scope)
    if target is None:
        return
    is_list = target.type in _LISTS
    if target.reference is None or not (is_list or target.type is FieldType.REFERENCE):
        node["reference"].error("is no reference")
        return
    class_name = target.reference
    fields = parse_fields(node["fields"], schema.classes[class_name], is_known=False)
    if alias is not None:
        target_joins = joins.lists if is_list else joins.single
        target_joins.append(Join(alias, target.path, class_name, fields))


def _parse_reverse_join(node: Node, schema: Schema, scope: NameScope, joins: ParsedJoins) -> None:
    node.shape("filter", "order", "limit", "fields", required=("as", "class", "reference"))
    alias = _parse_alias(node["as"], scope)
    name, reference = node["class"].value, node["reference"].value
    class_ = schema.classes.get(name) if isinstance(name, str) else None
    target = class_.fields.get(reference) if class_ and isinstance(reference, str) else None
    if class_ is None or target is None or not _refers(target, scope.schema):
        # One error for both: the client may not be allowed to know which classes exist.
        node["reference"].error(f"is no reference to {scope.schema.name} of such a class")
        return
    inner = NameScope(class_, is_known=False)
    join = ReverseJoin(
        alias or "",
        class_.name,
        target.name,
        filter=FilterParser(inner).read(node["filter"]),
        order=tuple(order for order, _ in parse_order(node["order"], inner)),
        limit=node["limit"].integer(DEFAULT_JOINED, minimum=1, maximum=MAX_JOINED),
        fields=parse_fields(node["fields"], class_, is_known=False),
    )
    if alias is not None:
        joins.reverse.append(join)


def _parse_alias(node: Node, scope: NameScope) -> str | None:
    alias = node.read(None, _is_name, f"a name like {FIELD_NAME.pattern}")
    if alias in scope.schema.fields or alias in scope.joined or alias in {*scope.lists, "id"}:
        node.error("is the name of something else")
        return None
    return alias if alias is None else str(alias)


def _refers(field_: Field, class_: ClassSchema) -> bool:
    return field_.type is FieldType.REFERENCE and field_.to == class_.name


def _is_name(raw: Any) -> bool:
    return isinstance(raw, str) and FIELD_NAME.fullmatch(raw) is not None
