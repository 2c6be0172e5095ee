"""Streams of the change feed that are pinned to a version: their events and their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from mediator.stores.port import SystemConfig
from tests.process.data.pinned.shop import Shop, goods
from tests.process.service import Service, scratch_catalogue, service

WITHIN_S = 60


@dataclass
class Stream:
    """The received part of a stream.

    Attributes:
        after: The images of objects after each change.
        ended: Set when the service has ended it.
    """

    shop: Shop
    version: int
    after: list[dict[str, Any]] = field(default_factory=list)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        version = str(self.version).encode()
        headers = [(b"accept", b"text/event-stream"), (b"portolan-schema", version)]
        path = f"/v1/{self.shop.database}/changes".encode()
        scope: dict[str, Any] = {"type": "http", "method": "GET", "raw_path": path}
        scope["headers"] = headers
        await self.shop.api(
            {**scope, "query_string": b"after=beginning"}, self._receive, self._send
        )

    async def _receive(self) -> dict[str, Any]:
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            return
        for line in message["body"].splitlines():
            if line.startswith(b"data: "):
                self.after.append(orjson.loads(line.removeprefix(b"data: "))["after"])
                self.arrived.set()
        self.opened.set()
        if not message.get("more_body"):
            self.ended.set()


@asynccontextmanager
async def streaming(shop: Shop, version: int) -> AsyncIterator[Stream]:
    stream = Stream(shop, version)
    task = asyncio.create_task(stream.run())
    try:
        await asyncio.wait_for(stream.opened.wait(), WITHIN_S)
        yield stream
    finally:
        stream.disconnected.set()
        await task


@pytest.fixture
async def shop(
    redis_config: SystemConfig, postgresql_config: SystemConfig, late_replies: None
) -> AsyncIterator[Shop]:
    async with (
        scratch_catalogue(postgresql_config) as url,
        service([redis_config], url, coordination_url=redis_config.url) as running,
    ):
        yield await _renamed(running)


async def _renamed(running: Service) -> Shop:
    shop = Shop.of(running, subscriptions=running.mediator.changes.subscriptions)
    await shop.change(goods("price"))
    await shop.send("PUT", "goods/a", json={"price": 5})
    await shop.change(goods("cost", "more"), "goods.price:cost")
    return shop


async def test_a_stream_has_the_names_of_its_version_until_that_is_retired(shop: Shop) -> None:
    async with streaming(shop, 1) as stream:
        await asyncio.wait_for(stream.arrived.wait(), WITHIN_S)
        assert stream.after == [{"price": 5}]
        stream.arrived.clear()
        await shop.send("PATCH", "goods/a", json={"cost": 6, "more": 7})
        await asyncio.wait_for(stream.arrived.wait(), WITHIN_S)
        assert stream.after == [{"price": 5}, {"price": 6}]
        await shop.service.mediator.control.retire_versions(shop.database, 2)
        await shop.send("PATCH", "goods/a", json={"cost": 8})
        await asyncio.wait_for(stream.ended.wait(), WITHIN_S)
        assert len(stream.after) == 2


async def test_a_stream_ends_with_its_database(shop: Shop) -> None:
    async with streaming(shop, 1) as stream:
        await shop.service.mediator.control.delete_schema(shop.database)
        await asyncio.wait_for(stream.ended.wait(), WITHIN_S)
