"""Limits of tenants on deliveries of standing queries into a class: results wait for room."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.faults.conditions import eventually
from tests.process.access.bounded import Bounded
from tests.process.caching.newspaper import assert_problem

QUERY: dict[str, Any] = {
    "relations": ["left", "right"],
    "predicates": [["left.title", "right.title"]],
    "window_s": 10,
    "into": {"class": "notes", "values": {"title": "right.title"}},
}


async def send(bounded: Bounded, stream: str, *titles: str) -> None:
    tuples = [{"time_s": 1, "values": {"title": title}} for title in titles]
    path = f"event-streams/{stream}/tuples"
    answer = await bounded.request("POST", path, json={"tuples": tuples})
    assert answer.status_code == 200, answer.text


async def has(bounded: Bounded, path: str, **members: Any) -> bool:
    answer = await bounded.request("GET", path)
    return answer.status_code == 200 and members.items() <= answer.json().items()


async def test_results_wait_until_their_tenant_has_room(bounded: Bounded) -> None:
    for name in ("left", "right"):
        stream = {"name": name, "attributes": {"title": "string"}}
        answer = await bounded.request("POST", "event-streams", json=stream)
        assert answer.status_code == 201, answer.text
    await bounded.limit(objects=1)
    created = await bounded.request("POST", "standing-queries", json=QUERY)
    assert created.status_code == 201, created.text
    query = created.json()["id"]
    path = f"standing-queries/{query}"
    await eventually(partial(has, bounded, path, state="ready"))
    await send(bounded, "left", "a")
    await send(bounded, "right", "a", "a")
    await eventually(partial(has, bounded, f"notes/{query}-1"))

    async def is_full() -> bool:
        return bool(await bounded.refusals("objects"))

    await eventually(is_full)
    assert not await has(bounded, f"notes/{query}-2")
    refused = await bounded.request("POST", "standing-queries", json=QUERY)
    assert assert_problem(refused, 507, "insufficient-storage")["limit"] == "objects"
    await bounded.limit(objects=2)
    await eventually(partial(has, bounded, f"notes/{query}-2"))
    assert (await bounded.request("DELETE", path)).status_code == 204
