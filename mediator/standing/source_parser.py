"""Parsing the event stream or the class that a node of a query names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mediator.event_streams.port import EventStream
from mediator.query.json_node import Node
from mediator.schema.tree import Schema
from mediator.standing.query import Source, SourceKind

__all__ = ["KINDS", "parse_known", "parse_source"]

KINDS: Final = ("stream", "class")


def parse_source(node: Node, schema: Schema, streams: Mapping[str, EventStream]) -> Source | None:
    """Read which of the two an object names; None after an error."""
    if isinstance(node.value, dict) and sum(node[kind].given for kind in KINDS) != 1:
        node.error("must have either stream or class")
        return None
    if node["stream"].given:
        return parse_known(node["stream"], "stream", streams)
    return parse_known(node["class"], "class", schema.classes) if node["class"].given else None


def parse_known(node: Node, kind: SourceKind, known: Iterable[str]) -> Source | None:
    name: Any = node.value if isinstance(node.value, str) else ""
    if name in known:
        return Source(kind, name)
    there = "event stream" if kind == "stream" else "class"
    node.unknown(f"there is no {there} {name}", name, known)
    return None
