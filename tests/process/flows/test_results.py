"""Results of messages: sent to a webhook, and followed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.flows.queue import FlowKey
from mediator.flows.worker import MAX_ATTEMPTS
from tests.process.flows.http_service import HttpService
from tests.process.flows.keys import key_of
from tests.process.flows.remote import RECEIVE, messages, post
from tests.process.flows.shop import Shop

ECHO = {"op": "translate", "value": {"of": {"$": "/number"}}}
SWITCH = {
    "op": "switch",
    "on": {"$": "/name"},
    # Fails the message: no text has such a member.
    "cases": [{"equals": ["X"], "operators": [{**ECHO, "value": {"of": {"$": "/name/x"}}}]}],
    "default": [ECHO],
}


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_result_is_sent_to_the_webhook(
    shop: Shop, remote: HttpService, ordered: bool
) -> None:
    results = {"webhook": f"{remote.url}/fail/0/hook?token=1"}
    flow = await shop.create([RECEIVE, SWITCH], ordered=ordered, results=results)
    tickets = await shop.tickets(flow, messages("AXB"))
    states = await shop.ended(flow, tickets)
    assert [state["state"] for state in states] == ["done", "failed", "done"]
    received = [(request.method, request.target, request.body) for request in remote.received]
    assert received == [
        ("POST", "/fail/0/hook?token=1", {"flow": flow, "ticket": ticket, "result": {"of": number}})
        for ticket, number in ((tickets[0], "m1"), (tickets[2], "m3"))
    ]
    assert len({request.key for request in remote.received}) == 2
    outbound = (await shop.report(flow))["outbound_plan"]
    assert outbound == [{"op": "deliver", "operator": "/results/webhook", "cost": "linear"}]


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_result_that_cannot_be_delivered_becomes_a_dead_letter(
    shop: Shop, remote: HttpService, ordered: bool
) -> None:
    results = {"webhook": f"{remote.url}/fail/{MAX_ATTEMPTS}/hook"}
    plan = [RECEIVE, post(f"{remote.url}/fail/0/orders")]
    flow = await shop.create(plan, ordered=ordered, results=results)
    tickets = await shop.tickets(flow, messages("AB"))
    states = await shop.ended(flow, tickets)
    assert [state["state"] for state in states] == ["failed", "done"]
    assert "500" in states[0]["error"]["detail"]
    answer = await shop.client.post(f"message-flows/{flow}/replay")
    assert answer.json() == {"replayed": 1, "expired": 0}
    await shop.ended(flow, tickets)
    hooks = remote.to(f"/fail/{MAX_ATTEMPTS}/hook")
    keys = [request.key for request in hooks if request.body["ticket"] == tickets[0]]
    assert (len(keys), len(set(keys))) == (MAX_ATTEMPTS + 1, 1)


@pytest.mark.parametrize(
    ("results", "pointer"),
    [
        ({}, "/results/webhook"),
        ({"webhook": "http://h/", "class": "orders"}, "/results/class"),
        ({"webhook": "http://h/{name}"}, "/results/webhook"),
        ({"webhook": "https://stock.example/"}, "/results/webhook"),
        ("http://h/", "/results"),
    ],
)
async def test_a_wrong_webhook_is_refused(shop: Shop, results: Any, pointer: str) -> None:
    flow = {"plan": [RECEIVE, ECHO], "latency_s": 10, "results": results}
    answer = await shop.client.post("message-flows", json=flow)
    assert answer.status_code == 400
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]


async def page(shop: Shop, flow: str, **parameters: int | str) -> dict[str, Any]:
    answer = await shop.client.get(f"message-flows/{flow}/results", params=parameters)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_ended_messages_are_read_in_pages(shop: Shop) -> None:
    flow = await shop.create([RECEIVE, SWITCH], ordered=True)
    assert await page(shop, flow) == {"items": [], "position": "0"}
    tickets = await shop.tickets(flow, messages("AXB"))
    states = await shop.ended(flow, tickets)
    all_results = await page(shop, flow)
    last = all_results["position"]
    assert (all_results["items"], last[:2]) == (states, "3-")
    first = await page(shop, flow, limit=2)
    assert (first["items"], first["position"][:2]) == (states[:2], "2-")
    for after in (first["position"], 2):
        assert await page(shop, flow, after=after) == {"items": states[2:], "position": last}
    for after in (last, 3):
        assert await page(shop, flow, after=after) == {"items": [], "position": last}


async def test_results_that_are_not_known_any_more_are_gone(shop: Shop) -> None:
    flow = await shop.create([RECEIVE, ECHO])
    await shop.ended(flow, await shop.tickets(flow, messages("ABC")))
    key = FlowKey(shop.service.mediator.data.model.databases[shop.database].id, flow)
    # As expiry would.
    await shop.coordination.redis.xtrim(key_of(key, "results"), maxlen=1, approximate=False)
    last = (await page(shop, flow))["position"]
    digest = last.partition("-")[2]
    other = f"3-{int(digest, 16) ^ 1:016x}"
    for after in ("0", "1", "4", other):
        answer = await shop.client.get(f"message-flows/{flow}/results?after={after}")
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/gone")
    assert len((await page(shop, flow, after=2))["items"]) == 1


async def test_results_are_followed_and_the_stream_is_resumed(shop: Shop) -> None:
    flow = await shop.create([RECEIVE, SWITCH], ordered=True)
    tickets = await shop.tickets(flow, messages("AX"))
    await shop.ended(flow, tickets)
    following = asyncio.create_task(shop.events(flow, 4))
    tickets += await shop.tickets(flow, messages("BX"))
    states = await shop.ended(flow, tickets)
    assert await following == states
    assert await shop.events(flow, 4, (b"last-event-id", b"1")) == states[1:]


@pytest.mark.parametrize("count", [0, 1])
async def test_a_stream_ends_with_its_flow(shop: Shop, count: int) -> None:
    flow = await shop.create([RECEIVE, ECHO])
    if count:
        await shop.ended(flow, await shop.tickets(flow, messages("A")))
    started = asyncio.Event()
    following = asyncio.create_task(shop.events(flow, count + 1, started=started))
    await started.wait()
    assert (await shop.client.delete(f"message-flows/{flow}")).status_code == 204
    assert len(await following) == count


@pytest.mark.parametrize("wrong", ["x", "-1", "1" * 16, "1-", "1-12", "1-" + "g" * 16])
async def test_an_invalid_id_is_refused(shop: Shop, wrong: str) -> None:
    flow = await shop.create([RECEIVE, ECHO])
    path = f"message-flows/{flow}/results"
    answer = await shop.client.get(path, params={"after": wrong})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "after")
    headers = {"Last-Event-ID": wrong}
    answer = await shop.client.get(path, headers=headers)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "Last-Event-ID")
