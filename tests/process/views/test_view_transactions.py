"""Transactions of clients, where a view answers reads."""

from __future__ import annotations

import httpx
import pytest

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from portolan_client import AsyncClient, AsyncTransaction, Operation, TransactionAborted
from tests.process.views.views import ViewClient, make_stale


async def test_a_transaction_that_a_stale_copy_aborted_reads_the_systems(
    view: ViewClient, id_: str
) -> None:
    await make_stale(view, id_)
    attempts: list[bool] = []

    async def count(transaction: AsyncTransaction) -> int:
        article = await transaction.get("articles", id_)
        attempts.append(article.staleness is not None)
        hits: int = article.value["hits"] + 1
        transaction.add(Operation.patch("articles", id_, {"hits": hits}))
        return hits

    async with client_of(view) as client:
        with pytest.raises(TransactionAborted):
            await client.transact(count, attempts=1)
        assert await client.transact(count, attempts=2) == 3
    # The view answered the first attempt of each, as it can answer any read.
    assert attempts == [True, True, False]
    answer = await view.send("GET", id_, prefer="consistency=strong")
    assert answer.json()["hits"] == 3


def client_of(view: ViewClient) -> AsyncClient:
    options = DataOptions(cursor_key=b"secret")
    mediator = view.service.mediator
    transact = mediator.transactions.run
    app = DataApi(mediator.data, options, lambda _: None, DataServices(transact=transact))
    return AsyncClient("http://test", view.database, transport=httpx.ASGITransport(app))
