"""`portolan system`: systems are listed, drained, suspended and resumed from the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import orjson
import pytest

from tests.faults.conditions import WITHIN_S
from tests.process.commands.shop import Shop


@pytest.fixture
async def lasting(opened: Shop) -> AsyncIterator[Shop]:
    """A shop that resumes its system at the end, as other tests share it."""
    yield opened
    await opened.run("system", "resume", "redis")


async def test_a_system_is_drained(lasting: Shop) -> None:
    listing = await lasting.run("system", "list")
    [redis] = [line.split() for line in listing.lines if line.startswith("redis")]
    assert redis == ["redis", "redis", "serving", "full"]
    moves = await lasting.run("system", "moves", "redis")
    [stock] = [
        line for line in moves.lines if line.startswith(f"{lasting.database}.products.stock")
    ]
    assert " → " in stock
    result = await lasting.run("system", "drain", "redis")
    assert stock.partition(":")[0] in [line.partition(":")[0] for line in result.lines]
    systems = orjson.loads((await lasting.run("system", "list", "--json")).stdout)
    assert {system["name"]: system["use"] for system in systems}["redis"] == "draining"
    assert (await lasting.call("system", "drain", "nowhere")).exit_code == 1
    assert (await lasting.call("system", "drain", "../x")).exit_code == 2


async def test_a_system_is_suspended_and_resumed(lasting: Shop) -> None:
    await lasting.put("products", "lamp", {"name": "Lamp", "price": "1", "stock": 3})
    url = f"{lasting.service.data}/v1/{lasting.database}/products/lamp?fields=stock"
    async with httpx.AsyncClient(timeout=WITHIN_S) as client:
        unconfirmed = await lasting.call("system", "suspend", "redis")
        assert unconfirmed.exit_code == 2
        assert (await client.get(url)).status_code == 200
        result = await lasting.run("system", "suspend", "redis", "--yes")
        assert f"{lasting.database}.products.stock" in result.lines
        refused = await client.get(url)
        assert (refused.status_code, refused.json()["system"]) == (503, "redis")
        assert "retry-after" in refused.headers
        await lasting.run("system", "resume", "redis")
        assert (await client.get(url)).json() == {"id": "lamp", "stock": 3}
