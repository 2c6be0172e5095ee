"""Incremental views survive the death of the replica that holds them, at any moment."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial

import httpx
import orjson

from mediator.base.concurrency import end
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.service import field_on

CLASSES = {
    "cities": {"fields": {"name": field_on("postgres")}},
    "people": {
        "fields": {
            "city": field_on("redis", "reference", to="cities"),
            "age": field_on("redis", "integer"),
        }
    },
}
VIEW = {
    "class": "people",
    "join": {"as": "home", "reference": "city"},
    "aggregate": {"group": ["home.name"], "compute": {"n": {"count": "*"}, "old": {"max": "age"}}},
}
KILLS = 2
PAUSE_S = 0.02


class Writer:
    """Writes people all the time, on whichever replica is there."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def run(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(PAUSE_S)
            number += 1
            person, body = f"people/p{number % 40}", {"city": f"c{number % 3}", "age": number % 17}
            # What becomes of a write whose replica is killed is not known, here or to the view.
            with suppress(httpx.HTTPError):
                if number % 5 == 0:
                    await self.client.delete(person)
                else:
                    await self.client.put(person, json=body)


@dataclass
class Follower:
    """Adds up deltas to a result; no count is ever below zero."""

    path: str
    rows: Counter[bytes]
    delta: str

    async def poll(self, client: httpx.AsyncClient) -> bool:
        """Take over a page of deltas; return whether there was any."""
        query: dict[str, str | int] = {"after": self.delta, "limit": 1000, "wait": 1}
        answer = await client.get(f"{self.path}/deltas", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        for each in page["deltas"]:
            self.rows.update(_counted(each["rows"]))
            assert min(self.rows.values(), default=0) >= 0
            self.rows = +self.rows
        self.delta = page["delta"]
        return bool(page["deltas"])


async def test_a_killed_holder_changes_nothing_but_latency(replicas: list[Service]) -> None:
    """Deltas add up to the result, each counted once, whichever replica made them.

    The replicas are killed in turn, so that at the latest the second one killed is the holder.
    """
    await _favour(replicas[0])
    await replicas[0].put_schema("town", CLASSES)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"{each.data}/v1/town/", timeout=60)
            )
            for each in replicas
        ]
        follower = await _begin(clients[0])
        writer = Writer(clients[0])
        writing = asyncio.create_task(writer.run())
        try:
            for number in range(KILLS):
                victim, survivor = replicas[number % 2], clients[(number + 1) % 2]
                writer.client = survivor
                await victim.kill()
                await eventually(partial(follower.poll, survivor))
                await victim.start()
                await eventually(partial(_is_there, clients[number % 2]))
        finally:
            await end([writing])
        client = clients[0]

        async def has_followed() -> bool:
            # What was under way at the end may still arrive.
            expected = await _evaluated(client)
            await follower.poll(client)
            result = (await client.get(f"{follower.path}/result")).json()
            return follower.rows == expected == _counted(result["items"])

        await eventually(has_followed)


async def _begin(client: httpx.AsyncClient) -> Follower:
    for number in range(3):
        answer = await client.put(f"cities/c{number}", json={"name": f"city {number}"})
        assert answer.status_code < 300, answer.text
    created = await client.post("incremental-views", json=VIEW)
    assert created.status_code == 201, created.text
    path = f"incremental-views/{created.json()['id']}"
    await eventually(partial(_is_ready, client, path))
    result = (await client.get(f"{path}/result")).json()
    return Follower(path, _counted(result["items"]), result["delta"])


async def _is_there(client: httpx.AsyncClient) -> bool:
    with suppress(httpx.HTTPError):
        return (await client.get("cities/c0")).status_code == 200
    return False


async def _evaluated(client: httpx.AsyncClient) -> Counter[bytes]:
    query = {**VIEW, "filter": {"exists": "home.name"}, "allow_scan": True}
    del query["class"]
    answer = await client.post("people/query", json=query)
    assert answer.status_code == 200, answer.text
    return Counter(map(_text, answer.json()["items"]))


async def _is_ready(client: httpx.AsyncClient, path: str) -> bool:
    return bool((await client.get(path)).json()["state"] == "ready")


def _counted(items: list[dict[str, object]]) -> Counter[bytes]:
    return Counter({_text(item["row"]): int(str(item["count"])) for item in items})


def _text(row: object) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


async def _favour(service: Service) -> None:
    """State metrics of the two systems that there are."""
    async with httpx.AsyncClient(base_url=f"{service.admin}/admin/v1/", timeout=60) as admin:
        worst = {"write_throughput": 1.0, "read_latency": 1000.0, "read_throughput": 1.0}
        for name, best in (
            ("redis", {"write_throughput": 1e6}),
            ("postgres", {"read_latency": 1e-6}),
        ):

            async def is_stated(name: str = name, best: dict[str, float] = best) -> bool:
                body = {"metrics": {**worst, **best}}
                return (await admin.patch(f"systems/{name}", json=body)).status_code == 200

            await eventually(is_stated)
