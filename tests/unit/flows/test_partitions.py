"""Partitions by value, by list and by range have the results of their messages one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import orjson
import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Invalid
from mediator.flows.execution import BatchExecution, Message
from mediator.flows.partitioning import canonical, describe_grain
from mediator.flows.plan import Plan, Query
from mediator.flows.queue import QueuedMessage
from mediator.flows.rewriting import Step, describe, rewrite, steps_of_message
from tests.unit.flows.plans import LOOKUP, flow
from tests.unit.flows.random_plans import random_messages, random_plan

RECEIVE = {"op": "receive", "attributes": {"name": "string", "total": "number"}}
ASSIGN = {"op": "assign", "to": "wanted", "value": {"$": "/name"}}
RANGES = [{"lt": 10}, {"ge": 10, "lt": 200}]
"""Those of figure 5 of the paper; the rest is its third range."""


class Credits:
    """Implements `Invoker`: what a lookup finds depends on what it looks for."""

    def __init__(self) -> None:
        self.lookups = 0

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        self.lookups += 1
        customer = document["filter"]["eq"][1]
        return [] if customer == "unknown" else [{"customer": customer, "amount": f"of {customer}"}]

    async def write(self, *_: Any) -> None:
        raise AssertionError("these plans do not write")


def switch(cases: Sequence[dict[str, Any]], on: str = "/total") -> dict[str, Any]:
    """Translate, in each case to something else."""
    numbered = [
        {**case, "operators": [{"op": "assign", "to": "size", "value": number}]}
        for number, case in enumerate(cases)
    ]
    default = [{"op": "assign", "to": "size", "value": "rest"}]
    return {"op": "switch", "on": {"$": on}, "cases": numbered, "default": default}


async def results(
    invoker: Credits, steps: Sequence[Step], bodies: Sequence[dict[str, Any]]
) -> list[Any]:
    batch = [
        Message(QueuedMessage(i, 0, str(i), orjson.dumps(body)), body, dict(body))
        for i, body in enumerate(bodies)
    ]
    await BatchExecution(invoker, "flow", SystemClock()).run(steps, batch)
    return [each.error.detail if each.error else orjson.dumps(each.values) for each in batch]


def partitions(plan: Plan, bodies: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Return the messages of each partition, as a queue collects them."""
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, body in enumerate(bodies):
        found[canonical(body, plan.partitioned_by)].append(number)
    return list(found.values())


@pytest.mark.parametrize("seed", range(10))
async def test_any_plan_has_the_results_of_its_messages_one_by_one(seed: int) -> None:
    chance = Random(seed)
    for _ in range(100):
        plan, bodies = flow(random_plan(chance)).plan, random_messages(chance)
        single, batched = Credits(), Credits()
        steps = steps_of_message(plan.operators)
        one_by_one = [(await results(single, steps, [body]))[0] for body in bodies]
        together: dict[int, Any] = {}
        for numbers in partitions(plan, bodies):
            batch = [bodies[number] for number in numbers]
            found = await results(batched, rewrite(plan), batch)
            together.update(zip(numbers, found, strict=True))
        assert [together[number] for number in range(len(bodies))] == one_by_one
        assert batched.lookups <= single.lookups


def test_a_switch_by_ranges_is_partitioned_by_them() -> None:
    plan = flow([RECEIVE, switch(RANGES)]).plan
    assert describe_grain(plan.partitioned_by) == [{"attribute": "total", "by": "range"}]
    totals = [5, 10, 250, 199.9, 200, -1]
    assert partitions(plan, [{"total": total} for total in totals]) == [[0, 5], [1, 3], [2, 4]]


def test_a_switch_by_values_is_partitioned_by_their_lists_and_the_rest() -> None:
    plan = flow([RECEIVE, switch([{"equals": ["a", "b"]}, {"equals": ["c"]}], "/name")]).plan
    assert describe_grain(plan.partitioned_by) == [{"attribute": "name", "by": "list"}]
    names = ["a", "c", "b", "x", "y"]
    assert partitions(plan, [{"name": name} for name in names]) == [[0, 2], [1], [3, 4]]


def test_true_is_not_the_number_one() -> None:
    receive = {"op": "receive", "attributes": {"total": "json"}}
    plan = flow([receive, switch([{"equals": [1]}, {"ge": 1}])]).plan
    assert partitions(plan, [{"total": total} for total in (1, True, 1.0, "1")]) == [[0, 2], [1, 3]]


def test_a_lookup_of_what_a_switch_has_chosen_is_shared_by_its_ranges() -> None:
    lookup = {**LOOKUP, "query": {"class": "credits", "filter": {"eq": ["amount", {"$": "/size"}]}}}
    plan = flow([RECEIVE, switch(RANGES), lookup]).plan
    assert describe_grain(plan.partitioned_by) == [{"attribute": "total", "by": "range"}]


def test_a_lookup_of_the_exact_value_keeps_partitions_by_value() -> None:
    lookup = {
        **LOOKUP,
        "query": {"class": "credits", "filter": {"le": ["amount", {"$": "/total"}]}},
    }
    plan = flow(
        [RECEIVE, switch(RANGES), {**lookup, "query": {**lookup["query"], "allow_scan": True}}]
    ).plan
    assert describe_grain(plan.partitioned_by) == [{"attribute": "total", "by": "value"}]


@pytest.mark.parametrize("on", ["/total", "/alias"])
def test_a_value_that_was_changed_is_no_attribute_any_more(on: str) -> None:
    changed = {"op": "assign", "to": "total", "value": [{"$": "/total"}]}
    alias = {"op": "assign", "to": "alias", "value": {"$": "/total"}}
    plan = flow([RECEIVE, changed, alias, switch(RANGES, on)]).plan
    assert describe_grain(plan.partitioned_by) == [{"attribute": "total", "by": "value"}]


def test_figure_5_splits_each_customer_by_ranges() -> None:
    """Oracle E2: two levels, customers by value and totals by range."""
    plan = flow([RECEIVE, ASSIGN, LOOKUP, switch(RANGES)]).plan
    split = describe(rewrite(plan))[2]
    assert describe_grain(plan.partitioned_by) == [{"attribute": "name", "by": "value"}]
    assert split == {"op": "split", "by": [{"attribute": "total", "by": "range"}]}


@pytest.mark.parametrize(
    ("case", "pointer"),
    [
        ({}, ""),
        ({"equals": [1], "ge": 1}, ""),
        ({"equals": []}, "/equals"),
        ({"ge": "1"}, "/ge"),
        ({"lt": True}, "/lt"),
        ({"ge": 2, "lt": 2}, "/lt"),
        ({"le": 2}, "/le"),
    ],
)
def test_a_case_without_a_condition_that_can_hold_is_refused(
    case: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(Invalid) as caught:
        flow([RECEIVE, switch([case])])
    assert f"/plan/1/cases/0{pointer}" in [at.pointer for at in caught.value.locations]
