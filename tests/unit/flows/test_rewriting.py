"""Plans: refusals, the attributes that operators need, and rewriting."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import Invalid
from mediator.flows.parser import MAX_OPERATORS
from mediator.flows.partitioning import describe_grain
from mediator.flows.rewriting import describe, rewrite
from tests.unit.flows.plans import LOOKUP, ORDERS, flow

RECEIVE = {"op": "receive", "attributes": {"name": "string", "total": "number"}}
ASSIGN = {"op": "assign", "to": "wanted", "value": {"$": "/name"}}


def switch(**members: Any) -> dict[str, Any]:
    translation = {"op": "translate", "value": {"size": "large", "wanted": {"$": "/wanted"}}}
    case = {"equals": [1, 2], "operators": [translation]}
    default = [{"op": "translate", "value": {"wanted": "nobody"}}]
    return {"op": "switch", "on": {"$": "/total"}, "cases": [case], "default": default, **members}


def names(plan: list[dict[str, Any]]) -> list[Any]:
    parsed = flow(plan).plan
    return shape(describe(rewrite(parsed, parsed.levels[0])))


def shape(steps: list[dict[str, Any]]) -> list[Any]:
    return [
        shape(step["operators"])
        if step["op"] == "iterate"
        else [attribute["attribute"] for attribute in step["by"]]
        if step["op"] == "split"
        else step["op"]
        for step in steps
    ]


def test_the_plan_of_orders_is_partitioned_by_the_attribute_of_its_lookup() -> None:
    plan = flow(ORDERS).plan
    assert describe_grain(plan.levels[0]) == [{"attribute": "name", "by": "value"}]
    assert names(ORDERS) == ["assign", "invoke", "join"]
    assert [operator.pointer for operator in plan.outbound_part] == ["/plan/4"]


def test_a_switch_by_another_attribute_is_split_and_merged() -> None:
    """Oracle E3: figure 6 of the paper."""
    last = {"op": "assign", "to": "target", "value": "s3"}
    plan = [RECEIVE, ASSIGN, LOOKUP, switch(), last]
    assert names(plan) == ["assign", "invoke", ["total"], ["switch"], "merge", "assign"]


def test_values_that_a_branch_can_change_depend_on_the_branch() -> None:
    last = {"op": "assign", "to": "target", "value": {"$": "/wanted"}}
    plan = [RECEIVE, ASSIGN, LOOKUP, switch(), last]
    assert names(plan) == ["assign", "invoke", ["total"], ["switch", "assign"], "merge"]


def test_a_plan_without_lookups_is_partitioned_by_its_first_switch() -> None:
    (attribute,) = flow([RECEIVE, ASSIGN, switch()]).plan.levels[0]
    assert attribute.name == "total"
    assert flow([RECEIVE, ASSIGN]).plan.levels == ((),)


def nested(levels: int) -> dict[str, Any]:
    inner = ASSIGN
    for _ in range(levels):
        inner = switch(cases=[{"equals": [1], "operators": [inner]}], default=[])
    return inner


@pytest.mark.parametrize(
    ("plan", "pointer"),
    [
        ([], "/plan"),
        ([ASSIGN, ASSIGN], "/plan/0"),
        ([RECEIVE, {"op": "assign", "to": "x", "value": {"$": "/nam"}}], "/plan/1/value/$"),
        # An operator that needs a later one: a cycle, if it were possible.
        ([RECEIVE, LOOKUP, ASSIGN], "/plan/1/query/filter/eq/1/$"),
        ([RECEIVE, {"op": "jump"}], "/plan/1/op"),
        ([RECEIVE, {k: v for k, v in switch().items() if k != "default"}], "/plan/1/default"),
        ([RECEIVE, {**ASSIGN, "to": "not a name"}], "/plan/1/to"),
        ([RECEIVE, {**LOOKUP, "query": {"class": "credit"}}], "/plan/1/query/class"),
        (
            [RECEIVE, {**LOOKUP, "query": {"class": "credits", "filter": {"eq": ["no", 1]}}}],
            "/plan/1/query/filter/eq/0",
        ),
        ([RECEIVE, nested(10)], ""),
        ([RECEIVE, *[ASSIGN] * MAX_OPERATORS], "/plan"),
        ([RECEIVE, {**ASSIGN, "value": {"$": 1}}], "/plan/1/value/$"),
        (
            [RECEIVE, {"op": "invoke", "write": {"class": "orders", "id": "x"}}],
            "/plan/1/write/body",
        ),
    ],
)
def test_a_plan_that_cannot_be_executed_is_refused_with_the_location(
    plan: list[dict[str, Any]], pointer: str
) -> None:
    with pytest.raises(Invalid) as error:
        flow(plan)
    pointers = [location.pointer for location in error.value.locations]
    assert pointer in pointers or (not pointer and pointers), pointers


@pytest.mark.parametrize("latency", [0, -1, True, "1", 1e9])
def test_a_bound_that_no_flow_can_have_is_refused(latency: Any) -> None:
    with pytest.raises(Invalid) as error:
        flow(ORDERS, latency_s=latency)
    assert error.value.locations[0].pointer == "/latency_s"
