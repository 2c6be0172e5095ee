"""Transactions by both Python clients: read, decide, and write if nothing has changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from portolan_client import (
    Absent,
    AsyncClient,
    AsyncTransaction,
    Conflict,
    NotFound,
    Operation,
    TransactionAborted,
)


async def stock_of(shop: AsyncClient, id_: str = "lamp") -> Any:
    return (await shop.get("products", id_)).value["stock"]


@pytest.fixture
async def stocked_shop(shop: AsyncClient) -> AsyncClient:
    await shop.put("products", "lamp", {"name": "Lamp", "stock": 100})
    return shop


async def sell(transaction: AsyncTransaction) -> int:
    lamp = await transaction.get("products", "lamp")
    assert await transaction.get("products", "lamp") == lamp
    stock: int = lamp.value["stock"] - 1
    transaction.add(
        Operation.patch("products", "lamp", {"stock": stock}),
        Operation.create("orders", {"customer": "ada"}),
    )
    return stock


async def test_all_operations_are_written(stocked_shop: AsyncClient) -> None:
    assert await stocked_shop.transact(sell) == await stock_of(stocked_shop) == 99
    assert len((await stocked_shop.query("orders", allow_scan=True)).items) == 1


async def test_concurrent_transactions_lose_no_update(stocked_shop: AsyncClient) -> None:
    await asyncio.gather(*(stocked_shop.transact(sell, attempts=1000) for _ in range(6)))
    assert await stock_of(stocked_shop) == 94
    assert len((await stocked_shop.query("orders", allow_scan=True)).items) == 6


async def test_a_changed_read_aborts_the_transaction(stocked_shop: AsyncClient) -> None:
    attempts = 0

    async def sell_with_conflict(transaction: AsyncTransaction) -> None:
        nonlocal attempts
        attempts += 1
        await sell(transaction)
        if attempts == 1:
            await stocked_shop.update("products", "lamp", {"stock": {"inc": -10}})

    await stocked_shop.transact(sell_with_conflict)
    assert (attempts, await stock_of(stocked_shop)) == (2, 89)
    attempts = 0
    with pytest.raises(TransactionAborted) as aborted:
        await stocked_shop.transact(sell_with_conflict, attempts=1)
    assert aborted.value.changed == [("products", "lamp")]
    assert await stock_of(stocked_shop) == 79


async def test_other_fields_may_change(stocked_shop: AsyncClient) -> None:
    async def rename(transaction: AsyncTransaction) -> None:
        lamp = await transaction.get("products", "lamp", fields=["name"])
        await stocked_shop.update("products", "lamp", {"stock": {"inc": 1}})
        transaction.add(Operation.patch("products", "lamp", {"name": lamp.value["name"] + "!"}))

    await stocked_shop.transact(rename, attempts=1)
    assert (await stocked_shop.get("products", "lamp")).value["name"] == "Lamp!"


async def test_absence_is_validated(stocked_shop: AsyncClient) -> None:
    attempts = 0

    async def welcome(transaction: AsyncTransaction) -> str:
        nonlocal attempts
        attempts += 1
        try:
            await transaction.get("customers", "ada")
        except NotFound:
            if attempts == 1:
                await stocked_shop.put("customers", "ada", {"name": "Ada"})
            transaction.add(Operation.put("customers", "ada", {"name": "New"}))
            return "new"
        return "known"

    assert await stocked_shop.transact(welcome) == "known"
    assert attempts == 2
    assert (await stocked_shop.get("customers", "ada")).value["name"] == "Ada"
    with pytest.raises(TransactionAborted):
        await stocked_shop.commit([], [Absent("customers", "ada")])


async def test_an_exception_sends_nothing(stocked_shop: AsyncClient) -> None:
    async def fail(transaction: AsyncTransaction) -> None:
        await sell(transaction)
        raise LookupError("no more boxes")

    with pytest.raises(LookupError, match="no more boxes"):
        await stocked_shop.transact(fail)
    assert await stock_of(stocked_shop) == 100


async def test_one_refused_write_aborts_all(stocked_shop: AsyncClient) -> None:
    operations = [
        Operation.put("customers", "ada", {"name": "Ada"}),
        Operation.update("products", "lamp", {"stock": {"inc": -101}}),
    ]
    with pytest.raises(Conflict) as refused:
        await stocked_shop.commit(operations)
    assert refused.value.kind == "operator-refused"
    with pytest.raises(NotFound):
        await stocked_shop.get("customers", "ada")
