"""Incremental views survive a crash of the replica that holds them, at any moment."""

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
    """Writes people continually, on a running replica."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def run(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(PAUSE_S)
            number += 1
            path, body = f"people/p{number % 40}", {"city": f"c{number % 3}", "age": number % 17}
            # The outcome of a write to a killed replica is unknown, here and to the view.
            with suppress(httpx.HTTPError):
                if number % 5 == 0:
                    await self.client.delete(path)
                else:
                    await self.client.put(path, json=body)


@dataclass
class Follower:
    """Adds up deltas to a result; no count ever falls below zero."""

    path: str
    rows: Counter[bytes]
    delta: str

    async def poll(self, client: httpx.AsyncClient) -> bool:
        """Apply a page of deltas; return whether it had any."""
        query: dict[str, str | int] = {"after": self.delta, "limit": 1000, "wait": 1}
        response = await client.get(f"{self.path}/deltas", params=query)
        assert response.status_code == 200, response.text
        page = response.json()
        for delta in page["deltas"]:
            self.rows.update(_count_rows(delta["rows"]))
            assert min(self.rows.values(), default=0) >= 0
            self.rows = +self.rows
        self.delta = page["delta"]
        return bool(page["deltas"])


async def test_a_killed_holder_changes_nothing_but_latency(replicas: list[Service]) -> None:
    """Deltas add up to the result, each counted once, whichever replica produced them.

    The replicas are killed in turn, so one of the two kills hits the holder.
    """
    await _state_metrics(replicas[0])
    await replicas[0].put_schema("town", CLASSES)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"{replica.data}/v1/town/", timeout=60)
            )
            for replica in replicas
        ]
        follower = await _create_view(clients[0])
        writer = Writer(clients[0])
        writer_task = asyncio.create_task(writer.run())
        try:
            for number in range(KILLS):
                victim, survivor = replicas[number % 2], clients[(number + 1) % 2]
                writer.client = survivor
                await victim.kill()
                await eventually(partial(follower.poll, survivor))
                await victim.start()
                await eventually(partial(_is_up, clients[number % 2]))
        finally:
            await end([writer_task])
        client = clients[0]

        async def has_followed() -> bool:
            # Writes in flight at the end can still arrive.
            expected = await _query(client)
            await follower.poll(client)
            result = (await client.get(f"{follower.path}/result")).json()
            return follower.rows == expected == _count_rows(result["items"])

        await eventually(has_followed)


async def _create_view(client: httpx.AsyncClient) -> Follower:
    for number in range(3):
        response = await client.put(f"cities/c{number}", json={"name": f"city {number}"})
        assert response.status_code < 300, response.text
    response = await client.post("incremental-views", json=VIEW)
    assert response.status_code == 201, response.text
    path = f"incremental-views/{response.json()['id']}"
    await eventually(partial(_is_ready, client, path))
    result = (await client.get(f"{path}/result")).json()
    return Follower(path, _count_rows(result["items"]), result["delta"])


async def _is_up(client: httpx.AsyncClient) -> bool:
    with suppress(httpx.HTTPError):
        return (await client.get("cities/c0")).status_code == 200
    return False


async def _query(client: httpx.AsyncClient) -> Counter[bytes]:
    query = {**VIEW, "filter": {"exists": "home.name"}, "allow_scan": True}
    del query["class"]
    response = await client.post("people/query", json=query)
    assert response.status_code == 200, response.text
    return Counter(map(_encode, response.json()["items"]))


async def _is_ready(client: httpx.AsyncClient, path: str) -> bool:
    return bool((await client.get(path)).json()["state"] == "ready")


def _count_rows(items: list[dict[str, object]]) -> Counter[bytes]:
    return Counter({_encode(item["row"]): int(str(item["count"])) for item in items})


def _encode(row: object) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


async def _state_metrics(service: Service) -> None:
    """State metrics of the two systems."""
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
