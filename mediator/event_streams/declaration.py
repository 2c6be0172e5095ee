"""Parsing declarations of event streams from JSON, or naming every mistake with its location."""

from __future__ import annotations

from typing import Any, Final

from mediator.event_streams.port import EventStream
from mediator.query.json_node import Node
from mediator.schema.errors import invalid
from mediator.schema.ids import FIELD_NAME, NAME
from mediator.schema.types import FieldType

__all__ = [
    "LONGEST_RETENTION_S",
    "MOST_ATTRIBUTES",
    "MOST_TUPLES",
    "RETENTION_S",
    "SHORTEST_RETENTION_S",
    "TUPLES",
    "TYPES",
    "parse_stream",
    "stream_document",
]

MOST_ATTRIBUTES: Final = 64
RETENTION_S: Final = 3600.0
SHORTEST_RETENTION_S: Final = 1.0
LONGEST_RETENTION_S: Final = 7 * 86_400.0
TUPLES: Final = 1_000_000
"""Kept at most, unless the declaration says otherwise."""

MOST_TUPLES: Final = 10_000_000
TYPES: Final = (FieldType.STRING, FieldType.INTEGER, FieldType.FLOAT, FieldType.BOOLEAN)


def parse_stream(document: Any) -> EventStream:
    """Read a declaration; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape("retention_s", "most_tuples", required=("name", "attributes"))
    name = node["name"].read("", _is_name, f"named like {NAME.pattern}")
    types = _types(node["attributes"])
    bounds = f"{SHORTEST_RETENTION_S:g} to {LONGEST_RETENTION_S:g} seconds"
    retention_s = node["retention_s"].read(RETENTION_S, _is_retention, bounds)
    most = node["most_tuples"].integer(TUPLES, least=1, most=MOST_TUPLES)
    if node.errors:
        raise invalid(node.errors)
    typed = {attribute: type_ for attribute, type_ in types.items() if type_ is not None}
    return EventStream(name, frozenset(types), float(retention_s), most, typed)


def stream_document(stream: EventStream) -> dict[str, Any]:
    """Return a declaration as JSON, which declares the same again."""
    return {
        "name": stream.name,
        "attributes": {name: stream.types.get(name) for name in sorted(stream.attributes)},
        "retention_s": stream.retention_s,
        "most_tuples": stream.most_tuples,
    }


def _types(node: Node) -> dict[str, str | None]:
    """Read attributes: a list of names, or types by name, of which each may be null."""
    if isinstance(node.value, list):
        names = node.elements(MOST_ATTRIBUTES, 1)
        found = [each.read("", _is_attribute, f"named like {FIELD_NAME.pattern}") for each in names]
        if len(set(found)) < len(found):
            node.error("must not have a name twice")
        return dict.fromkeys(found)
    if isinstance(node.value, dict) and not node.value:
        node.error("must have an attribute")
    wanted = f"one of {', '.join(TYPES)}, or null"
    return {
        name: member.read(None, _is_type, wanted)
        for name, member in node.members(MOST_ATTRIBUTES, FIELD_NAME)
    }


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_attribute(value: Any) -> bool:
    return isinstance(value, str) and FIELD_NAME.fullmatch(value) is not None


def _is_type(value: Any) -> bool:
    return value is None or value in TYPES


def _is_retention(value: Any) -> bool:
    is_number = type(value) in (int, float)
    return is_number and SHORTEST_RETENTION_S <= value <= LONGEST_RETENTION_S
