"""A shop over three systems, whose views are read over HTTP and compared with full evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.event_streams import read_events
from tests.process.service import Service, field_on, service

CLASSES: dict[str, Any] = {
    "customers": {"fields": {"name": field_on("mongo"), "city": field_on("postgres")}},
    "orders": {
        "fields": {
            "customer": field_on("postgres", "reference", to="customers"),
            "amount": field_on("redis", "integer", group="amounts"),
            "price": field_on("mongo", "decimal", group="prices"),
        }
    },
}
TOTALS: dict[str, Any] = {
    "class": "orders",
    "join": {"as": "buyer", "reference": "customer"},
    "aggregate": {
        "group": ["buyer.city"],
        "compute": {"n": {"count": "*"}, "most": {"max": "amount"}, "paid": {"sum": "price"}},
    },
}


@dataclass
class Follower:
    """A client of a view: the result that it has read, and every delta since."""

    shop: Shop
    view: str
    rows: Counter[bytes] = field(default_factory=Counter)
    delta: str = ""

    async def start(self) -> None:
        result = await self.shop.result(self.view)
        self.rows = count_rows(result["items"])
        self.delta = result["delta"]

    async def poll(self) -> None:
        """Apply one page of deltas."""
        answer = await self.shop.client.get(
            f"incremental-views/{self.view}/deltas", params={"after": self.delta, "limit": 3}
        )
        assert answer.status_code == 200, answer.text
        page = answer.json()
        for delta in page["deltas"]:
            self.rows.update(count_rows(delta["rows"]))
            assert min(self.rows.values(), default=0) >= 0
            self.rows = +self.rows
        self.delta = page["delta"]


@dataclass
class Shop:
    service: Service
    database: str
    api: DataApi
    client: httpx.AsyncClient

    async def create(self, document: dict[str, Any]) -> str:
        answer = await self.client.post("incremental-views", json=document)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def ready(self, document: dict[str, Any]) -> str:
        """Create a view, and wait until it is built."""
        view = await self.create(document)
        await eventually(lambda: self.has_state(view, "ready"))
        return view

    async def has_state(self, view: str, state: str) -> bool:
        answer = await self.client.get(f"incremental-views/{view}")
        return bool(answer.status_code == 200 and answer.json()["state"] == state)

    async def result(self, view: str) -> dict[str, Any]:
        answer = await self.client.get(f"incremental-views/{view}/result")
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def rows(self, view: str) -> list[tuple[dict[str, Any], int]]:
        items = (await self.result(view))["items"]
        return sorted(((i["row"], i["count"]) for i in items), key=orjson.dumps)

    async def wait_for_rows(self, view: str, *expected: tuple[dict[str, Any], int]) -> None:
        async def are_equal() -> bool:
            rows = await self.rows(view)
            return rows == sorted(expected, key=orjson.dumps)

        await eventually(are_equal)

    async def events(self, view: str, after: str, last: str) -> list[dict[str, Any]]:
        """Read server-sent events after a delta until an event of a type, or a delta, arrives."""
        path = f"/v1/{self.database}/incremental-views/{view}/deltas"
        return await read_events(self.api, path, last, (b"last-event-id", after.encode()))

    async def write(self, class_name: str, id_: str, **values: Any) -> None:
        answer = await self.client.put(f"{class_name}/{id_}", json=values)
        assert answer.status_code < 300, answer.text

    async def delete(self, class_name: str, id_: str) -> None:
        answer = await self.client.delete(f"{class_name}/{id_}")
        assert answer.status_code < 300, answer.text

    async def totals(self) -> Counter[bytes]:
        """Evaluate `TOTALS` as a query."""
        query = {
            "join": TOTALS["join"],
            "aggregate": TOTALS["aggregate"],
            "filter": {"exists": "buyer.city"},
            "allow_scan": True,
        }
        answer = await self.client.post("orders/query", json=query)
        assert answer.status_code == 200, answer.text
        return Counter(map(_text, answer.json()["items"]))


def count_rows(items: Sequence[dict[str, Any]]) -> Counter[bytes]:
    return Counter({_text(item["row"]): item["count"] for item in items})


def _text(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


@asynccontextmanager
async def shop_on(
    configs: Sequence[SystemConfig], catalogue_url: str, redis_url: str
) -> AsyncIterator[Shop]:
    async with service(configs, catalogue_url, coordination_url=redis_url) as instance:
        await instance.favour()
        database = await instance.put_schema(CLASSES)
        async with shop_in(instance, database) as shop:
            yield shop


@asynccontextmanager
async def shop_in(instance: Service, database: str) -> AsyncIterator[Shop]:
    api = DataApi(
        instance.mediator.data,
        DataOptions(cursor_key=b"key"),
        lambda _: None,
        DataServices(
            subscriptions=instance.mediator.changes.subscriptions,
            views=instance.mediator.incremental_views,
        ),
    )
    base = f"http://localhost/v1/{database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url=base) as client:
        yield Shop(instance, database, api, client)
