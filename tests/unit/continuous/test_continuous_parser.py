"""Documents of continuous queries: every mistake has its location."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from mediator.base.errors import Invalid
from mediator.continuous.model import Aggregate, Join, ValueType, post_order
from mediator.continuous.parser import MAX_JOINED, parse_query, parse_tuple
from tests.unit.continuous.queries import NEAR_PEAK, averages


def mistakes(document: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as error:
        parse_query(document)
    return {location.pointer: location.detail for location in error.value.locations}


def with_value(pointer: str, value: Any) -> dict[str, Any]:
    document: Any = deepcopy(NEAR_PEAK)
    *path, last = pointer.strip("/").split("/")
    node = document
    for step in path:
        node = node[int(step)] if isinstance(node, list) else node[step]
    if isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value
    return document  # type: ignore[no-any-return]


def test_a_query_is_read() -> None:
    query = parse_query(NEAR_PEAK)
    assert [operator.name for operator in post_order(query.root)][-3:] == [
        "compared",
        "near",
        "counts",
    ]
    assert isinstance(query.root, Aggregate)
    assert query.root.fields == {"plug": ValueType.INTEGER, "n": ValueType.INTEGER}
    joins = [operator for operator in post_order(query.root) if isinstance(operator, Join)]
    assert joins[0].shared == ("plug",) or set(joins[0].shared) == {"plug"}


@pytest.mark.parametrize(
    ("pointer", "value", "detail"),
    [
        ("/slide_s", 0, "a number from 0.01"),
        ("/streams/readings/rate", "2000", "must be a number"),
        ("/streams/readings/fields/load", "float", "one of integer, number, string"),
        ("/streams/readings/fields", {}, "at least one member"),
        ("/root", "count", 'did you mean "counts"'),
        ("/root", "peaks", None),
        ("/operators/recent", {"window": "reading", "range_s": 1}, 'did you mean "readings"'),
        ("/operators/recent", {"window": "readings"}, "either range_s or rows"),
        ("/operators/recent/range_s", 0, "a number from 0.01"),
        ("/operators/recent/range_s", float("nan"), "a number from"),
        ("/operators/recent", {}, "must have one of window"),
        ("/operators/compared/join/1", "recent", "is used already"),
        ("/operators/near/of", "near", "is used already"),
        ("/operators/near/select/0", {"gt": ["lod", 1]}, 'did you mean "load"'),
        ("/operators/near/select/0", {"like": ["load", 1]}, "must be a comparison"),
        ("/operators/near/select/0/gt/1", "much", "must be a number"),
        ("/operators/loads/select/0", {"lt": ["property", "load"]}, "only eq and ne"),
        ("/operators/loads/select/0/eq/1", "a\0b", "without U+0000"),
        ("/operators/loads/select", [], "1 to 16 elements"),
        ("/operators/loads/selectivity", 2, "a share"),
        ("/operators/counts/by/0", "load", "has no exact equality"),
        ("/operators/counts/aggregate", {"plug": {"count": "*"}}, "is a field of by"),
        ("/operators/counts/aggregate/n", {"median": "load"}, "is not known here"),
        ("/operators/peaks/aggregate/peak", {"maximum": "property"}, "is a string"),
        ("/operators/compared/join", ["loads"], "a pair of operators"),
        ("/operators/compared/join", ["loads", "loads"], "is used already"),
        ("/distinct", {}, "needs /distinct/plug"),
        ("/operators/Loads", {"window": "readings", "range_s": 1}, "must be named like"),
        ("/operators", {f"o{n}": {} for n in range(65)}, "at most 64 members"),
    ],
)
def test_a_mistake_is_located(pointer: str, value: Any, detail: str | None) -> None:
    details = mistakes(with_value(pointer, value))
    assert detail is None or any(detail in text for text in details.values()), details
    assert any(location.startswith(pointer[:12]) or "operators" in location for location in details)


def test_joins_need_a_field_that_both_have() -> None:
    document = with_value("/operators/peaks/by", [])
    document["operators"]["counts"]["by"] = []
    assert "cross product" in mistakes(document)["/operators/compared/join"]


def test_joins_without_another_operator_are_limited() -> None:
    parse_query(averages(list(range(1, MAX_JOINED + 1))))
    details = mistakes(averages(list(range(1, MAX_JOINED + 2))))
    assert list(details) == [f"/operators/with_{MAX_JOINED + 1}/join"]


def test_tuples_are_read() -> None:
    streams = parse_query(NEAR_PEAK).streams
    values = {"plug": 7, "property": "load", "load": 3}
    document = {"stream": "readings", "time_s": 1.5, "values": values}
    assert parse_tuple(document, streams) == ("readings", 1.5, values)
    for pointer, invalid in {
        "/stream": {**document, "stream": "reading"},
        "/time_s": {**document, "time_s": "now"},
        "/values/plug": {**document, "values": {**values, "plug": 2**63}},
        "/values/load": {**document, "values": {**values, "load": None}},
        "/values/property": {**document, "values": {"plug": 7, "load": 3}},
        "/values/more": {**document, "values": {**values, "more": 1}},
    }.items():
        with pytest.raises(Invalid) as error:
            parse_tuple(invalid, streams)
        assert [location.pointer for location in error.value.locations] == [pointer]
