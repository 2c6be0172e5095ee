"""The attributes of streams and classes, with the types of their values in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mediator.event_streams.port import EventStream
from mediator.schema.tree import ClassSchema, Schema
from mediator.schema.types import SCALARS, FieldType
from mediator.standing.query import Source

__all__ = ["attributes_of", "attributes_of_class"]

_AS_THEY_ARE: Final = (FieldType.INTEGER, FieldType.FLOAT, FieldType.BOOLEAN)
"""Fields of other types have strings in JSON."""


def attributes_of(
    source: Source, schema: Schema, streams: Mapping[str, EventStream]
) -> dict[str, str | None]:
    """Return the attributes of a source by name; None: they may have any type."""
    if source.kind == "class":
        return attributes_of_class(schema.classes[source.name])
    stream = streams[source.name]
    return {name: stream.types.get(name) for name in stream.attributes}


def attributes_of_class(class_: ClassSchema) -> dict[str, str | None]:
    """Return the attributes of tuples of a class: its scalar fields, and the id."""
    types = {name: each.type for name, each in class_.fields.items() if each.type in SCALARS}
    shown = {n: t if t in _AS_THEY_ARE else FieldType.STRING for n, t in types.items()}
    return {"id": FieldType.STRING, **shown}
