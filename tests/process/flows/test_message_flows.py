"""Message flows over HTTP, on real stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from mediator.base.observation import FlowCounted
from mediator.coordination.message_queue import QueueBounds
from mediator.flows.worker import FlowWorker
from tests.faults.conditions import eventually
from tests.process.flows.shop import CLASSES, CREDITS, CUSTOMERS, Shop, orders
from tests.process.service import unique
from tests.unit.flows.plans import LOOKUP, ORDERS


async def test_the_orders_of_the_paper_take_three_lookups_and_leave_in_order(shop: Shop) -> None:
    """Oracle E1: six messages of three customers."""
    flow = await shop.create(ordered=True)
    tickets = await shop.tickets(flow, orders())
    states = await shop.ended(flow, tickets)
    assert [state["state"] for state in states] == ["done"] * 6
    assert [state["result"]["credit"]["amount"] for state in states] == [
        CREDITS[name] for name in CUSTOMERS
    ]
    report = await shop.report(flow)
    counts = report["counts"]
    assert (counts["lookups"], counts["lookups_saved"], counts["done"]) == (3, 3, 6)
    assert report["partitioned_by"] == [{"attribute": "name", "by": "value"}]
    assert [step["op"] for step in report["rewritten_plan"]] == ["assign", "invoke", "join"]
    assert (report["queued"], report["held"], report["partitions"]) == (0, 0, 0)

    def sum_counts() -> Counter[str]:
        events = [event for event in shop.service.observed if isinstance(event, FlowCounted)]
        assert {event.database for event in events} <= {shop.database}
        total: Counter[str] = Counter()
        for event in events:
            total.update(event.counts if event.flow == flow else {})
        return +total

    async def all_observed() -> bool:  # only after the flow has recorded it
        return sum_counts() >= +Counter(counts)

    await eventually(all_observed)
    assert sum_counts() == +Counter(counts)
    for number, name in enumerate(CUSTOMERS, 1):
        order = await shop.client.get(f"orders/m{number}")
        assert order.json() == {"id": f"m{number}", "customer": name, "credit": CREDITS[name]}


async def test_a_flow_is_listed_shown_and_dropped(shop: Shop) -> None:
    flow = await shop.create(name="orders", objective="work")
    items = (await shop.client.get("message-flows")).json()["items"]
    assert [item for item in items if item["id"] == flow] == [
        {"id": flow, "name": "orders", "latency_s": 10, "ordered": False, "objective": "work"}
    ]
    assert (await shop.client.delete(f"message-flows/{flow}")).status_code == 204
    for answer in (
        await shop.client.get(f"message-flows/{flow}"),
        await shop.client.delete(f"message-flows/{flow}"),
        await shop.send(flow, orders()),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")


async def test_a_flow_that_is_found_while_it_is_created_has_one_worker(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, flows = shop.coordination.message_queue, shop.service.mediator.flows
    put_flow, before = queue.put_flow, workers()
    assert flows is not None

    async def put_and_follow(*flow: Any) -> bool:
        is_put = await put_flow(*flow)
        await flows.follow()
        return is_put

    monkeypatch.setattr(queue, "put_flow", put_and_follow)
    flow = await shop.create()
    assert len(workers() - before) == 1
    assert (await shop.client.delete(f"message-flows/{flow}")).status_code == 204
    assert workers() == before


def workers() -> set[asyncio.Task[Any]]:
    """Return the tasks of all flow workers in this process."""
    coroutines = {task: task.get_coro() for task in asyncio.all_tasks()}
    run = FlowWorker.run.__code__
    return {
        task for task, coroutine in coroutines.items() if getattr(coroutine, "cr_code", None) is run
    }


async def test_a_message_without_an_attribute_is_refused_with_all_others(shop: Shop) -> None:
    flow = await shop.create()
    answer = await shop.send(flow, [*orders(), {"number": 7, "name": "A"}, {"name": "A"}])
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "/messages/6/number"
    assert (await shop.report(flow))["counts"] == {}


@pytest.mark.parametrize(
    "body", [{}, {"messages": []}, {"messages": {}}, {"messages": [{}] * 1001}]
)
async def test_a_body_without_messages_is_refused(shop: Shop, body: Any) -> None:
    flow = await shop.create()
    answer = await shop.client.post(f"message-flows/{flow}/messages", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/messages")


async def test_a_retry_under_its_key_queues_nothing_twice(shop: Shop) -> None:
    flow, key = await shop.create(), unique("key")
    headers = {"Idempotency-Key": key}
    first = await shop.send(flow, orders(prefix=key), **headers)
    retry = await shop.send(flow, orders(prefix=key), **headers)
    other = await shop.send(flow, orders(), **headers)
    assert first.json() == retry.json()
    assert retry.headers["idempotency-replayed"] == "true"
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")
    await shop.ended(flow, first.json()["tickets"])
    assert (await shop.report(flow))["counts"]["messages"] == 6


async def test_a_poison_message_becomes_a_dead_letter_and_the_order_goes_on(shop: Shop) -> None:
    """A message that fails releases those behind it; replayed, it is like any other."""
    flow, prefix = await shop.create(ordered=True), unique("n")
    # An unknown customer: the message has no credit to write.
    messages = orders(["A", "nobody", "A"], prefix)
    tickets = await shop.tickets(flow, messages)
    done, failed, last = await shop.ended(flow, tickets)
    assert (done["state"], failed["state"], last["state"]) == ("done", "failed", "done")
    assert failed["error"]["errors"][0]["pointer"] == "/credit/amount"
    page = (await shop.client.get(f"message-flows/{flow}/dead-letters")).json()
    assert [(letter["ticket"], letter["message"]) for letter in page["items"]] == [
        (tickets[1], messages[1])
    ]
    await shop.service.create(shop.database, "credits", "nobody", customer="nobody", amount=1)
    answer = await shop.client.post(f"message-flows/{flow}/replay")
    assert (answer.status_code, answer.json()) == (202, {"replayed": 1, "expired": 0})
    (state,) = await shop.ended(flow, [tickets[1]])
    assert state["state"] == "done"
    assert (await shop.report(flow))["dead_letters"] == 0


async def test_values_of_messages_are_never_read_as_operators(shop: Shop) -> None:
    receive = {"op": "receive", "attributes": {"name": "json"}}
    values: list[Any] = [{"$": "/name"}, {"exists": "customer"}, ["A"], "A"]
    query = {"class": "credits", "filter": {"not": {"$": "/name"}}, "allow_scan": True}
    for lookup, outcome in ((LOOKUP, "done"), ({**LOOKUP, "query": query}, "failed")):
        flow = await shop.create([receive, ORDERS[1], lookup])
        tickets = await shop.tickets(flow, [{"name": value} for value in values])
        states = [state["state"] for state in await shop.ended(flow, tickets)]
        assert states == ["failed", "failed", "failed", outcome]


async def test_a_full_queue_refuses_messages_until_some_have_ended(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop.coordination.message_queue, "bounds", QueueBounds(messages=5))
    flow = await shop.create()
    answer = await shop.send(flow, orders())
    assert (answer.status_code, answer.json()["type"]) == (429, "/problems/too-many-requests")
    assert answer.headers["retry-after"] == "1"
    await shop.ended(flow, await shop.tickets(flow, orders()[:5]))
    await shop.ended(flow, await shop.tickets(flow, orders()[:5]))


async def test_the_waiting_time_is_explained(shop: Shop) -> None:
    flow, measured = await shop.create(objective="work"), {}

    async def is_computed() -> bool:
        nonlocal measured
        # Within the capacity of the machine: an overloaded flow has no borders to explain.
        await shop.ended(flow, await shop.tickets(flow, orders(prefix=unique("w"))))
        measured = (await shop.report(flow))["measured"]
        return bool(measured and measured.get("is_valid") and measured["rate"])

    await eventually(is_computed)
    assert 0 < measured["selectivity"] <= 1
    assert f"{measured['wait_most_s']:.6g} s" in measured["explanation"]


async def test_messages_are_queued_by_the_lookup_that_costs_most_when_it_is_not_shared(
    shop: Shop,
) -> None:
    """The first lookup of the plan finds another object for each message, the second few ones."""
    filter_ = {"eq": ["customer", {"$": "/number"}]}
    own_lookup = {"op": "invoke", "query": {"class": "credits", "filter": filter_}, "to": "own"}
    flow = await shop.create([*ORDERS[:2], own_lookup, *ORDERS[2:]], ordered=True)
    assert (await shop.report(flow))["partitioned_by"] == [{"attribute": "number", "by": "value"}]
    prefix = unique("v")
    messages = orders("ABC" * 70, prefix)
    tickets = await shop.tickets(flow, messages[:120])

    async def is_chosen() -> bool:
        partitioned_by = (await shop.report(flow))["partitioned_by"]
        return bool(partitioned_by == [{"attribute": "name", "by": "value"}])

    await eventually(is_chosen)
    tickets += await shop.tickets(flow, messages[120:])
    states = await shop.ended(flow, tickets)
    assert [state["result"]["number"] for state in states] == [
        message["number"] for message in messages
    ]
    report = await shop.report(flow)
    assert report["counts"]["lookups_saved"] > 0
    levels = report["measured"]["levels"]
    assert [level["attributes"][0]["attribute"] for level in levels] == ["number", "name"]
    assert levels[0]["selectivity"] < levels[1]["selectivity"] == pytest.approx(1 / 3)


async def test_a_dropped_database_takes_its_flows_along(shop: Shop) -> None:
    database = await shop.service.put_schema(CLASSES)
    path = f"http://localhost/v1/{database}/message-flows"
    answer = await shop.client.post(path, json={"plan": ORDERS, "latency_s": 10})
    assert answer.status_code == 201, answer.text
    mediator = shop.service.mediator
    id_ = mediator.data.model.databases[database].id
    await mediator.control.delete_schema(database)
    await mediator.clearing.run()
    queue = shop.coordination.message_queue
    assert id_ not in {key.database for key in await queue.flows()}
