"""Parsing a standing query of a service from JSON, or naming every error with its location."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mediator.event_streams.port import EventStream
from mediator.query.json_node import Node
from mediator.schema.errors import invalid
from mediator.schema.ids import FIELD_NAME
from mediator.schema.tree import Schema
from mediator.standing.destination_parser import parse_destination
from mediator.standing.model import Attribute, Join, Predicate, Stream
from mediator.standing.parser import (
    LONGEST_WINDOW_S,
    MOST_RELATIONS,
    check_connected,
    parse_number,
    parse_predicates,
)
from mediator.standing.query import Source, StandingQuery
from mediator.standing.sources import KINDS, attributes_of, parse_known, parse_source

__all__ = ["LONGEST_LATENESS_S", "LONGEST_NAME", "MAX_LAG", "MOST_LAG", "parse_query"]

LONGEST_NAME: Final = 100
LONGEST_LATENESS_S: Final = 86_400.0
_LATENESS_S: Final = 10.0
"""Of a query that does not say how late tuples may be."""

MAX_LAG: Final = 10_000
"""Of a query that does not say which lag is too much."""

MOST_LAG: Final = 100_000


def parse_query(document: Any, schema: Schema, streams: Mapping[str, EventStream]) -> StandingQuery:
    """Read a query; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape(
        "name", "lateness_s", "into", "max_lag", required=("relations", "predicates", "window_s")
    )
    node["name"].read("", _is_name, f"a string of {LONGEST_NAME} characters at most")
    sources = _sources(node["relations"], schema, streams)
    window_s = parse_number(node["window_s"], LONGEST_WINDOW_S, "seconds")
    lateness_s = _lateness(node["lateness_s"])
    join = _join(node["predicates"], sources, schema, streams, window_s)
    _check_retention(node["window_s"], window_s, sources.values(), streams)
    max_lag = node["max_lag"].integer(MAX_LAG, least=1, most=MOST_LAG)
    into = None
    if node["into"].given:
        into = parse_destination(node["into"], sources, schema, streams)
    if node.errors:
        raise invalid(node.errors)
    return StandingQuery(sources, join, lateness_s, into, max_lag, node.value)


def _lateness(node: Node) -> float:
    if not node.given:
        return _LATENESS_S
    return parse_number(node, LONGEST_LATENESS_S, "seconds", zero=True)


def _sources(node: Node, schema: Schema, streams: Mapping[str, EventStream]) -> dict[str, Source]:
    """Read a list of event streams, or an object of sources by alias."""
    found: dict[str, Source] = {}
    if isinstance(node.value, list):
        for each in node.elements(MOST_RELATIONS, least=2):
            if (source := parse_known(each, "stream", streams)) is not None:
                _add(found, each, source.name, source)
        return found
    least = 2
    if isinstance(node.value, dict) and len(node.value) < least:
        node.error(f"must have {least} to {MOST_RELATIONS} members")
    for alias, each in node.members(MOST_RELATIONS, FIELD_NAME):
        if (source := _source(each, schema, streams)) is not None:
            _add(found, each, alias, source)
    return found


def _source(node: Node, schema: Schema, streams: Mapping[str, EventStream]) -> Source | None:
    source = parse_source(node.shape(*KINDS), schema, streams)
    if (
        source is not None
        and source.kind == "class"
        and schema.classes[source.name].ttl_s is not None
    ):
        node["class"].error(f"{source.name} has a ttl_s, and that an object expires is no change")
    return source


def _add(found: dict[str, Source], node: Node, alias: str, source: Source) -> None:
    if source in found.values():
        node.error("is there twice: a stream is not joined with itself")
    found[alias] = source


def _join(
    node: Node,
    sources: Mapping[str, Source],
    schema: Schema,
    streams: Mapping[str, EventStream],
    window_s: float,
) -> Join:
    known = {
        alias: Stream(frozenset(attributes_of(each, schema, streams)), 1.0)
        for alias, each in sources.items()
    }
    aliases = Join(frozenset(known), parse_predicates(node, known, frozenset(known)), window_s)
    if not node.errors:
        check_connected(node, aliases)
    relations = frozenset(each.relation for each in sources.values())
    predicates = frozenset(_of_relations(each, sources) for each in aliases.predicates)
    return Join(relations, predicates, window_s)


def _of_relations(predicate: Predicate, sources: Mapping[str, Source]) -> Predicate:
    """Return a predicate on aliases as one on relations; after an error some are not known."""
    return frozenset(
        Attribute(sources[at.relation].relation, at.name) if at.relation in sources else at
        for at in predicate
    )


def _check_retention(
    node: Node, window_s: float, sources: Iterable[Source], streams: Mapping[str, EventStream]
) -> None:
    for source in sources:
        if source.kind == "stream" and window_s > streams[source.name].retention_s:
            kept_s = streams[source.name].retention_s
            node.error(
                f"must be {kept_s:g} at most: {source.name} keeps tuples for so many seconds"
            )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME
