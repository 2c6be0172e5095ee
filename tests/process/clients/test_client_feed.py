"""The change feed by both Python clients: from a position on, whatever happens in between."""

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
from tests.process.clients.both import following, next_of
from tests.process.commands.shop import SHOP


async def test_changes_are_followed_from_a_position_on(shop: AsyncClient) -> None:
    await shop.put("products", "lamp", {"name": "Lamp"})
    await shop.put("customers", "ada", {"name": "Ada"})
    await shop.patch("customers", "ada", {"name": "Augusta"})
    await shop.delete("customers", "ada")
    async with following(shop, class_name="customers", after=BEGINNING) as changes:
        seen = [await next_of(changes) for _ in range(3)]
    assert [(each.kind, each.before, each.after) for each in seen] == [
        ("create", None, {"name": "Ada"}),
        ("update", {"name": "Ada"}, {"name": "Augusta"}),
        ("delete", {"name": "Augusta"}, None),
    ]
    assert {(each.class_name, each.object_id, each.group) for each in seen} == {
        ("customers", "ada", "main")
    }
    assert seen[0].version < seen[1].version < seen[2].version
    assert seen[0].time.tzinfo is not None
    async with following(shop, after=seen[0].position) as changes:
        while (change := await next_of(changes)).class_name != "customers":
            pass
        assert change == seen[1]


async def test_a_position_that_is_gone_is_an_error(
    started: Service, shop: AsyncClient, database: str
) -> None:
    await shop.put("customers", "ada", {"name": "Ada"})
    async with following(shop, after=BEGINNING) as changes:
        position = (await next_of(changes)).position
    async with AsyncAdminClient(started.admin) as admin:
        await admin.drop_database(database)
        await admin.put_schema(database, SHOP)
    async with following(shop, after=position) as changes:
        with pytest.raises(Gone):
            await next_of(changes)


async def test_what_cannot_be_followed_is_refused_at_once(shop: AsyncClient) -> None:
    for refusal, options in ((NotFound, {"class_name": "toys"}), (Invalid, {"after": "x"})):
        async with following(shop, **options) as changes:
            with pytest.raises(refusal):
                await next_of(changes)
