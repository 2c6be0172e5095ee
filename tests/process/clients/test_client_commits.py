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
async def stocked(shop: AsyncClient) -> AsyncClient:
    await shop.put("products", "lamp", {"name": "Lamp", "stock": 100})
    return shop


async def sell(transaction: AsyncTransaction) -> int:
    lamp = await transaction.get("products", "lamp")
    assert await transaction.get("products", "lamp") == lamp
    left: int = lamp.value["stock"] - 1
    transaction.add(
        Operation.patch("products", "lamp", {"stock": left}),
        Operation.create("orders", {"customer": "ada"}),
    )
    return left


async def test_all_is_written(stocked: AsyncClient) -> None:
    assert await stocked.transact(sell) == await stock_of(stocked) == 99
    assert len((await stocked.query("orders", allow_scan=True)).items) == 1


async def test_concurrent_transactions_lose_no_update(stocked: AsyncClient) -> None:
    await asyncio.gather(*(stocked.transact(sell, attempts=1000) for _ in range(6)))
    assert await stock_of(stocked) == 94
    assert len((await stocked.query("orders", allow_scan=True)).items) == 6


async def test_what_was_read_has_to_be_unchanged(stocked: AsyncClient) -> None:
    attempts = 0

    async def late(transaction: AsyncTransaction) -> None:
        nonlocal attempts
        attempts += 1
        await sell(transaction)
        if attempts == 1:
            await stocked.update("products", "lamp", {"stock": {"inc": -10}})

    await stocked.transact(late)
    assert (attempts, await stock_of(stocked)) == (2, 89)
    attempts = 0
    with pytest.raises(TransactionAborted) as aborted:
        await stocked.transact(late, attempts=1)
    assert aborted.value.changed == [("products", "lamp")]
    assert await stock_of(stocked) == 79


async def test_other_fields_may_change(stocked: AsyncClient) -> None:
    async def rename(transaction: AsyncTransaction) -> None:
        lamp = await transaction.get("products", "lamp", fields=["name"])
        await stocked.update("products", "lamp", {"stock": {"inc": 1}})
        transaction.add(Operation.patch("products", "lamp", {"name": lamp.value["name"] + "!"}))

    await stocked.transact(rename, attempts=1)
    assert (await stocked.get("products", "lamp")).value["name"] == "Lamp!"


async def test_absence_is_validated(stocked: AsyncClient) -> None:
    attempts = 0

    async def welcome(transaction: AsyncTransaction) -> str:
        nonlocal attempts
        attempts += 1
        try:
            await transaction.get("customers", "ada")
        except NotFound:
            if attempts == 1:
                await stocked.put("customers", "ada", {"name": "Ada"})
            transaction.add(Operation.put("customers", "ada", {"name": "New"}))
            return "new"
        return "known"

    assert await stocked.transact(welcome) == "known"
    assert attempts == 2
    assert (await stocked.get("customers", "ada")).value["name"] == "Ada"
    with pytest.raises(TransactionAborted):
        await stocked.commit([], [Absent("customers", "ada")])


async def test_an_exception_sends_nothing(stocked: AsyncClient) -> None:
    async def fail(transaction: AsyncTransaction) -> None:
        await sell(transaction)
        raise LookupError("no more boxes")

    with pytest.raises(LookupError, match="no more boxes"):
        await stocked.transact(fail)
    assert await stock_of(stocked) == 100


async def test_one_write_that_is_refused_refuses_all(stocked: AsyncClient) -> None:
    operations = [
        Operation.put("customers", "ada", {"name": "Ada"}),
        Operation.update("products", "lamp", {"stock": {"inc": -101}}),
    ]
    with pytest.raises(Conflict) as refused:
        await stocked.commit(operations)
    assert refused.value.kind == "operator-refused"
    with pytest.raises(NotFound):
        await stocked.get("customers", "ada")
