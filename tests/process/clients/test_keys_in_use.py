"""The clients wait for a write that the service still works on when its connection is lost."""

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
from tests.process.clients.both import KINDS, Kind, opened
from tests.process.clients.gateway import Gateway, gateway
from tests.process.clients.node import in_node
from tests.process.data.interposed_plane import interposed
from tests.process.service import Service, field_on

PROGRAM = Path(__file__).parent / "js" / "add_stock.mjs"
OBJECTS = 3
MORE_THAN_ATTEMPTS = 5


class Held:
    """An API whose writes of many objects wait until they are released.

    Attributes:
        between: The gateway before it.
        reached: A write waits.
        released: Writes are executed.
        refusals: How often a key was in use.
    """

    between: Gateway

    def __init__(self, mediator: Service, database: str) -> None:
        self.database = database
        self.reached, self.released = asyncio.Event(), asyncio.Event()
        self.refusals = 0
        plane = interposed(mediator.mediator.data, self._hold)
        self._api = DataApi(plane, DataOptions(cursor_key=b"key"), lambda _: None)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: MutableMapping[str, Any]) -> None:
            self.refusals += message.get("status") == 409
            await send(message)

        await self._api(scope, receive, counted)

    async def _hold(self) -> None:
        self.reached.set()
        await self.released.wait()


@pytest.fixture
async def held(mediator: Service) -> AsyncIterator[Held]:
    fields = {"stock": field_on("redis", "integer", default=0)}
    database = await mediator.put_schema({"products": {"fields": fields}})
    for number in range(OBJECTS):
        await mediator.create(database, "products", f"p{number}")
    held = Held(mediator, database)
    async with served(held) as url, gateway(url) as held.between:
        yield held
        held.released.set()


async def by_python(kind: Kind, held: Held) -> int:
    async with opened(kind, held.between.url, held.database) as shop:
        return (await shop.update_where("products", "all", {"stock": {"inc": 1}})).written


async def by_node(held: Held) -> int:
    environment = {"PORTOLAN_DATA": held.between.url, "PORTOLAN_DATABASE": held.database}
    [line] = await in_node(str(PROGRAM), **environment)
    return int(json.loads(line)["written"])


WRITERS: dict[str, Callable[[Held], Awaitable[int]]] = {
    "node": by_node,
    **{kind: partial(by_python, kind) for kind in KINDS},
}


@pytest.mark.parametrize("writer", WRITERS)
async def test_a_write_that_is_worked_on_is_waited_for(
    held: Held, mediator: Service, writer: str
) -> None:
    writing = asyncio.ensure_future(WRITERS[writer](held))
    await until(lambda: held.reached.is_set() or writing.done())
    held.between.cut()
    await until(lambda: held.refusals >= MORE_THAN_ATTEMPTS or writing.done())
    held.released.set()
    assert await writing == OBJECTS
    assert held.refusals >= MORE_THAN_ATTEMPTS
    for number in range(OBJECTS):
        values = await mediator.values(held.database, "products", f"p{number}")
        assert values is not None
        assert values["stock"] == 1
