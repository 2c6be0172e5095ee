"""Transactions of both Python clients behind a shared cache that is never purged."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from benchmarks.harness.varnish import varnish
from portolan_client import AsyncClient, AsyncTransaction, NotFound, Operation
from tests.process.caching.cached_paper import Paper, cacheable
from tests.process.caching.serving import served
from tests.process.clients.both import Kind, open_client
from tests.process.service import unique


@pytest.fixture(scope="module")
async def cache_url(paper: Paper) -> AsyncIterator[str]:
    async with served(paper.api) as origin, varnish(origin) as cache:
        yield cache.url


@pytest.fixture
async def news(paper: Paper, cache_url: str, kind: Kind) -> AsyncIterator[AsyncClient]:
    async with open_client(kind, cache_url, paper.database) as client:
        yield client


async def test_a_transaction_aborted_by_a_stale_copy_is_retried_with_the_current_version(
    paper: Paper, news: AsyncClient
) -> None:
    read_hits: list[int] = []

    async def double(transaction: AsyncTransaction) -> None:
        hits = (await transaction.get("articles", id_)).value["hits"]
        read_hits.append(hits)
        transaction.add(Operation.patch("articles", id_, {"hits": 2 * hits}))

    id_ = unique("a")
    await paper.put(id_, hits=1)
    await paper.release_leases()
    assert cacheable(await paper.get(id_))
    await news.get("articles", id_)
    await paper.inc(id_)
    await news.transact(double, attempts=2)
    assert read_hits == [1, 2]
    assert (await paper.get(id_)).json()["hits"] == 4


async def test_a_stale_absence_is_read_again(paper: Paper, news: AsyncClient) -> None:
    async def add(transaction: AsyncTransaction) -> str:
        try:
            title: str = (await transaction.get("articles", id_)).value["title"]
        except NotFound:
            transaction.add(Operation.put("articles", id_, {"title": "New"}))
            return "New"
        return title

    id_ = unique("a")
    with pytest.raises(NotFound):
        await news.get("articles", id_)
    await paper.put(id_)
    with pytest.raises(NotFound):
        await news.get("articles", id_)
    assert await news.transact(add, attempts=2) == "One"
