"""The newspaper: its schema names no system, so other systems give other placements."""

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

REQUIRED = ["atomic_updates", "sorting"]
FAST = {"read_latency": 0.001, "write_latency": 0.001, "write_throughput": 20_000.0}
SLOW = {"read_latency": 0.001, "write_latency": 0.001, "write_throughput": 5_000.0}


def systems(**changes: dict[str, Any]) -> dict[str, Any]:
    descriptions = {
        "a": {"capabilities": REQUIRED, "metrics": FAST},
        "b": {"capabilities": [*REQUIRED, *DECLARED["postgresql"]], "metrics": SLOW},
        "c": {"capabilities": [*REQUIRED, *DECLARED["mongodb"]], "metrics": SLOW},
    }
    return {
        name: {**description, **changes.get(name, {})} for name, description in descriptions.items()
    }


def place(schema: dict[str, Any], systems_: dict[str, Any]) -> dict[str, str]:
    advice = advise({"schema": schema, "systems": systems_})
    return {node: placement["system"] for node, placement in advice["placements"].items()}


def test_each_field_is_placed_on_a_system_that_meets_its_requirements() -> None:
    placements = place(SCHEMA, systems())
    assert placements["articles.hits"] == "a"
    assert (
        placements["articles.body"] == placements["articles.title"] == placements["people"] == "b"
    )
    assert placements["comments"] == "c"


def test_other_metrics_place_the_counters_elsewhere() -> None:
    placements = place(SCHEMA, systems(a={"metrics": SLOW}, c={"metrics": FAST}))
    assert placements["articles.hits"] == "c"


def test_other_capabilities_place_the_other_fields_elsewhere() -> None:
    swapped = systems(
        b={"capabilities": [*REQUIRED, *DECLARED["mongodb"]]},
        c={"capabilities": [*REQUIRED, *DECLARED["postgresql"]]},
    )
    placements = place(SCHEMA, swapped)
    assert (placements["people"], placements["articles"], placements["comments"]) == ("c", "c", "b")


def test_a_requirement_that_no_system_meets_is_dropped_and_reported() -> None:
    offers = systems()
    del offers["c"]
    with pytest.raises(Unplaceable):
        place(SCHEMA, offers)
    offered = {capability for system in offers.values() for capability in system["capabilities"]}
    schema, dropped = affordable(SCHEMA, offered)
    assert dropped == ["comments requires data_volume_scalability, which no system here offers"]
    assert place(schema, offers)["comments"] in {"a", "b"}
    assert affordable(SCHEMA, {*offered, "data_volume_scalability"}) == (SCHEMA, [])


@pytest.mark.parametrize(
    ("capability", "system"), [("joins", "b"), ("data_volume_scalability", "c")]
)
def test_the_whole_database_can_be_placed_on_one_system(capability: str, system: str) -> None:
    before = orjson.dumps(SCHEMA)
    assert set(place(wholly_on(SCHEMA, capability), systems()).values()) == {system}
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
