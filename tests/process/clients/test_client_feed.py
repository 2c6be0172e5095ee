"""The change feed in both Python clients, from a position on."""

from __future__ import annotations

import pytest

from portolan_client import (
    BEGINNING,
    AsyncAdminClient,
    AsyncClient,
    Gone,
    Invalid,
    NotFound,
)
from tests.faults.service import Service
from tests.process.clients.both import follow, next_change
from tests.process.commands.shop import SHOP


async def test_changes_are_followed_from_a_position_on(shop: AsyncClient) -> None:
    await shop.put("products", "lamp", {"name": "Lamp"})
    await shop.put("customers", "ada", {"name": "Ada"})
    await shop.patch("customers", "ada", {"name": "Augusta"})
    await shop.delete("customers", "ada")
    async with follow(shop, class_name="customers", after=BEGINNING) as changes:
        customer_changes = [await next_change(changes) for _ in range(3)]
    assert [(change.kind, change.before, change.after) for change in customer_changes] == [
        ("create", None, {"name": "Ada"}),
        ("update", {"name": "Ada"}, {"name": "Augusta"}),
        ("delete", {"name": "Augusta"}, None),
    ]
    assert {(change.class_name, change.object_id, change.group) for change in customer_changes} == {
        ("customers", "ada", "main")
    }
    assert customer_changes[0].version < customer_changes[1].version < customer_changes[2].version
    assert customer_changes[0].time.tzinfo is not None
    async with follow(shop, after=customer_changes[0].position) as changes:
        while (change := await next_change(changes)).class_name != "customers":
            pass
        assert change == customer_changes[1]


async def test_a_position_that_is_gone_is_an_error(
    started: Service, shop: AsyncClient, database: str
) -> None:
    await shop.put("customers", "ada", {"name": "Ada"})
    async with follow(shop, after=BEGINNING) as changes:
        position = (await next_change(changes)).position
    async with AsyncAdminClient(started.admin) as admin:
        await admin.drop_database(database)
        await admin.put_schema(database, SHOP)
    async with follow(shop, after=position) as changes:
        with pytest.raises(Gone):
            await next_change(changes)


async def test_an_invalid_feed_request_is_refused_immediately(shop: AsyncClient) -> None:
    for error, options in ((NotFound, {"class_name": "toys"}), (Invalid, {"after": "x"})):
        async with follow(shop, **options) as changes:
            with pytest.raises(error):
                await next_change(changes)
