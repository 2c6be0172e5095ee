"""The event streams and classes that queries refer to: their parser and their attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mediator.event_streams.port import EventStream
from mediator.query.json_node import Node
from mediator.schema.tree import ClassSchema, Schema
from mediator.schema.types import SCALARS, FieldType
from mediator.standing.query import Source, SourceKind

__all__ = ["KINDS", "attributes_of", "attributes_of_class", "parse_name", "parse_source"]

KINDS: Final = ("stream", "class")
_JSON_TYPES: Final = (FieldType.INTEGER, FieldType.FLOAT, FieldType.BOOLEAN)
"""Fields of other types are strings in JSON."""


def parse_source(node: Node, schema: Schema, streams: Mapping[str, EventStream]) -> Source | None:
    """Read the stream or class that an object names; None after an error."""
    if isinstance(node.value, dict) and sum(node[kind].given for kind in KINDS) != 1:
        node.error("must have either stream or class")
        return None
    if node["stream"].given:
        return parse_name(node["stream"], "stream", streams)
    return parse_name(node["class"], "class", schema.classes) if node["class"].given else None


def parse_name(node: Node, kind: SourceKind, names: Iterable[str]) -> Source | None:
    name: Any = node.value if isinstance(node.value, str) else ""
    if name in names:
        return Source(kind, name)
    kind_name = "event stream" if kind == "stream" else "class"
    node.unknown(f"there is no {kind_name} {name}", name, names)
    return None


def attributes_of(
    source: Source, schema: Schema, streams: Mapping[str, EventStream]
) -> dict[str, str | None]:
    """Return the types of a source's attributes by name; None: any type."""
    if source.kind == "class":
        return attributes_of_class(schema.classes[source.name])
    stream = streams[source.name]
    return {name: stream.types.get(name) for name in stream.attributes}


def attributes_of_class(class_: ClassSchema) -> dict[str, str | None]:
    """Return the attributes of tuples of a class: its scalar fields, and the id."""
    types = {name: field.type for name, field in class_.fields.items() if field.type in SCALARS}
    json_types = {n: t if t in _JSON_TYPES else FieldType.STRING for n, t in types.items()}
    return {"id": FieldType.STRING, **json_types}
