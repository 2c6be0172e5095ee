"""The Python clients with lost replies, and without a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from portolan_client import (
    AsyncAdminClient,
    AsyncClient,
    Operation,
    Result,
    Retries,
    Unreachable,
    Written,
)
from tests.faults.service import Service
from tests.process.clients.both import Kind, open_client
from tests.process.clients.losing import AsynchronousLosses, losing_transport
from tests.process.commands.shop import SHOP

RETRIES = Retries(attempts=3, first_pause_s=0)

WRITES: dict[str, Callable[[AsyncClient], Awaitable[Written | list[Result]]]] = {
    "create": lambda shop: shop.create("products", {"name": "New", "stock": 1}),
    "put": lambda shop: shop.put("products", "new", {"name": "N"}, if_none_match="*"),
    "patch": lambda shop: shop.patch("products", "old", [{"op": "remove", "path": "/price"}]),
    "update": lambda shop: shop.update("products", "old", {"stock": {"inc": 1}}),
    "delete": lambda shop: shop.delete("products", "old"),
    "batch": lambda shop: shop.batch([Operation.update("products", "old", {"stock": {"inc": 1}})]),
    "commit": lambda shop: shop.commit([Operation.create("products", {"name": "New"})]),
}


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_whose_reply_was_lost_takes_effect_once(
    started: Service, database: str, kind: Kind, name: str
) -> None:
    async with AsyncClient(started.data, database) as direct_client:
        await direct_client.put("products", "old", {"name": "Old", "stock": 7, "price": "1"})
    transport = losing_transport(kind, 2)
    async with open_client(
        kind, started.data, database, lambda: transport, retries=RETRIES
    ) as shop:
        written = await WRITES[name](shop)
        stocks = {
            item["id"]: item["stock"]
            async for item in shop.iterate("products", fields=["stock"], allow_scan=True)
        }
    replayed = [result.replayed for result in (written if isinstance(written, list) else [written])]
    assert replayed == [True]
    assert transport.requests == 4
    new = {id_: stock for id_, stock in stocks.items() if id_ != "old"}
    assert len(new) == (name in {"create", "put", "commit"})
    assert stocks.get("old") == {"update": 8, "batch": 8, "delete": None}.get(name, 7)


async def test_attempts_are_limited(started: Service, database: str, kind: Kind) -> None:
    transport = losing_transport(kind, 100)
    async with open_client(
        kind, started.data, database, lambda: transport, retries=RETRIES
    ) as shop:
        with pytest.raises(Unreachable):
            await shop.update("products", "old", {"stock": {"inc": 1}})
    assert transport.requests == 3


async def test_a_key_of_the_caller_makes_two_calls_one_write(shop: AsyncClient) -> None:
    first = await shop.create("customers", {"name": "Ada"}, idempotency_key="order 66")
    second = await shop.create("customers", {"name": "Ada"}, idempotency_key="order 66")
    assert (first.replayed, second.replayed) == (False, True)
    assert first.id == second.id


async def test_a_write_that_failed_is_repeated_under_the_key_of_its_error(
    started: Service, database: str, kind: Kind
) -> None:
    async with (
        AsyncClient(started.data, database) as direct_client,
        open_client(
            kind,
            started.data,
            database,
            lambda: losing_transport(kind, 1),
            retries=Retries(attempts=1),
        ) as shop,
    ):
        await direct_client.put("products", "old", {"name": "Old", "stock": 7})
        with pytest.raises(Unreachable) as lost:
            await shop.update("products", "old", {"stock": {"inc": 1}})
        key = lost.value.idempotency_key
        retry = await shop.update("products", "old", {"stock": {"inc": 1}}, idempotency_key=key)
        assert (retry.replayed, retry.value) == (True, {"id": "old", "stock": 8})


async def test_a_schema_is_put_once_or_not_at_all(started: Service, database: str) -> None:
    """A second attempt could overwrite a schema that another client put meanwhile."""
    for dry_run, requests in ((False, 1), (True, 3)):
        transport = AsynchronousLosses(100)
        async with AsyncAdminClient(started.admin, transport=transport, retries=RETRIES) as admin:
            with pytest.raises(Unreachable):
                await admin.put_schema(database, SHOP, dry_run=dry_run)
        assert transport.requests == requests


async def test_without_a_service_there_is_no_reply(kind: Kind) -> None:
    async with open_client(kind, "http://127.0.0.1:1", "shop", retries=RETRIES) as shop:
        with pytest.raises(Unreachable):
            await shop.get("products", "lamp")
        with pytest.raises(Unreachable):
            await anext(shop.changes(reconnects=0))
