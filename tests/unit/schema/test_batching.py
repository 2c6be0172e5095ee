"""The annotation `batching`: the requirements it needs, and those it contradicts."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from mediator.base.errors import SchemaInvalid
from mediator.schema.batching import WaitBound, wait_bound
from mediator.schema.differences import differences
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document

READS = {"metric": "read_throughput", "goal": 1000}
WRITES = {"metric": "write_throughput", "goal": 1000}
AT = "/classes/c/batching"


def latency(goal: float, direction: str = "read") -> dict[str, Any]:
    return {"metric": f"{direction}_latency", "goal": goal}


def document(*annotations: dict[str, Any], batching: Any = None, **members: Any) -> dict[str, Any]:
    """Return a schema whose only class has `batching` and these annotations."""
    class_ = {
        "annotations": list(annotations),
        "batching": {"max_wait_s": 0.01} if batching is None else batching,
        "fields": {"hits": {"type": "integer"}},
    }
    return {"classes": {"c": class_}, **members}


@pytest.mark.parametrize(
    ("batching", "location"),
    [
        ({}, "/max_wait_s"),
        ({"max_wait_s": 0}, "/max_wait_s"),
        ({"max_wait_s": -0.01}, "/max_wait_s"),
        ({"max_wait_s": 1.01}, "/max_wait_s"),
        ({"max_wait_s": "0.01"}, "/max_wait_s"),
        ({"max_wait_s": True}, "/max_wait_s"),
        ({"max_wait_s": float("inf")}, "/max_wait_s"),
        ({"max_wait_s": 0.01, "max_size": 100}, "/max_size"),
        ([0.01], ""),
    ],
)
def test_a_mistake_is_located(batching: Any, location: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", document(READS, batching=batching))
    assert [p.pointer for p in caught.value.locations] == [f"{AT}{location}"]


@pytest.mark.parametrize(
    ("annotations", "location", "detail"),
    [
        ([], "", "needs a requirement of read_throughput or write_throughput"),
        ([latency(1.0)], "", "needs a requirement of read_throughput or write_throughput"),
        ([READS, latency(0.005)], "/max_wait_s", "read_latency, 0.005 s"),
        ([READS, latency(0.01)], "/max_wait_s", "after a wait of 0.01 s"),
        ([WRITES, latency(0.005, "write")], "/max_wait_s", "write_latency, 0.005 s"),
        (
            [
                READS,
                {
                    "metric": "read_latency",
                    "utility": {"shape": "step", "points": [[0.1, 1], [0.2, 0]]},
                },
            ],
            "",
            "a utility gives no number",
        ),
    ],
)
def test_a_contradiction_is_refused_with_its_numbers(
    annotations: list[dict[str, Any]], location: str, detail: str
) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema("news", document(*annotations))
    [mistake] = caught.value.locations
    assert mistake.pointer == f"{AT}{location}"
    assert detail in mistake.detail


def test_requirements_of_the_database_and_of_fields_count() -> None:
    with pytest.raises(SchemaInvalid, match=r"0\.004 s"):
        parse_schema("news", document(READS, annotations=[latency(0.004)]))
    raw = document(annotations=[READS])
    raw["classes"]["c"]["fields"]["hits"]["annotations"] = [latency(0.02), latency(0.5)]
    schema = parse_schema("news", raw)
    assert wait_bound(schema, schema.classes["c"], "read") == WaitBound(0.01, 0.02)


def test_a_direction_whose_throughput_is_not_required_never_waits() -> None:
    schema = parse_schema("news", document(WRITES, latency(0.001)))
    assert wait_bound(schema, schema.classes["c"], "read") is None
    assert wait_bound(schema, schema.classes["c"], "write") == WaitBound(0.01, inf)


def test_without_the_annotation_nothing_waits() -> None:
    raw = document(READS, WRITES)
    raw["classes"]["c"]["batching"] = None
    schema = parse_schema("news", raw)
    assert wait_bound(schema, schema.classes["c"], "read") is None
    assert parse_schema("news", schema_document(schema)) == schema


def test_batching_is_rendered_and_parsed_again() -> None:
    rendered = schema_document(parse_schema("news", document(READS)))
    assert rendered["classes"]["c"]["batching"] == {"max_wait_s": 0.01}
    assert schema_document(parse_schema("news", rendered)) == rendered
    changed = schema_document(parse_schema("news", document(READS, batching={"max_wait_s": 0.02})))
    [difference] = differences(rendered, changed)
    assert difference.node == "c"
