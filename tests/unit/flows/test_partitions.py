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
from mediator.flows.http_request import HttpRequest
from mediator.flows.message_values import MessageValues
from mediator.flows.partitioning import canonical, describe_grain
from mediator.flows.plan import Plan, Query
from mediator.flows.queue import QueuedMessage
from mediator.flows.rewriting import Step, describe, rewrite, steps_of_message
from tests.unit.flows.plans import LOOKUP, flow
from tests.unit.flows.random_plans import random_messages, random_plan

RECEIVE = {"op": "receive", "attributes": {"name": "string", "total": "number"}}
ASSIGN = {"op": "assign", "to": "wanted", "value": {"$": "/name"}}
RANGES = [{"lt": 10}, {"ge": 10, "lt": 200}]
"""The ranges of the paper's figure 5; the rest is its third one."""


class Credits:
    """Implements `Invoker`: the result of a lookup depends on its value."""

    def __init__(self) -> None:
        self.lookups: list[Any] = []

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        customer = document["filter"]["eq"][1]
        self.lookups.append(customer)
        return [] if customer == "unknown" else [{"customer": customer, "amount": f"of {customer}"}]

    async def write(self, *_: Any) -> None:
        raise AssertionError("these plans do not write")

    async def send(self, request: HttpRequest) -> Any:
        raise AssertionError("these plans send nothing")


def switch(cases: Sequence[dict[str, Any]], on: str = "/total") -> dict[str, Any]:
    """Assign another value in each case."""
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
        Message(QueuedMessage(i, 0, str(i), orjson.dumps(body)), body, MessageValues.of(body))
        for i, body in enumerate(bodies)
    ]
    await BatchExecution(invoker, "flow", SystemClock()).run(steps, batch)
    return [
        message.error.detail if message.error else orjson.dumps(dict(message.values))
        for message in batch
    ]


def partitions(plan: Plan, bodies: Sequence[dict[str, Any]], level: int = 0) -> list[list[int]]:
    """Return the messages of each partition, as a queue collects them."""
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, body in enumerate(bodies):
        groups[canonical(body, plan.levels[level])].append(number)
    return list(groups.values())


@pytest.mark.parametrize("seed", range(10))
async def test_any_plan_has_the_results_of_its_messages_one_by_one(seed: int) -> None:
    """Whatever level queues the messages, and whatever a rewritten plan knows of it."""
    chance = Random(seed)
    for _ in range(100):
        plan, bodies = flow(random_plan(chance)).plan, random_messages(chance)
        single, batched = Credits(), Credits()
        level = chance.randrange(len(plan.levels))
        batch_steps = rewrite(plan, chance.choice([(), plan.levels[level]]))
        message_steps = steps_of_message(plan.operators)
        one_by_one = [(await results(single, message_steps, [body]))[0] for body in bodies]
        together: dict[int, Any] = {}
        for numbers in partitions(plan, bodies, level):
            batch = [bodies[number] for number in numbers]
            together.update(zip(numbers, await results(batched, batch_steps, batch), strict=True))
        assert [together[number] for number in range(len(bodies))] == one_by_one
        assert len(batched.lookups) <= len(single.lookups)


@pytest.mark.parametrize("seed", range(5))
async def test_messages_that_agree_on_nothing_have_the_same_results_in_one_batch(seed: int) -> None:
    chance = Random(seed)
    for _ in range(100):
        plan, bodies = flow(random_plan(chance)).plan, random_messages(chance)
        steps = steps_of_message(plan.operators)
        one_by_one = [(await results(Credits(), steps, [body]))[0] for body in bodies]
        assert await results(Credits(), rewrite(plan), bodies) == one_by_one


def test_a_switch_by_ranges_is_partitioned_by_them() -> None:
    plan = flow([RECEIVE, switch(RANGES)]).plan
    assert describe_grain(plan.levels[0]) == [{"attribute": "total", "by": "range"}]
    totals = [5, 10, 250, 199.9, 200, -1]
    assert partitions(plan, [{"total": total} for total in totals]) == [[0, 5], [1, 3], [2, 4]]


def test_a_switch_by_values_is_partitioned_by_their_lists_and_the_rest() -> None:
    plan = flow([RECEIVE, switch([{"equals": ["a", "b"]}, {"equals": ["c"]}], "/name")]).plan
    assert describe_grain(plan.levels[0]) == [{"attribute": "name", "by": "list"}]
    names = ["a", "c", "b", "x", "y"]
    assert partitions(plan, [{"name": name} for name in names]) == [[0, 2], [1], [3, 4]]


def test_true_is_not_the_number_one() -> None:
    receive = {"op": "receive", "attributes": {"total": "json"}}
    plan = flow([receive, switch([{"equals": [1]}, {"ge": 1}])]).plan
    assert partitions(plan, [{"total": total} for total in (1, True, 1.0, "1")]) == [[0, 2], [1, 3]]


def test_a_lookup_of_the_choice_of_a_switch_is_shared_by_its_ranges() -> None:
    lookup = {**LOOKUP, "query": {"class": "credits", "filter": {"eq": ["amount", {"$": "/size"}]}}}
    plan = flow([RECEIVE, switch(RANGES), lookup]).plan
    assert describe_grain(plan.levels[0]) == [{"attribute": "total", "by": "range"}]


def test_a_lookup_of_the_exact_value_keeps_partitions_by_value() -> None:
    filter_ = {"le": ["amount", {"$": "/total"}]}
    query = {"class": "credits", "filter": filter_, "allow_scan": True}
    plan = flow([RECEIVE, switch(RANGES), {**LOOKUP, "query": query}]).plan
    assert describe_grain(plan.levels[0]) == [{"attribute": "total", "by": "value"}]


@pytest.mark.parametrize("on", ["/total", "/alias"])
def test_a_value_that_was_changed_is_no_attribute_any_more(on: str) -> None:
    change = {"op": "assign", "to": "total", "value": [{"$": "/total"}]}
    alias = {"op": "assign", "to": "alias", "value": {"$": "/total"}}
    plan = flow([RECEIVE, change, alias, switch(RANGES, on)]).plan
    assert describe_grain(plan.levels[0]) == [{"attribute": "total", "by": "value"}]


async def test_figure_5_is_executed_from_the_oldest_part_of_the_oldest_partition_on() -> None:
    """Oracle E2: customers by value, and totals by range, each in the order of creation."""
    first_ten = {1: "A", 2: "A", 3: "A", 4: "A", 5: "B", 6: "A", 7: "A", 8: "A", 9: "B", 10: "A"}
    customers = {**first_ten, 11: "A", 12: "B"}
    totals = dict.fromkeys((1, 2, 6, 11, 9, 12), 5) | dict.fromkeys((3, 7), 250)
    bodies = [
        {"name": name, "total": totals.get(number, 100)} for number, name in customers.items()
    ]
    lookups = [
        {**LOOKUP, "query": {"class": "credits", "filter": {"eq": ["customer", size]}}}
        for size in ("small", "middle", "large")
    ]
    cases = [
        {**case, "operators": [lookup]} for case, lookup in zip(RANGES, lookups[:2], strict=True)
    ]
    by_total = {**switch(RANGES), "cases": cases, "default": lookups[2:]}
    plan, invoker = flow([RECEIVE, ASSIGN, LOOKUP, by_total]).plan, Credits()
    steps = rewrite(plan, plan.levels[0])
    for numbers in partitions(plan, bodies):
        await results(invoker, steps, [bodies[number] for number in numbers])
    assert invoker.lookups == ["A", "small", "large", "middle", "B", "middle", "small"]
    assert describe(steps)[2] == {"op": "split", "by": [{"attribute": "total", "by": "range"}]}


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
    with pytest.raises(Invalid) as error:
        flow([RECEIVE, switch([case])])
    assert f"/plan/1/cases/0{pointer}" in [location.pointer for location in error.value.locations]
