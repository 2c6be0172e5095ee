"""A market whose prices are event streams."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.event_streams.port import StreamKey
from mediator.stores.port import SystemConfig
from tests.process.service import Service, field_on, service, unique

ATTRIBUTES: dict[str, Any] = {
    "share": "string",
    "price": "float",
    "volume": "integer",
    "note": None,
}


@dataclass
class Market:
    service: Service
    database: str
    api: DataApi
    client: httpx.AsyncClient

    async def declare(self, **members: Any) -> str:
        """Declare a stream of prices, and return its name."""
        document = {"name": unique("prices"), "attributes": ATTRIBUTES, **members}
        answer = await self.client.post("event-streams", json=document)
        assert answer.status_code == 201, answer.text
        return str(document["name"])

    async def send(self, stream: str, tuples: Sequence[Any], **headers: str) -> httpx.Response:
        body = {"tuples": list(tuples)}
        path = f"event-streams/{stream}/tuples"
        return await self.client.post(path, json=body, headers=headers)

    async def append_prices(self, stream: str, *prices: float) -> dict[str, int]:
        answer = await self.send(stream, [price(value) for value in prices])
        assert answer.status_code == 200, answer.text
        numbers: dict[str, int] = answer.json()
        return numbers

    async def page(self, stream: str, **parameters: Any) -> dict[str, Any]:
        answer = await self.client.get(f"event-streams/{stream}/tuples", params=parameters)
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        return page

    async def prices(self, stream: str, **parameters: Any) -> list[float]:
        page = await self.page(stream, **parameters)
        return [tuple_["values"]["price"] for tuple_ in page["tuples"]]

    def key(self, stream: str) -> StreamKey:
        return StreamKey(self.service.mediator.data.model.databases[self.database].id, stream)


def price(value: float, **values: Any) -> dict[str, Any]:
    return {"time_s": time.time(), "values": {"price": value, **values}}


@asynccontextmanager
async def market_on(
    configs: Sequence[SystemConfig], catalogue_url: str, redis_url: str
) -> AsyncIterator[Market]:
    async with service(configs, catalogue_url, coordination_url=redis_url) as instance:
        await instance.favour()
        database = await instance.put_schema({"shares": {"fields": {"name": field_on("postgres")}}})
        async with market_in(instance, database) as market:
            yield market


@asynccontextmanager
async def market_in(instance: Service, database: str) -> AsyncIterator[Market]:
    options = DataOptions(cursor_key=b"key")
    streams = instance.mediator.event_stream_service
    api = DataApi(
        instance.mediator.data, options, lambda _: None, DataServices(event_streams=streams)
    )
    base = f"http://localhost/v1/{database}/"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url=base) as client:
        yield Market(instance, database, api, client)
