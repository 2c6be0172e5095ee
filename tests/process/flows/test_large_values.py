"""Messages, responses and plans whose values are too large or deep: only their message fails."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from mediator.flows.message_values import MAX_BYTES, MAX_DEPTH
from tests.process.flows.http_service import HttpService
from tests.process.flows.remote import RECEIVE, get, messages, post
from tests.process.flows.shop import Shop

DOUBLE = {"op": "assign", "to": "name", "value": [{"$": "/name"}, {"$": "/name"}]}
DOUBLINGS = 25
"""Enough to exceed the limit of a message, and not the memory of a process."""

EXPLODE = {
    "op": "switch",
    "on": {"$": "/name"},
    "cases": [{"equals": ["X"], "operators": [DOUBLE] * DOUBLINGS}],
    "default": [],
}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("is_outbound", [True, False])
async def test_a_plan_whose_values_explode_fails_its_messages_alone(
    shop: Shop, remote: HttpService, ordered: bool, is_outbound: bool
) -> None:
    outbound = [post(f"{remote.url}/fail/0/orders")] if is_outbound else []
    flow = await shop.create([RECEIVE, *outbound, EXPLODE], ordered=ordered)
    states = await shop.ended(flow, await shop.tickets(flow, messages("AXB")))
    assert [state["state"] for state in states] == ["done", "failed", "done"]
    assert str(MAX_BYTES) in states[1]["error"]["detail"]
    assert states[1]["error"]["errors"][0]["pointer"] == "/name"
    assert len(remote.received) == (3 if is_outbound else 0)


def nested(levels: int) -> Any:
    return orjson.loads(b"[" * levels + b"]" * levels)


async def test_a_message_that_is_too_deep_is_refused_with_its_location(shop: Shop) -> None:
    receive = {"op": "receive", "attributes": {"deep": "json"}}
    flow = await shop.create([receive, {"op": "assign", "to": "is", "value": 1}], ordered=True)
    path = f"message-flows/{flow}/messages"
    for levels in (MAX_DEPTH + 1, 253, 1_000):
        deep = b"[" * levels + b"]" * levels
        body = b'{"messages": [{"deep": 1}, {"deep": ' + deep + b"}]}"
        headers = {"content-type": "application/json"}
        answer = await shop.client.post(path, content=body, headers=headers)
        assert answer.status_code == 400, answer.text
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/messages/1/deep"]
    (state,) = await shop.ended(flow, await shop.tickets(flow, [{"deep": nested(MAX_DEPTH)}]))
    assert state["result"]["deep"] == nested(MAX_DEPTH)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("invoke", [get, post])
async def test_a_response_that_is_too_deep_fails_its_message_and_is_not_requested_again(
    shop: Shop, remote: HttpService, ordered: bool, invoke: Any
) -> None:
    flow = await shop.create([RECEIVE, invoke(f"{remote.url}/nested/{{name}}")], ordered=ordered)
    levels = [MAX_DEPTH, MAX_DEPTH + 1, 255, 1_000, 1]
    states = await shop.ended(flow, await shop.tickets(flow, messages([str(n) for n in levels])))
    assert [state["state"] for state in states] == ["done", "failed", "failed", "failed", "done"]
    assert len(remote.received) == len(levels)
    letters = (await shop.client.get(f"message-flows/{flow}/dead-letters")).json()["items"]
    assert [letter["message"]["name"] for letter in letters] == ["65", "255", "1000"]


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_response_without_a_name_can_have_any_depth(
    shop: Shop, remote: HttpService, ordered: bool
) -> None:
    write = {**post(f"{remote.url}/nested/1000")}
    del write["to"]
    flow = await shop.create([RECEIVE, write], ordered=ordered)
    states = await shop.ended(flow, await shop.tickets(flow, messages("A")))
    assert [state["state"] for state in states] == ["done"]
