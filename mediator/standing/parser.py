"""Parser of standing queries in JSON, which reports every mistake with its location."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mediator.query.json_node import Node
from mediator.schema.errors import invalid
from mediator.schema.ids import FIELD_NAME
from mediator.standing.model import Attribute, Join, Predicate, Statistics, Stream, Workload
from mediator.standing.state import StreamTuple

__all__ = [
    "MAX_RELATIONS",
    "MAX_WINDOW_S",
    "check_connected",
    "parse_number",
    "parse_predicates",
    "parse_tuple",
    "parse_workload",
]

MAX_STREAMS: Final = 200
MAX_ATTRIBUTES: Final = 64
MAX_QUERIES: Final = 200
MAX_RELATIONS: Final = 6
"""Per query: n relations that all join have candidate probe orders in the order of n!."""

MAX_PREDICATES: Final = 64
MAX_STATISTICS: Final = 10_000
MAX_PARALLELISM: Final = 1024
MAX_WINDOW_S: Final = 30 * 86_400.0
MAX_RATE: Final = 1e9
MAX_SIZE: Final = 1e15
MAX_TIME_S: Final = 1e12

_SIDES: Final = 2
_ATTRIBUTE: Final = re.compile(f"({FIELD_NAME.pattern})[.]({FIELD_NAME.pattern})")


def parse_workload(document: Any) -> Workload:
    """Read streams, queries and statistics; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape("selectivities", "sizes", "parallelism", required=("streams", "queries"))
    streams = {
        name: _stream(member) for name, member in node["streams"].members(MAX_STREAMS, FIELD_NAME)
    }
    queries = {
        name: _query(member, streams)
        for name, member in node["queries"].members(MAX_QUERIES, FIELD_NAME)
    }
    if node["queries"].value == {}:
        node["queries"].error("must have at least one member")
    statistics = Statistics(
        {name: stream.rate for name, stream in streams.items()},
        _selectivities(node["selectivities"], streams),
        _sizes(node["sizes"], streams),
    )
    parallelism = node["parallelism"].integer(1, minimum=1, maximum=MAX_PARALLELISM)
    if node.errors:
        raise invalid(node.errors)
    return Workload(streams, queries, statistics, parallelism)


def parse_tuple(document: Any, streams: Mapping[str, Stream]) -> StreamTuple:
    """Read a tuple of a stream; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape(required=("stream", "time_s", "values"))
    stream = node["stream"].read("", _is_name, "the name of a stream")
    if stream not in streams:
        node["stream"].unknown(f"there is no stream {stream}", stream, streams)
        raise invalid(node.errors)
    time_s = node["time_s"].read(0.0, _is_time, "a number of seconds")
    values = {}
    for name, member in node["values"].members(MAX_ATTRIBUTES, FIELD_NAME):
        if name not in streams[stream].attributes:
            attributes = streams[stream].attributes
            member.unknown(f"{stream} has no attribute {name}", name, attributes)
        values[name] = member.read(None, _is_scalar, "a string, a number, true, false or null")
    if node.errors:
        raise invalid(node.errors)
    return StreamTuple(stream, float(time_s), values)


def _stream(node: Node) -> Stream:
    node.shape(required=("attributes", "rate"))
    names = set()
    for element in node["attributes"].elements(MAX_ATTRIBUTES, min_elements=1):
        name = element.read("", _is_name, f"named like {FIELD_NAME.pattern}")
        if name in names:
            element.error("is named twice")
        names.add(name)
    rate = parse_number(node["rate"], MAX_RATE, "tuples a second")
    return Stream(frozenset(names), rate)


def _query(node: Node, streams: Mapping[str, Stream]) -> Join:
    node.shape(required=("relations", "predicates", "window_s"))
    relations = _relations(node["relations"], streams)
    window_s = parse_number(node["window_s"], MAX_WINDOW_S, "seconds")
    join = Join(relations, parse_predicates(node["predicates"], streams, relations), window_s)
    if not node.errors:
        check_connected(node["predicates"], join)
    return join


def _relations(node: Node, streams: Mapping[str, Stream]) -> frozenset[str]:
    names: set[str] = set()
    for element in node.elements(MAX_RELATIONS, min_elements=2):
        name = element.value if isinstance(element.value, str) else ""
        if name not in streams:
            element.unknown(f"there is no stream {name}", name, streams)
        elif name in names:
            element.error("is named twice: a stream is not joined with itself")
        names.add(name)
    return frozenset(names)


def parse_predicates(
    node: Node, streams: Mapping[str, Stream], relations: frozenset[str] | None
) -> frozenset[Predicate]:
    """Read pairs of attributes of these relations; None: of any stream."""
    predicates = set()
    for element in node.elements(MAX_PREDICATES, min_elements=1):
        predicate = _predicate(element, streams, relations)
        if predicate is not None:
            predicates.add(predicate)
    return frozenset(predicates)


def _predicate(
    node: Node, streams: Mapping[str, Stream], relations: frozenset[str] | None
) -> Predicate | None:
    """Read a pair of attributes; None after an error."""
    if not isinstance(node.value, list) or len(node.value) != _SIDES:
        node.error('must be a pair of attributes, such as ["R.a", "S.a"]')
        return None
    one, other = (_attribute(element, streams, relations) for element in node.elements(_SIDES))
    if one is None or other is None:
        return None
    if one.relation == other.relation:
        node.error("must compare attributes of two relations")
        return None
    return frozenset([one, other])


def _attribute(
    node: Node, streams: Mapping[str, Stream], relations: frozenset[str] | None
) -> Attribute | None:
    match = _ATTRIBUTE.fullmatch(node.value) if isinstance(node.value, str) else None
    if match is None:
        node.error('must be an attribute of a relation, such as "R.a"')
        return None
    relation, name = match.groups()
    if relation not in streams:
        node.unknown(f"there is no stream {relation}", relation, streams)
    elif relations is not None and relation not in relations:
        node.unknown(f"{relation} is no relation of this query", relation, relations)
    elif name not in streams[relation].attributes:
        attributes = streams[relation].attributes
        node.unknown(f"{relation} has no attribute {name}", name, attributes)
    return Attribute(relation, name)


def check_connected(node: Node, join: Join) -> None:
    """Refuse a cross product."""
    reached = join.reachable
    if unreached := sorted(join.relations - reached):
        node.error(
            f"must join all relations, and nothing joins {', '.join(unreached)} to"
            f" {', '.join(sorted(reached))}: that is a cross product"
        )


def _selectivities(node: Node, streams: Mapping[str, Stream]) -> dict[Predicate, float]:
    selectivities = {}
    for element in node.elements(MAX_STATISTICS):
        element.shape(required=("predicate", "selectivity"))
        predicate = _predicate(element["predicate"], streams, None)
        selectivity = parse_number(element["selectivity"], 1.0, "a share")
        if predicate is not None:
            selectivities[predicate] = selectivity
    return selectivities


def _sizes(node: Node, streams: Mapping[str, Stream]) -> dict[Join, float]:
    sizes = {}
    for element in node.elements(MAX_STATISTICS):
        element.shape(required=("predicates", "window_s", "size"))
        predicates = parse_predicates(element["predicates"], streams, None)
        window_s = parse_number(element["window_s"], MAX_WINDOW_S, "seconds")
        size = parse_number(element["size"], MAX_SIZE, "results a second", zero=True)
        relations = frozenset(at.relation for predicate in predicates for at in predicate)
        sizes[Join(relations, predicates, window_s)] = size
    return sizes


def parse_number(node: Node, maximum: float, unit: str, *, zero: bool = False) -> float:
    """Read a positive number, or with `zero` a number from zero on."""

    def accepts(value: Any) -> bool:
        return type(value) in (int, float) and (0 < value <= maximum or (zero and value == 0))

    lower_bound = "of 0 or more" if zero else "above 0"
    return float(node.read(1.0, accepts, f"a number {lower_bound}, {maximum:g} at most: {unit}"))


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= MAX_TIME_S


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and FIELD_NAME.fullmatch(value) is not None
