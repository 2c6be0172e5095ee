"""Parser of the destination of a standing query's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mediator.event_streams.port import EventStream
from mediator.query.json_node import Node
from mediator.schema.ids import FIELD_NAME
from mediator.schema.tree import ClassSchema, Mode, Schema
from mediator.schema.types import FieldType
from mediator.schema.values import SET_BY_SERVICE
from mediator.standing.query import Destination, Source, SourceKind
from mediator.standing.sources import KINDS, attributes_of, attributes_of_class, parse_source

__all__ = ["destination_of", "parse_destination"]

_MAX_VALUES: Final = 64


def parse_destination(
    node: Node, sources: Mapping[str, Source], schema: Schema, streams: Mapping[str, EventStream]
) -> Destination | None:
    """Read the stream or class, and the sources of its values; None after an error."""
    node.shape(*KINDS, required=("values",))
    target = parse_source(node, schema, streams)
    if target is None:
        return None
    if node["values"].value == {}:
        node["values"].error("must have a member")
    source_types = {
        alias: attributes_of(source, schema, streams) for alias, source in sources.items()
    }
    class_ = schema.classes[target.name] if target.kind == "class" else None
    target_types = attributes_of(target, schema, streams)
    values: dict[str, tuple[str, str]] = {}
    for attribute, member in node["values"].members(_MAX_VALUES, FIELD_NAME):
        if class_ is not None:
            _check_field(member, class_, attribute)
        elif attribute not in target_types:
            member.unknown(f"{target.name} has no attribute {attribute}", attribute, target_types)
        path = member.value if isinstance(member.value, str) else ""
        alias, _, name = path.partition(".")
        if name not in source_types.get(alias, ()):
            member.error('must be an attribute of a relation, such as "R.a"')
            continue
        _check_type(
            member,
            source_types[alias][name],
            target_types.get(attribute),
            of_class=class_ is not None,
        )
        values[attribute] = (alias, name)
    if class_ is not None:
        _check_required(node["values"], class_)
        if schema.mode is Mode.ADVISORY:
            node["class"].error("has no objects: the database only gives advice")
    return Destination(target, values)


def destination_of(document: Mapping[str, Any]) -> Destination | None:
    """Return the destination of a query's results, which was validated at its creation."""
    into = document.get("into")
    if into is None:
        return None
    kind: SourceKind = "stream" if "stream" in into else "class"
    paths = ((attribute, path.partition(".")) for attribute, path in into["values"].items())
    return Destination(
        Source(kind, into[kind]),
        {attribute: (alias, name) for attribute, (alias, _, name) in paths},
    )


def _check_field(node: Node, class_: ClassSchema, name: str) -> None:
    field = class_.fields.get(name)
    if name == "id":
        node.error("is made by the service, of the query and the number of the result")
    elif field is None:
        node.unknown(f"{class_.name} has no field {name}", name, class_.fields)
    elif field.updated:
        node.error(SET_BY_SERVICE)
    elif name not in attributes_of_class(class_):
        node.error(f"is of the type {field.type}, which no attribute has")


def _check_type(node: Node, actual: str | None, expected: str | None, *, of_class: bool) -> None:
    if expected is None or actual == expected:
        return
    if not of_class:
        node.error(f"must have the type {expected}, which the attribute is declared with")
    # In JSON an integer is a number, but only its value tells whether a string is a time.
    elif (actual, expected) != (FieldType.INTEGER, FieldType.FLOAT):
        declared = "; its stream declares no type" if actual is None else ""
        node.error(f"must have the type {expected}, as values of the field have in JSON{declared}")


def _check_required(node: Node, class_: ClassSchema) -> None:
    if not isinstance(node.value, dict) or not node.value:
        return
    for name, field in class_.fields.items():
        if field.required and not field.has_default and name not in node.value:
            node[name].error(f"is required, as {class_.name} requires it and has no default")
