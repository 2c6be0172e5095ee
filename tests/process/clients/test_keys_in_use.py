"""The clients wait for a write that still executes after its connection was lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from tests.process.caching.serving import served, until
from tests.process.clients.both import KINDS, Kind, open_client
from tests.process.clients.gateway import Gateway, run_gateway
from tests.process.clients.node import run_node
from tests.process.data.interposed_plane import interposed
from tests.process.service import Service, field_on

PROGRAM = Path(__file__).parent / "js" / "add_stock.mjs"
OBJECTS = 3
MORE_THAN_ATTEMPTS = 5


class PausedApi:
    """An API whose writes of many objects wait until they are released.

    Attributes:
        gateway: The gateway before it.
        reached: Set when a write waits.
        released: Set to let writes execute.
        refusals: The number of refusals because a key was in use.
    """

    gateway: Gateway

    def __init__(self, mediator: Service, database: str) -> None:
        self.database = database
        self.reached, self.released = asyncio.Event(), asyncio.Event()
        self.refusals = 0
        plane = interposed(mediator.mediator.data, self._pause)
        self._api = DataApi(plane, DataOptions(cursor_key=b"key"), lambda _: None)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def count_refusals(message: MutableMapping[str, Any]) -> None:
            self.refusals += message.get("status") == 409
            await send(message)

        await self._api(scope, receive, count_refusals)

    async def _pause(self) -> None:
        self.reached.set()
        await self.released.wait()


@pytest.fixture
async def paused_api(mediator: Service) -> AsyncIterator[PausedApi]:
    fields = {"stock": field_on("redis", "integer", default=0)}
    database = await mediator.put_schema({"products": {"fields": fields}})
    for number in range(OBJECTS):
        await mediator.create(database, "products", f"p{number}")
    paused_api = PausedApi(mediator, database)
    async with served(paused_api) as url, run_gateway(url) as paused_api.gateway:
        yield paused_api
        paused_api.released.set()


async def write_in_python(kind: Kind, paused_api: PausedApi) -> int:
    async with open_client(kind, paused_api.gateway.url, paused_api.database) as shop:
        return (await shop.update_where("products", "all", {"stock": {"inc": 1}})).written


async def write_in_node(paused_api: PausedApi) -> int:
    environment = {
        "PORTOLAN_DATA": paused_api.gateway.url,
        "PORTOLAN_DATABASE": paused_api.database,
    }
    [line] = await run_node(str(PROGRAM), **environment)
    return int(json.loads(line)["written"])


WRITERS: dict[str, Callable[[PausedApi], Awaitable[int]]] = {
    "node": write_in_node,
    **{kind: partial(write_in_python, kind) for kind in KINDS},
}


@pytest.mark.parametrize("writer", WRITERS)
async def test_clients_wait_for_a_write_in_progress(
    paused_api: PausedApi, mediator: Service, writer: str
) -> None:
    write = asyncio.ensure_future(WRITERS[writer](paused_api))
    await until(lambda: paused_api.reached.is_set() or write.done())
    paused_api.gateway.cut()
    await until(lambda: paused_api.refusals >= MORE_THAN_ATTEMPTS or write.done())
    paused_api.released.set()
    assert await write == OBJECTS
    assert paused_api.refusals >= MORE_THAN_ATTEMPTS
    for number in range(OBJECTS):
        values = await mediator.values(paused_api.database, "products", f"p{number}")
        assert values is not None
        assert values["stock"] == 1
