"""Parser of event stream declarations in JSON, which reports every mistake with its location."""

from __future__ import annotations

from typing import Any, Final

from mediator.event_streams.port import EventStream
from mediator.query.json_node import Node
from mediator.schema.errors import invalid
from mediator.schema.ids import FIELD_NAME, NAME
from mediator.schema.types import FieldType

__all__ = [
    "DEFAULT_RETENTION_S",
    "DEFAULT_TUPLES",
    "MAX_ATTRIBUTES",
    "MAX_RETENTION_S",
    "MAX_TUPLES",
    "MIN_RETENTION_S",
    "TYPES",
    "parse_stream",
    "stream_document",
]

MAX_ATTRIBUTES: Final = 64
DEFAULT_RETENTION_S: Final = 3600.0
MIN_RETENTION_S: Final = 1.0
MAX_RETENTION_S: Final = 7 * 86_400.0
DEFAULT_TUPLES: Final = 1_000_000
"""Maximum tuples kept, unless the declaration sets `most_tuples`."""

MAX_TUPLES: Final = 10_000_000
TYPES: Final = (FieldType.STRING, FieldType.INTEGER, FieldType.FLOAT, FieldType.BOOLEAN)


def parse_stream(document: Any) -> EventStream:
    """Read a declaration; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape("retention_s", "most_tuples", required=("name", "attributes"))
    name = node["name"].read("", _is_name, f"named like {NAME.pattern}")
    types = _types(node["attributes"])
    bounds = f"{MIN_RETENTION_S:g} to {MAX_RETENTION_S:g} seconds"
    retention_s = node["retention_s"].read(DEFAULT_RETENTION_S, _is_retention, bounds)
    max_tuples = node["most_tuples"].integer(DEFAULT_TUPLES, minimum=1, maximum=MAX_TUPLES)
    if node.errors:
        raise invalid(node.errors)
    typed = {attribute: type_ for attribute, type_ in types.items() if type_ is not None}
    return EventStream(name, frozenset(types), float(retention_s), max_tuples, typed)


def stream_document(stream: EventStream) -> dict[str, Any]:
    """Return a declaration as JSON, in the form that is parsed."""
    return {
        "name": stream.name,
        "attributes": {name: stream.types.get(name) for name in sorted(stream.attributes)},
        "retention_s": stream.retention_s,
        "most_tuples": stream.most_tuples,
    }


def _types(node: Node) -> dict[str, str | None]:
    """Read attributes: a list of names, or types (or null) by name."""
    if isinstance(node.value, list):
        elements = node.elements(MAX_ATTRIBUTES, 1)
        attributes = [
            element.read("", _is_attribute, f"named like {FIELD_NAME.pattern}")
            for element in elements
        ]
        if len(set(attributes)) < len(attributes):
            node.error("must not have a name twice")
        return dict.fromkeys(attributes)
    if isinstance(node.value, dict) and not node.value:
        node.error("must have an attribute")
    choices = f"one of {', '.join(TYPES)}, or null"
    return {
        name: member.read(None, _is_type, choices)
        for name, member in node.members(MAX_ATTRIBUTES, FIELD_NAME)
    }


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_attribute(value: Any) -> bool:
    return isinstance(value, str) and FIELD_NAME.fullmatch(value) is not None


def _is_type(value: Any) -> bool:
    return value is None or value in TYPES


def _is_retention(value: Any) -> bool:
    is_number = type(value) in (int, float)
    return is_number and MIN_RETENTION_S <= value <= MAX_RETENTION_S
