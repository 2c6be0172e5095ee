"""Standing queries survive a crash of the replica that executes them, at any moment."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import count
from typing import Any

import httpx

from mediator.base.concurrency import end
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.service import field_on

QUERY = {
    "relations": ["left", "right"],
    "predicates": [["left.k", "right.k"]],
    "window_s": 600,
    "lateness_s": 600,
    "into": {"class": "matches", "values": {"n": "right.n"}},
}
CLASSES = {
    "things": {"fields": {"name": field_on("redis")}},
    "matches": {"fields": {"n": field_on("postgres", "integer")}},
}
KEYS = 5
KILLS = 2
PAUSE_S = 0.02


class Sender:
    """Sends batches continually to a running replica, each exactly once."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def run(self) -> None:
        for number in count():
            await asyncio.sleep(PAUSE_S)
            tuples = [{"time_s": 1000, "values": {"k": number % KEYS, "n": number}}]
            headers = {"idempotency-key": f"batch-{number}"}
            while True:
                # Retry with the same key until acknowledged.
                with suppress(httpx.HTTPError):
                    path = "event-streams/right/tuples"
                    response = await self.client.post(
                        path, json={"tuples": tuples}, headers=headers
                    )
                    if response.status_code == 200:
                        break
                await asyncio.sleep(PAUSE_S)


async def test_a_killed_holder_loses_no_result_and_doubles_none(replicas: list[Service]) -> None:
    """Each acknowledged tuple has one result, whose object is written once: it joins one tuple.

    The replicas are killed in turn, so one of the two kills hits the holder.
    """
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"{replica.data}/v1/town/", timeout=60)
            )
            for replica in replicas
        ]
        await replicas[0].put_schema("town", CLASSES)
        await eventually(partial(_is_up, clients[1]))
        path = await _create_query(clients[0])
        sender = Sender(clients[0])
        sender_task = asyncio.create_task(sender.run())
        try:
            for number in range(KILLS):
                victim, survivor = replicas[number % 2], clients[(number + 1) % 2]
                sender.client = survivor
                before = (await _page(survivor, path))["after"]
                await victim.kill()
                await eventually(partial(_has_advanced, survivor, path, before))
                await victim.start()
                await eventually(partial(_is_up, clients[number % 2]))
        finally:
            await end([sender_task])
        client = clients[0]
        sent: list[Any] = []
        results: list[Any] = []

        async def are_complete() -> bool:
            # Tuples in flight at the end can still arrive.
            sent[:] = await _all(client, "event-streams/right/tuples", "tuples", "position")
            results[:] = await _all(client, path, "results", "after")
            return len(results) == len(sent)

        await eventually(are_complete)
        expected = Counter(tuple_["values"]["n"] for tuple_ in sent)
        assert max(expected.values()) == 1
        assert [result["id"] for result in results] == list(range(1, len(sent) + 1))
        assert Counter(result["tuples"]["right"]["n"] for result in results) == expected
        query = path.split("/")[1]
        objects = {f"{query}-{result['id']}": result["tuples"]["right"]["n"] for result in results}
        changes: list[Any] = []

        async def are_stored() -> bool:
            feed = await _all(client, "changes", "changes", "position", "beginning")
            changes[:] = [change for change in feed if change["class"] == "matches"]
            return len({change["object"] for change in changes}) == len(objects)

        await eventually(are_stored)
        assert {change["object"]: change["after"]["n"] for change in changes} == objects
        assert len(changes) == len(objects)


async def _create_query(client: httpx.AsyncClient) -> str:
    for name in ("left", "right"):
        body = {"name": name, "attributes": {"k": "integer", "n": "integer"}}
        response = await client.post("event-streams", json=body)
        assert response.status_code == 201, response.text
    tuples = [{"time_s": 1000, "values": {"k": number}} for number in range(KEYS)]
    response = await client.post("event-streams/left/tuples", json={"tuples": tuples})
    assert response.status_code == 200, response.text
    response = await client.post("standing-queries", json=QUERY)
    assert response.status_code == 201, response.text
    path = f"standing-queries/{response.json()['id']}"

    async def is_ready() -> bool:
        return bool((await client.get(path)).json()["state"] == "ready")

    await eventually(is_ready)
    return f"{path}/results"


async def _has_advanced(client: httpx.AsyncClient, path: str, before: str) -> bool:
    return bool((await _page(client, path))["after"] != before)


async def _page(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    response = await client.get(path)
    assert response.status_code == 200, response.text
    page: dict[str, Any] = response.json()
    return page


async def _all(
    client: httpx.AsyncClient, path: str, items: str, after: str, position: Any = 0
) -> list[Any]:
    rows: list[Any] = []
    while True:
        response = await client.get(path, params={"after": position, "limit": 1000})
        assert response.status_code == 200, response.text
        page = response.json()
        if not page[items]:
            return rows
        rows += page[items]
        position = page[after]


async def _is_up(client: httpx.AsyncClient) -> bool:
    with suppress(httpx.HTTPError):
        return (await client.get("standing-queries")).status_code == 200
    return False
