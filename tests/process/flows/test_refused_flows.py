"""A flow whose schema no longer fits its plan is shown, waits, and can be removed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from mediator.base.clock import SystemClock
from mediator.control.port import ChangeOptions
from mediator.flows.parser import Flow
from mediator.flows.queue import FlowKey
from mediator.flows.service import FlowService
from tests.faults.conditions import eventually
from tests.process.flows.keys import end_leases
from tests.process.flows.shop import CLASSES, CREDITS, Shop, orders
from tests.process.service import unique
from tests.unit.flows.plans import ORDERS

PATH = "http://localhost/v1/{}/message-flows"


class Stall:
    """A database with a flow of orders, whose classes can be dropped."""

    def __init__(self, shop: Shop, database: str) -> None:
        self.shop, self.database = shop, database
        self.path = PATH.format(database)
        self.flow = ""

    async def call(self, method: str, subpath: str = "", **request: Any) -> httpx.Response:
        return await self.shop.client.request(method, f"{self.path}{subpath}", **request)

    async def set_classes(self, *names: str) -> None:
        classes = {name: CLASSES.get(name, CLASSES["orders"]) for name in names}
        options = ChangeOptions(drop=frozenset(CLASSES.keys() - classes))
        control = self.shop.service.mediator.control
        await control.set_schema(self.database, {"classes": classes}, options=options)

    async def send(self, prefix: str) -> list[str]:
        body = {"messages": orders(["A"], prefix)}
        answer = await self.call("POST", f"/{self.flow}/messages", json=body)
        assert answer.status_code == 202, answer.text
        tickets: list[str] = answer.json()["tickets"]
        return tickets

    async def state(self, ticket: str) -> str:
        answer = await self.call("GET", f"/{self.flow}/messages/{ticket}")
        return str(answer.json().get("state"))

    async def create_credits(self) -> None:
        for name, amount in CREDITS.items():
            await self.shop.service.create(
                self.database, "credits", name, customer=name, amount=amount
            )


@pytest.fixture
async def stall(shop: Shop) -> Stall:
    new_stall = Stall(shop, await shop.service.put_schema(CLASSES))
    answer = await new_stall.call("POST", json={"plan": ORDERS, "latency_s": 10, "name": "o"})
    assert answer.status_code == 201, answer.text
    new_stall.flow = answer.json()["id"]
    return new_stall


async def test_a_refused_flow_is_shown_with_the_reason_and_can_be_removed(stall: Stall) -> None:
    await stall.create_credits()
    # A dead letter: the customer does not exist.
    body = {"messages": orders(["nobody"], unique("r"))}
    answer = await stall.call("POST", f"/{stall.flow}/messages", json=body)
    ticket = answer.json()["tickets"][0]

    async def has_failed() -> bool:
        return await stall.state(ticket) == "failed"

    await eventually(has_failed)
    await stall.set_classes("orders")
    [item] = (await stall.call("GET")).json()["items"]
    assert (item["id"], item["name"], item["latency_s"]) == (stall.flow, "o", 10)
    assert "there is no class credits" in item["detail"]
    document = (await stall.call("GET", f"/{stall.flow}")).json()
    assert document.items() >= item.items()
    assert (document["dead_letters"], "plan" in document) == (1, False)
    for method, subpath, request in (
        ("POST", "/messages", {"json": body}),
        ("GET", f"/messages/{ticket}", {}),
        ("GET", "/results", {}),
        ("GET", "/dead-letters", {}),
        ("POST", "/replay", {}),
    ):
        answer = await stall.call(method, f"/{stall.flow}{subpath}", **request)
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict"), subpath
        assert "there is no class credits" in answer.json()["detail"]
    assert (await stall.call("DELETE", f"/{stall.flow}")).status_code == 204
    assert (await stall.call("GET")).json() == {"items": []}
    redis = stall.shop.coordination.redis
    keys = [name async for name in redis.scan_iter(match=f"*{stall.flow}*", count=10_000)]
    assert all([await redis.pttl(name) > 0 for name in keys])


@pytest.mark.parametrize(
    ("class_name", "pointer"),
    [("orders", "/plan/2/query/class"), ("credits", "/plan/4/write/class")],
)
async def test_messages_of_a_refused_flow_wait_until_its_schema_allows_it_again(
    stall: Stall, caplog: pytest.LogCaptureFixture, class_name: str, pointer: str
) -> None:
    """Even if an earlier worker has them: it fails none, and gives them up."""
    if class_name == "credits":
        await stall.create_credits()
    shop, flows = stall.shop, stall.shop.service.mediator.flows
    assert flows is not None
    plane, queue = shop.service.mediator.data, shop.coordination.message_queue
    database = plane.model.databases[stall.database]
    key, flow = FlowKey(database.id, stall.flow), await flows.find(database, stall.flow)
    assert isinstance(flow, Flow)
    replica = FlowService(plane, queue, unique(), SystemClock())
    await replica.follow()
    try:
        await stall.set_classes(class_name)
        await flows.follow()  # so that the other replica takes them
        message = {"number": unique("r"), "name": "A"}
        enqueued = await replica.enqueue(key, flow, [message], unique(), None)

        async def is_given_up() -> bool:
            return f"{stall.flow}: {pointer} there is no class" in caplog.text

        await eventually(is_given_up)
        await replica.follow()
    finally:
        await replica.close()
    report = (await stall.call("GET", f"/{stall.flow}")).json()
    assert (report["queued"], report["dead_letters"]) == (1, 0)

    await stall.set_classes(*CLASSES)
    if class_name != "credits":
        await stall.create_credits()
    await end_leases(shop.coordination.redis, key)

    async def is_done() -> bool:
        return await stall.state(enqueued.tickets[0]) == "done"

    await eventually(is_done)


async def test_an_unrelated_schema_change_stops_no_flow(stall: Stall) -> None:
    await stall.create_credits()
    await stall.set_classes(*CLASSES, "notes")
    [ticket] = await stall.send(unique("r"))

    async def is_done() -> bool:
        return await stall.state(ticket) == "done"

    await eventually(is_done)
