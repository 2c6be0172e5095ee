"""Transactions of the coherent client with the service: cached reads, validated at the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from sketch.client import (
    CoherentClient,
    NotFound,
    Source,
    Transaction,
    TransactionAborted,
    Unreachable,
)
from tests.process.caching.cached_paper import Paper
from tests.process.service import unique

LONG_S = 300.0
"""No copy expires within a test."""


class CountingTransport(httpx.ASGITransport):
    """Counts commits, and can lose their answers."""

    def __init__(self, paper: Paper) -> None:
        super().__init__(paper.api)
        self.commits = 0
        self.loses = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.url.path.endswith("/transactions"):
            self.commits += 1
            if self.loses:
                raise httpx.ReadError("lost", request=request)
        return response


def make_client(
    paper: Paper, transport: CountingTransport | None = None, delta_s: float = LONG_S
) -> CoherentClient:
    transport = transport or CountingTransport(paper)
    return CoherentClient("http://test", paper.database, delta_s=delta_s, transport=transport)


async def title(reader: CoherentClient | Transaction, id_: str) -> tuple[str, Source]:
    read = await reader.get("articles", id_)
    assert read.value is not None
    return read.value["title"], read.source


async def pair(paper: Paper) -> tuple[str, str]:
    one, other = unique("a"), unique("a")
    for id_ in (one, other):
        await paper.put(id_)
    return one, other


async def test_a_transaction_reads_copies_and_commits_all_writes(paper: Paper) -> None:
    one, other = await pair(paper)
    transport = CountingTransport(paper)
    async with make_client(paper, transport) as client:
        assert await title(client, one) == ("One", Source.ORIGIN)
        async with client.transaction() as transaction:
            assert await title(transaction, one) == ("One", Source.OWN)
            transaction.patch("articles", one, {"title": "Two"})
            transaction.update("articles", other, {"hits": {"inc": 2}})
            transaction.put("notes", one, {"text": "n"})
            assert await title(client, one) == ("One", Source.OWN), "nothing is written yet"
        assert transport.commits == 1
        assert [result.value for result in transaction.results] == [
            {"id": one, "title": "Two"},
            {"id": other, "hits": 2},
            {"id": one, "text": "n"},
        ]
        assert await title(client, one) == ("Two", Source.ORIGIN), "its writes are visible at once"
        assert (await client.get("articles", other)).value == {
            "id": other,
            "title": "One",
            "hits": 2,
        }
        async with client.transaction() as transaction:
            transaction.delete("notes", one)
        with pytest.raises(NotFound):
            await client.get("notes", one)


async def test_an_outdated_copy_aborts_a_transaction_and_is_dropped(paper: Paper) -> None:
    one, other = await pair(paper)
    async with make_client(paper) as client:
        await title(client, one)
        await title(client, other)
        await paper.inc(one)
        transaction = client.transaction()
        assert await title(transaction, one) == ("One", Source.OWN)
        await title(transaction, other)
        transaction.patch("articles", other, {"title": "Two"})
        with pytest.raises(TransactionAborted) as aborted:
            await transaction.commit()
        assert aborted.value.changed == [("articles", one)]
        assert [location["pointer"] for location in aborted.value.errors] == ["/reads/0"]
        assert await title(client, one) == ("One", Source.ORIGIN)
        assert await title(client, other) == ("One", Source.ORIGIN), "its write was aborted"
        assert (await paper.get(other)).json()["title"] == "One"


async def test_the_next_attempt_reads_outdated_copies_again(paper: Paper) -> None:
    one, other = await pair(paper)
    attempts: list[list[Source]] = []

    async def work(transaction: Transaction) -> str:
        reads = [await transaction.get("articles", id_) for id_ in (one, other)]
        attempts.append([read.source for read in reads])
        assert reads[0].value is not None
        transaction.put("notes", one, {"text": f"{reads[0].value['hits']}"})
        return "done"

    async with make_client(paper) as client:
        await title(client, one)
        await title(client, other)
        await paper.inc(one)
        assert await client.transact(work) == "done"
        assert attempts == [[Source.OWN, Source.OWN], [Source.ORIGIN, Source.OWN]]
        assert (await client.get("notes", one)).value == {"id": one, "text": "1"}


async def test_attempts_are_bounded(paper: Paper) -> None:
    one, _ = await pair(paper)
    calls = 0

    async def work(transaction: Transaction) -> None:
        nonlocal calls
        calls += 1
        await title(transaction, one)
        await paper.inc(one)

    async with make_client(paper) as client:
        with pytest.raises(TransactionAborted):
            await client.transact(work, attempts=3)
        with pytest.raises(ValueError, match="at least 1"):
            await client.transact(work, attempts=0)
    assert calls == 3


async def test_no_update_is_lost_although_all_reads_are_cached(paper: Paper) -> None:
    one, other = await pair(paper)

    async def move(transaction: Transaction) -> None:
        hits = []
        for id_ in (one, other):
            value = (await transaction.get("articles", id_)).value
            assert value is not None
            hits.append(value["hits"])
        transaction.patch("articles", one, {"hits": hits[0] + 1})
        transaction.patch("articles", other, {"hits": hits[1] - 1})

    async def work(client: CoherentClient) -> None:
        for _ in range(6):
            await client.transact(move, attempts=100)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(make_client(paper)) for _ in range(3)]
        await asyncio.gather(*map(work, clients))
    assert [(await paper.get(id_)).json()["hits"] for id_ in (one, other)] == [18, -18]


async def test_a_block_that_fails_sends_nothing(paper: Paper) -> None:
    one, _ = await pair(paper)
    transport = CountingTransport(paper)

    async def fail(transaction: Transaction) -> None:
        transaction.patch("articles", one, {"title": "Two"})
        raise RuntimeError

    async with make_client(paper, transport) as client:
        with pytest.raises(RuntimeError):
            await client.transact(fail)
        async with client.transaction():
            pass
        assert await title(client, one) == ("One", Source.ORIGIN)
    assert transport.commits == 0


async def test_read_only_transactions_are_validated(paper: Paper) -> None:
    one, other = await pair(paper)
    async with make_client(paper) as client:
        async with client.transaction() as transaction:
            await title(transaction, one)
            await title(transaction, other)
        outdated = client.transaction()
        await title(outdated, one)
        await paper.inc(one)
        await title(outdated, other)
        with pytest.raises(TransactionAborted):
            await outdated.commit()


async def test_absence_is_validated(paper: Paper) -> None:
    id_ = unique("a")

    async def create(client: CoherentClient, before: Awaitable[object] | None = None) -> None:
        async with client.transaction() as transaction:
            assert (await transaction.get("articles", id_, missing_ok=True)).value is None
            transaction.put("articles", id_, {"title": "One"})
            await (before or asyncio.sleep(0))

    async with make_client(paper) as client, make_client(paper) as other:
        with pytest.raises(TransactionAborted) as aborted:
            await create(other, before=create(client))
        assert aborted.value.changed == [("articles", id_)]
        assert await title(other, id_) == ("One", Source.ORIGIN)


async def test_only_the_fields_that_were_read_count(paper: Paper) -> None:
    one, other = await pair(paper)
    async with make_client(paper) as client:
        async with client.transaction() as transaction:
            read = await transaction.get("articles", one, fields=["title"])
            assert read.value == {"id": one, "title": "One"}
            await paper.inc(one)
            transaction.patch("articles", other, {"title": read.value["title"] * 2})
        assert (await title(client, other))[0] == "OneOne"


async def test_a_resource_is_read_once(paper: Paper) -> None:
    """A transaction sees the first version that it read, despite concurrent writes."""
    one, _ = await pair(paper)
    async with make_client(paper) as client:
        transaction = client.transaction()
        first = await transaction.get("articles", one)
        await client.patch("articles", one, {"title": "Two"})
        before = client.statistics.revalidations
        assert await transaction.get("articles", one) == first
        assert client.statistics.revalidations == before
        with pytest.raises(TransactionAborted):
            await transaction.commit()


async def test_unsupported_operations_of_a_transaction_are_refused_at_once(paper: Paper) -> None:
    one, _ = await pair(paper)
    async with make_client(paper) as client:
        transaction = client.transaction()
        transaction.patch("articles", one, {"title": "Two"})
        with pytest.raises(ValueError, match="written twice"):
            transaction.delete("articles", one)
        with pytest.raises(ValueError, match="after it was written"):
            await transaction.get("articles", one)
        [written] = await transaction.commit()
        assert written.etag is None or written.etag.startswith('"')
        uses: Any = (
            transaction.commit,
            lambda: transaction.get("articles", one),
        )
        for use in uses:
            with pytest.raises(ValueError, match="is over"):
                await use()
        with pytest.raises(ValueError, match="is over"):
            transaction.delete("articles", one)


async def test_one_refused_write_refuses_the_transaction(paper: Paper) -> None:
    one, _ = await pair(paper)
    async with make_client(paper) as client:
        transaction = client.transaction()
        for id_ in (one, unique("a")):
            transaction.patch("articles", id_, {"title": "Two"})
        with pytest.raises(NotFound):
            await transaction.commit()
        assert await title(client, one) == ("One", Source.ORIGIN)


async def test_after_a_lost_response_copies_are_read_again(paper: Paper) -> None:
    one, _ = await pair(paper)
    transport = CountingTransport(paper)
    async with make_client(paper, transport) as client:
        await title(client, one)
        transport.loses = True
        transaction = client.transaction()
        transaction.patch("articles", one, {"title": "Two"})
        with pytest.raises(Unreachable):
            await transaction.commit()
        assert await title(client, one) == ("Two", Source.ORIGIN)
