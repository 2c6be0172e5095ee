"""Parsing where the results of a standing query go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mediator.event_streams.port import EventStream
from mediator.query.json_node import Node
from mediator.schema.ids import FIELD_NAME
from mediator.schema.tree import Schema
from mediator.standing.query import Destination, Source
from mediator.standing.source_types import attributes_of

__all__ = ["parse_destination"]

_MOST_VALUES: Final = 64


def parse_destination(
    node: Node, sources: Mapping[str, Source], schema: Schema, streams: Mapping[str, EventStream]
) -> Destination | None:
    """Read the stream, and what its attributes are taken from; None after an error."""
    node.shape(required=("stream", "values"))
    name = node["stream"].value if isinstance(node["stream"].value, str) else ""
    if name not in streams:
        node["stream"].unknown(f"there is no event stream {name}", name, streams)
        return None
    if node["values"].value == {}:
        node["values"].error("must have a member")
    known = {alias: attributes_of(each, schema, streams) for alias, each in sources.items()}
    values: dict[str, tuple[str, str]] = {}
    for attribute, each in node["values"].members(_MOST_VALUES, FIELD_NAME):
        if attribute not in streams[name].attributes:
            detail = f"{name} has no attribute {attribute}"
            each.unknown(detail, attribute, streams[name].attributes)
        path = each.value if isinstance(each.value, str) else ""
        alias, _, of = path.partition(".")
        if of not in known.get(alias, ()):
            each.error('must be an attribute of a relation, such as "R.a"')
            continue
        _check_type(each, known[alias][of], streams[name].types.get(attribute))
        values[attribute] = (alias, of)
    return Destination(name, values)


def _check_type(node: Node, given: Any, wanted: str | None) -> None:
    if wanted is not None and given != wanted:
        node.error(f"must have the type {wanted}, which the attribute is declared with")
