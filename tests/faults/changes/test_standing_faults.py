"""Standing queries survive the death of the replica that executes them, at any moment."""

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
    """Sends batches all the time, on whichever replica is there, each once."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def run(self) -> None:
        for number in count():
            await asyncio.sleep(PAUSE_S)
            tuples = [{"time_s": 1000, "values": {"k": number % KEYS, "n": number}}]
            headers = {"idempotency-key": f"batch-{number}"}
            while True:
                # It is sent again until it is acknowledged, under the same key.
                with suppress(httpx.HTTPError):
                    path = "event-streams/right/tuples"
                    answer = await self.client.post(path, json={"tuples": tuples}, headers=headers)
                    if answer.status_code == 200:
                        break
                await asyncio.sleep(PAUSE_S)


async def test_a_killed_holder_loses_no_result_and_doubles_none(replicas: list[Service]) -> None:
    """Each tuple joins with one: so there is one result of each that was acknowledged.

    And there is one object of each result, which was written once.

    The replicas are killed in turn, so that at the latest the second one killed is the holder.
    """
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"{each.data}/v1/town/", timeout=60)
            )
            for each in replicas
        ]
        await replicas[0].put_schema("town", CLASSES)
        await eventually(partial(_is_there, clients[1]))
        path = await _begin(clients[0])
        sender = Sender(clients[0])
        sending = asyncio.create_task(sender.run())
        try:
            for number in range(KILLS):
                victim, survivor = replicas[number % 2], clients[(number + 1) % 2]
                sender.client = survivor
                before = (await _page(survivor, path))["after"]
                await victim.kill()
                await eventually(partial(_goes_on, survivor, path, before))
                await victim.start()
                await eventually(partial(_is_there, clients[number % 2]))
        finally:
            await end([sending])
        client = clients[0]
        sent: list[Any] = []
        found: list[Any] = []

        async def are_there() -> bool:
            # What was under way at the end may still arrive.
            sent[:] = await _all(client, "event-streams/right/tuples", "tuples", "position")
            found[:] = await _all(client, path, "results", "after")
            return len(found) == len(sent)

        await eventually(are_there)
        expected = Counter(each["values"]["n"] for each in sent)
        assert max(expected.values()) == 1
        assert [each["id"] for each in found] == list(range(1, len(sent) + 1))
        assert Counter(each["tuples"]["right"]["n"] for each in found) == expected
        query = path.split("/")[1]
        objects = {f"{query}-{each['id']}": each["tuples"]["right"]["n"] for each in found}
        written: list[Any] = []

        async def are_written() -> bool:
            feed = await _all(client, "changes", "changes", "position", "beginning")
            written[:] = [each for each in feed if each["class"] == "matches"]
            return len({each["object"] for each in written}) == len(objects)

        await eventually(are_written)
        assert {each["object"]: each["after"]["n"] for each in written} == objects
        assert len(written) == len(objects)


async def _begin(client: httpx.AsyncClient) -> str:
    for name in ("left", "right"):
        body = {"name": name, "attributes": {"k": "integer", "n": "integer"}}
        answer = await client.post("event-streams", json=body)
        assert answer.status_code == 201, answer.text
    tuples = [{"time_s": 1000, "values": {"k": number}} for number in range(KEYS)]
    answer = await client.post("event-streams/left/tuples", json={"tuples": tuples})
    assert answer.status_code == 200, answer.text
    created = await client.post("standing-queries", json=QUERY)
    assert created.status_code == 201, created.text
    path = f"standing-queries/{created.json()['id']}"

    async def is_ready() -> bool:
        return bool((await client.get(path)).json()["state"] == "ready")

    await eventually(is_ready)
    return f"{path}/results"


async def _goes_on(client: httpx.AsyncClient, path: str, before: str) -> bool:
    return bool((await _page(client, path))["after"] != before)


async def _page(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


async def _all(
    client: httpx.AsyncClient, path: str, items: str, after: str, position: Any = 0
) -> list[Any]:
    found: list[Any] = []
    while True:
        answer = await client.get(path, params={"after": position, "limit": 1000})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        if not page[items]:
            return found
        found += page[items]
        position = page[after]


async def _is_there(client: httpx.AsyncClient) -> bool:
    with suppress(httpx.HTTPError):
        return (await client.get("standing-queries")).status_code == 200
    return False
