"""The newspaper: its schema names no system, so that other systems give other placements."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.commands.demo.newspaper import DECLARED, SCHEMA, affordable, objects, wholly_on
from app.commands.demo.workload import BATCH, batched_hits, single_hits, top_ten
from mediator.base.errors import Unplaceable
from mediator.placement.advice import advise
from mediator.schema.parse import parse_schema
from mediator.schema.values import decoder

NEEDED = ["atomic_updates", "sorting"]
FAST = {"read_latency": 0.001, "write_latency": 0.001, "write_throughput": 20_000.0}
SLOW = {"read_latency": 0.001, "write_latency": 0.001, "write_throughput": 5_000.0}


def systems(**changes: dict[str, Any]) -> dict[str, Any]:
    described = {
        "a": {"capabilities": NEEDED, "metrics": FAST},
        "b": {"capabilities": [*NEEDED, *DECLARED["postgresql"]], "metrics": SLOW},
        "c": {"capabilities": [*NEEDED, *DECLARED["mongodb"]], "metrics": SLOW},
    }
    return {name: {**each, **changes.get(name, {})} for name, each in described.items()}


def placed(schema: dict[str, Any], given: dict[str, Any]) -> dict[str, str]:
    advice = advise({"schema": schema, "systems": given})
    return {node: where["system"] for node, where in advice["placements"].items()}


def test_each_field_is_placed_where_its_requirements_are_met() -> None:
    where = placed(SCHEMA, systems())
    assert where["articles.hits"] == "a"
    assert where["articles.body"] == where["articles.title"] == where["people"] == "b"
    assert where["comments"] == "c"


def test_other_metrics_place_the_counters_elsewhere() -> None:
    where = placed(SCHEMA, systems(a={"metrics": SLOW}, c={"metrics": FAST}))
    assert where["articles.hits"] == "c"


def test_other_declarations_place_the_rest_elsewhere() -> None:
    swapped = systems(
        b={"capabilities": [*NEEDED, *DECLARED["mongodb"]]},
        c={"capabilities": [*NEEDED, *DECLARED["postgresql"]]},
    )
    where = placed(SCHEMA, swapped)
    assert (where["people"], where["articles"], where["comments"]) == ("c", "c", "b")


def test_a_requirement_that_no_system_meets_is_dropped_and_reported() -> None:
    given = systems()
    del given["c"]
    with pytest.raises(Unplaceable):
        placed(SCHEMA, given)
    offered = {capability for each in given.values() for capability in each["capabilities"]}
    schema, dropped = affordable(SCHEMA, offered)
    assert dropped == ["comments requires data_volume_scalability, which no system here offers"]
    assert placed(schema, given)["comments"] in {"a", "b"}
    assert affordable(SCHEMA, {*offered, "data_volume_scalability"}) == (SCHEMA, [])


@pytest.mark.parametrize(
    ("capability", "system"), [("joins", "b"), ("data_volume_scalability", "c")]
)
def test_the_whole_database_can_be_tied_to_one_system(capability: str, system: str) -> None:
    before = orjson.dumps(SCHEMA)
    assert set(placed(wholly_on(SCHEMA, capability), systems()).values()) == {system}
    assert orjson.dumps(SCHEMA) == before


def test_the_objects_fit_the_schema() -> None:
    schema = parse_schema("news", SCHEMA)
    generated = objects(50, seed=5)
    assert generated == objects(50, seed=5)
    for class_name, members in generated.items():
        fields = schema.classes[class_name].fields
        for body in members.values():
            for name, value in body.items():
                decoder(fields[name])(value)
    assert {article["author"] for article in generated["articles"].values()} <= generated[
        "people"
    ].keys()


def test_requests_have_their_declared_form() -> None:
    single, batched = single_hits("news", 1), batched_hits("news", 1)
    assert single.requests[0].startswith(b"PATCH /v1/news/articles/a")
    head, _, body = batched.requests[0].partition(b"\r\n\r\n")
    assert b"POST /v1/news/batch" in head
    assert len(orjson.loads(body)["operations"]) == BATCH == batched.operations
    assert top_ten("news").requests[0].startswith(b"GET /v1/news/articles?order=-hits&limit=10")
