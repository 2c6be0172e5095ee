"""What-if analyses: the actual scoring, on amended schemas and metrics, without side effects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.errors import Invalid, SchemaInvalid, Unplaceable
from mediator.placement.candidates import Candidate
from mediator.placement.decide import decide
from mediator.placement.what_if import what_if
from mediator.schema.annotations import Capability, Metric
from mediator.schema.parse import parse_schema

HITS = "/classes/articles/fields/hits/annotations"
DOCUMENT = {
    "classes": {
        "articles": {
            "fields": {
                "title": {
                    "type": "string",
                    "annotations": [{"metric": "read_latency", "goal": 0.020}],
                },
                "hits": {
                    "type": "integer",
                    "annotations": [
                        {"require": "atomic_updates"},
                        {"metric": "write_latency", "goal": 0.005, "weight": 1},
                        {"metric": "write_throughput", "goal": 10_000, "weight": 3},
                    ],
                },
            }
        }
    }
}
SCHEMA = parse_schema("news", DOCUMENT)
ATOMIC = frozenset({Capability.ATOMIC_UPDATES})


def metrics(write_latency: float, write_throughput: float, read_latency: float) -> Any:
    return {
        Metric.WRITE_LATENCY: write_latency,
        Metric.WRITE_THROUGHPUT: write_throughput,
        Metric.READ_LATENCY: read_latency,
    }


SYSTEMS = [
    Candidate("A", ATOMIC, metrics(0.001, 25_000, 0.004)),
    Candidate("B", ATOMIC, metrics(0.004, 12_000, 0.002)),
]


def suppose(**document: Any) -> dict[str, Any]:
    return what_if(SCHEMA, SYSTEMS, document)


def test_an_empty_supposition_moves_nothing() -> None:
    result = suppose()
    assert result["moves"] == []
    assert all(node["before"] == node["after"] for node in result["nodes"].values())


def test_a_slower_system_loses_the_field() -> None:
    result = suppose(metrics={"A": {"write_throughput": 1_000, "write_latency": 0.002}})
    why = (
        "articles.hits requires atomic_updates: B writes 12 times as fast as A (12,000/s, 1,000/s),"
        " and write throughput is 75 % of the score."
    )
    assert result["moves"] == [{"node": "articles.hits", "from": "A", "to": "B", "why": why}]
    assert result["nodes"]["articles.hits"]["after"]["why"] == why
    scores = result["nodes"]["articles.hits"]["after"]["scores"]
    assert scores["A"] == pytest.approx((1 * 2.5 + 3 * 0.1) / 4)


def test_a_weight_and_a_goal_are_amended_where_they_stand() -> None:
    result = suppose(
        annotations={f"{HITS}/1": {"weight": 3, "goal": 0.010}, f"{HITS}/2": {"weight": 1}}
    )
    assert result["nodes"]["articles.hits"]["after"]["scores"]["A"] == pytest.approx(
        (3 * 10 + 1 * 2.5) / 4
    )


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_the_outcome_equals_an_actual_decision(latency: float, weight: float) -> None:
    result = suppose(
        annotations={f"{HITS}/2": {"weight": weight}},
        metrics={"B": {"write_latency": latency}},
    )
    amended = parse_schema("news", DOCUMENT)
    assert amended == SCHEMA, "what-if must not change the schema"
    document: Any = {
        "classes": {"articles": {"fields": dict(DOCUMENT["classes"]["articles"]["fields"])}}
    }
    hits = dict(document["classes"]["articles"]["fields"]["hits"])
    hits["annotations"] = [*hits["annotations"][:2], {**hits["annotations"][2], "weight": weight}]
    document["classes"]["articles"]["fields"]["hits"] = hits
    slower = Candidate("B", ATOMIC, metrics(latency, 12_000, 0.002))
    decision = decide(parse_schema("news", document), [SYSTEMS[0], slower])
    assert {node: change["after"]["system"] for node, change in result["nodes"].items()} == {
        node: placement.system for node, placement in decision.placements.items()
    }


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ([], ""),
        ({"weights": {}}, "/weights"),
        ({"metrics": {"A": {"speed": 1}}}, "/metrics/A/speed"),
        ({"metrics": {"A": {"write_latency": -1}}}, "/metrics/A/write_latency"),
        ({"metrics": {"C": {"write_latency": 1}}}, "/metrics/C"),
        ({"p99": {"A": {"write_throughput": 1}}}, "/p99/A/write_throughput"),
        ({"annotations": []}, "/annotations"),
        ({"annotations": {f"{HITS}/1": 3}}, None),
        ({"annotations": {f"{HITS}/1": {"weight": 0}}}, None),
        ({"annotations": {f"{HITS}/0": {"weight": 1}}}, "/annotations"),
        ({"annotations": {f"{HITS}/-1": {"weight": 1}}}, "/annotations"),
        ({"annotations": {"/classes/nobody/annotations/0": {"weight": 1}}}, "/annotations"),
        ({"annotations": {"": {"weight": 1}}}, "/annotations"),
    ],
)
def test_an_invalid_supposition_is_refused(document: Any, pointer: str | None) -> None:
    with pytest.raises(Invalid) as refused:
        what_if(SCHEMA, SYSTEMS, document)
    pointers = [location.pointer for location in refused.value.locations]
    assert pointers if pointer is None else pointer in pointers


def test_an_invalid_schema_is_refused() -> None:
    curve = {"shape": "linear", "points": [[0.02, 1], [0.05, 0]]}
    field = {"type": "string", "annotations": [{"metric": "read_latency", "utility": curve}]}
    schema = parse_schema("news", {"classes": {"a": {"fields": {"b": field}}}})
    amended = {"annotations": {"/classes/a/fields/b/annotations/0": {"goal": 1}}}
    with pytest.raises(SchemaInvalid):
        what_if(schema, SYSTEMS, amended)


def test_a_schema_that_no_system_can_hold_is_refused() -> None:
    bare = [Candidate("A", frozenset(), metrics(1, 1, 1))]
    with pytest.raises(Unplaceable):
        what_if(SCHEMA, bare, {})
