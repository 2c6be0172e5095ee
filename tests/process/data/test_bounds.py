"""A stock that never falls below zero, on every store, and within a joint write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.base.errors import MediatorError, OperatorRefused
from mediator.control.port import ChangeOptions
from mediator.model.operations import Update
from mediator.model.operators import Operator, OperatorCall
from tests.process.service import Service, field_on, unique

STOCK, CUSTOMERS = 10, 40
BELOW = "the result is below the field's minimum"


def purchase(database: str, values: dict[str, Any]) -> Update:
    decrement = (OperatorCall("stock", Operator.INC, -1),)
    return Update(database, "products", "lamp", unique(), values=values, operators=decrement)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("system", ["redis", "postgres", "mongo"])
@pytest.mark.parametrize("also", [None, "redis", "postgres", "mongo"])
async def test_no_more_is_sold_than_there_is(
    mediator: Service, system: str, also: str | None
) -> None:
    """`also` has a second field that each purchase sets; another system makes the write joint."""
    stock = field_on(system, type="integer", minimum=0, maximum=STOCK, group="stock")
    buyer = field_on(also or system, type="string", group="buyer")
    database = await mediator.put_schema({"products": {"fields": {"stock": stock, "buyer": buyer}}})
    await mediator.create(database, "products", "lamp", stock=STOCK, buyer="")

    async def buy(number: int) -> bool:
        values = {"buyer": f"c{number}"} if also else {}
        try:
            await mediator.mediator.data.write(purchase(database, values))
        except OperatorRefused as error:
            [location] = error.locations
            assert (location.pointer, location.detail) == ("/stock", BELOW)
            return False
        return True

    sold = sum(await asyncio.gather(*map(buy, range(CUSTOMERS))))
    assert sold == STOCK
    remaining = await mediator.values(database, "products", "lamp")
    assert remaining is not None
    assert remaining["stock"] == 0
    batch = [purchase(database, {}), purchase(database, {})]
    results = await mediator.mediator.data.batch(batch)
    assert [type(result) for result in results] == [OperatorRefused] * 2
    assert all(isinstance(result, MediatorError) for result in results)


async def test_bounds_that_are_set_later_bind_later_writes(
    mediator: Service,
) -> None:
    def classes(system: str, **bounds: Any) -> dict[str, Any]:
        fields = {"stock": field_on(system, type="integer", **bounds)}
        return {"products": {"fields": fields}}

    async def buy_one(database: str) -> object:
        return (await mediator.mediator.data.batch([purchase(database, {})]))[0]

    for system in ("redis", "postgres", "mongo"):
        database = await mediator.put_schema(classes(system))
        await mediator.create(database, "products", "lamp", stock=-5)
        assert not isinstance(await buy_one(database), MediatorError)
        bounded = {"classes": classes(system, minimum=0)}
        unchecked = ChangeOptions(unchecked=True)
        await mediator.mediator.control.set_schema(database, bounded, options=unchecked)
        assert isinstance(await buy_one(database), OperatorRefused)
        assert await mediator.values(database, "products", "lamp") == {"stock": -6}
        await mediator.mediator.control.set_schema(database, {"classes": classes(system)})
        assert not isinstance(await buy_one(database), MediatorError)
