"""Dead letters whose writes stores may have forgotten are replayed on request only."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from mediator.flows.queue import FlowKey
from mediator.stores.port import RETENTION_S
from tests.process.flows.keys import key_of
from tests.process.flows.shop import Shop, orders
from tests.process.service import unique
from tests.unit.flows.plans import ORDERS

FAILING = ("nobody", "no one")
"""Customers without a credit, so their orders have none to write."""


async def make_old(shop: Shop, flow: str, tickets: Sequence[str]) -> None:
    """Make messages a day older."""
    database = shop.service.mediator.data.model.databases[shop.database].id
    name = key_of(FlowKey(database, flow), "since")
    for ticket in tickets:
        await shop.coordination.redis.hincrby(name, ticket, -RETENTION_S * 1000)


async def replay(shop: Shop, flow: str, parameters: str = "") -> httpx.Response:
    return await shop.client.post(f"message-flows/{flow}/replay{parameters}")


async def test_letters_that_have_expired_are_left_unless_they_are_requested(shop: Shop) -> None:
    flow = await shop.create()
    tickets = await shop.tickets(flow, orders(FAILING, unique("e")))
    await shop.ended(flow, tickets)
    await make_old(shop, flow, tickets[:1])
    letters = (await shop.client.get(f"message-flows/{flow}/dead-letters")).json()["items"]
    assert {letter["ticket"]: letter["age_s"] >= RETENTION_S for letter in letters} == {
        tickets[0]: True,
        tickets[1]: False,
    }
    answer = await replay(shop, flow)
    assert (answer.status_code, answer.json()) == (202, {"replayed": 1, "expired": 1})
    await shop.ended(flow, tickets)
    await make_old(shop, flow, tickets[1:])
    answer = await replay(shop, flow)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")
    assert answer.json()["expired"] == 2
    assert "expired=true" in answer.json()["detail"]
    answer = await replay(shop, flow, "?expired=true")
    assert (answer.status_code, answer.json()) == (202, {"replayed": 2, "expired": 0})
    # They fail again, and are as old as they were.
    await shop.ended(flow, tickets)
    assert (await replay(shop, flow)).status_code == 409
    assert (await replay(shop, flow, "?expired=perhaps")).status_code == 400


async def test_a_message_that_is_done_leaves_no_arrival_time(shop: Shop) -> None:
    flow, customer = await shop.create(), unique("late")
    tickets = await shop.tickets(flow, orders([customer], unique("e")))
    await shop.ended(flow, tickets)
    await shop.service.create(shop.database, "credits", customer, customer=customer, amount=1)
    assert (await replay(shop, flow)).json() == {"replayed": 1, "expired": 0}
    (state,) = await shop.ended(flow, tickets)
    assert state["state"] == "done"
    database = shop.service.mediator.data.model.databases[shop.database].id
    assert not await shop.coordination.redis.exists(key_of(FlowKey(database, flow), "since"))


async def test_letters_of_a_flow_without_writes_do_not_expire(shop: Shop) -> None:
    join = ORDERS[3]
    fails = {"op": "translate", "value": {"credit": {"$": "/credit/amount"}}}
    flow = await shop.create([*ORDERS[:3], join, fails])
    tickets = await shop.tickets(flow, orders(FAILING[:1]))
    await shop.ended(flow, tickets)
    await make_old(shop, flow, tickets)
    assert (await replay(shop, flow)).json() == {"replayed": 1, "expired": 0}
