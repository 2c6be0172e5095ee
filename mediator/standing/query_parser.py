"""Parser of a service's standing query in JSON, which reports every error with its location."""

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
    MAX_RELATIONS,
    MAX_WINDOW_S,
    check_connected,
    parse_number,
    parse_predicates,
)
from mediator.standing.query import Source, StandingQuery
from mediator.standing.sources import KINDS, attributes_of, parse_name, parse_source

__all__ = ["DEFAULT_MAX_LAG", "MAX_LAG_LIMIT", "MAX_LATENESS_S", "MAX_NAME_LENGTH", "parse_query"]

MAX_NAME_LENGTH: Final = 100
MAX_LATENESS_S: Final = 86_400.0
_DEFAULT_LATENESS_S: Final = 10.0
"""If a query does not set `lateness_s`."""

DEFAULT_MAX_LAG: Final = 10_000
"""If a query does not set `max_lag`."""

MAX_LAG_LIMIT: Final = 100_000


def parse_query(document: Any, schema: Schema, streams: Mapping[str, EventStream]) -> StandingQuery:
    """Read a query; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape(
        "name", "lateness_s", "into", "max_lag", required=("relations", "predicates", "window_s")
    )
    node["name"].read("", _is_name, f"a string of {MAX_NAME_LENGTH} characters at most")
    sources = _sources(node["relations"], schema, streams)
    window_s = parse_number(node["window_s"], MAX_WINDOW_S, "seconds")
    lateness_s = _lateness(node["lateness_s"])
    join = _join(node["predicates"], sources, schema, streams, window_s)
    _check_retention(node["window_s"], window_s, sources.values(), streams)
    max_lag = node["max_lag"].integer(DEFAULT_MAX_LAG, minimum=1, maximum=MAX_LAG_LIMIT)
    into = None
    if node["into"].given:
        into = parse_destination(node["into"], sources, schema, streams)
    if node.errors:
        raise invalid(node.errors)
    return StandingQuery(sources, join, lateness_s, into, max_lag, node.value)


def _lateness(node: Node) -> float:
    if not node.given:
        return _DEFAULT_LATENESS_S
    return parse_number(node, MAX_LATENESS_S, "seconds", zero=True)


def _sources(node: Node, schema: Schema, streams: Mapping[str, EventStream]) -> dict[str, Source]:
    """Read a list of event streams, or an object of sources by alias."""
    sources: dict[str, Source] = {}
    if isinstance(node.value, list):
        for element in node.elements(MAX_RELATIONS, min_elements=2):
            if (source := parse_name(element, "stream", streams)) is not None:
                _add(sources, element, source.name, source)
        return sources
    min_members = 2
    if isinstance(node.value, dict) and len(node.value) < min_members:
        node.error(f"must have {min_members} to {MAX_RELATIONS} members")
    for alias, member in node.members(MAX_RELATIONS, FIELD_NAME):
        if (source := _source(member, schema, streams)) is not None:
            _add(sources, member, alias, source)
    return sources


def _source(node: Node, schema: Schema, streams: Mapping[str, EventStream]) -> Source | None:
    source = parse_source(node.shape(*KINDS), schema, streams)
    if (
        source is not None
        and source.kind == "class"
        and schema.classes[source.name].ttl_s is not None
    ):
        node["class"].error(
            f"{source.name} has a ttl_s, and the feed has no change for an object that expires"
        )
    return source


def _add(sources: dict[str, Source], node: Node, alias: str, source: Source) -> None:
    if source in sources.values():
        node.error("is there twice: a stream is not joined with itself")
    sources[alias] = source


def _join(
    node: Node,
    sources: Mapping[str, Source],
    schema: Schema,
    streams: Mapping[str, EventStream],
    window_s: float,
) -> Join:
    by_alias = {
        alias: Stream(frozenset(attributes_of(source, schema, streams)), 1.0)
        for alias, source in sources.items()
    }
    aliases = Join(
        frozenset(by_alias), parse_predicates(node, by_alias, frozenset(by_alias)), window_s
    )
    if not node.errors:
        check_connected(node, aliases)
    relations = frozenset(source.relation for source in sources.values())
    predicates = frozenset(_of_relations(predicate, sources) for predicate in aliases.predicates)
    return Join(relations, predicates, window_s)


def _of_relations(predicate: Predicate, sources: Mapping[str, Source]) -> Predicate:
    """Translate a predicate from aliases to relations; after an error, keep unknown aliases."""
    return frozenset(
        Attribute(sources[at.relation].relation, at.name) if at.relation in sources else at
        for at in predicate
    )


def _check_retention(
    node: Node, window_s: float, sources: Iterable[Source], streams: Mapping[str, EventStream]
) -> None:
    for source in sources:
        if source.kind == "stream" and window_s > streams[source.name].retention_s:
            retention_s = streams[source.name].retention_s
            node.error(
                f"must be {retention_s:g} at most: {source.name} keeps tuples for that many seconds"
            )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH
