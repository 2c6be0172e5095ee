"""Parsing the fields of objects that a query returns, and the order of the objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mediator.model.query import OrderBy
from mediator.query.json_node import Node
from mediator.query.paths import NameScope, ResolvedPath, resolve_path
from mediator.schema.tree import ClassSchema

__all__ = ["parse_fields", "parse_order"]

MAX_LEVELS: Final = 8


def parse_fields(
    node: Node, schema: ClassSchema, *, is_known: bool = True
) -> tuple[str, ...] | None:
    """Parse names of fields; suggests similar ones only if the client knows the class."""
    if not node.given:
        return None
    if node.value == ["id"]:
        return ()
    names: Sequence[Node] = node.elements(len(schema.fields))
    for name in names:
        if not isinstance(name.value, str) or name.value not in schema.fields:
            known = schema.fields if is_known else ()
            name.unknown(f"is no field of {schema.name}", name.value, known)
    return tuple(sorted({name.value for name in names if isinstance(name.value, str)}))


def parse_order(node: Node, scope: NameScope) -> list[tuple[OrderBy, ResolvedPath]]:
    """Parse the levels of an order, each with its resolved path."""
    levels = []
    for level in node.elements(MAX_LEVELS):
        path, descending = _level(level)
        target = resolve_path(path, scope)
        if target is not None and not target.is_scalar:
            path.error("has no order")
        elif target is not None:
            levels.append((OrderBy(target.path, descending), target))
    return levels


def _level(node: Node) -> tuple[Node, bool]:
    """Parse a level of an order: a path, or a path with its direction."""
    if not isinstance(node.value, list):
        return node, False
    pair = node.elements(2, 2)
    if not pair:
        return Node("id", node.pointer, []), False
    directions = ("asc", "desc")
    word = pair[1].read(None, directions.__contains__, f"one of {', '.join(directions)}")
    return pair[0], word == "desc"
