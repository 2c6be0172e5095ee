"""The coherent client against the service: cached reads, and the bound on their age."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import monotonic

import httpx

from sketch.client import CoherentClient, Source
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import Paper
from tests.process.service import unique

DELTA_S = 0.3


def client(paper: Paper, delta_s: float = DELTA_S) -> CoherentClient:
    transport = httpx.ASGITransport(paper.api)
    return CoherentClient("http://test", paper.database, delta_s=delta_s, transport=transport)


async def hits(reader: CoherentClient, id_: str) -> int:
    value = (await reader.get("articles", id_)).value
    assert value is not None
    return int(value["hits"])


async def test_a_cached_copy_is_read_again_without_a_request(paper: Paper) -> None:
    id_ = unique("a")
    await paper.put(id_)
    async with client(paper, 30.0) as reader:
        first = await reader.get("articles", id_)
        second = await reader.get("articles", id_)
        assert (first.source, second.source) == (Source.ORIGIN, Source.OWN)
        assert second.value == first.value == {"id": id_, "title": "One", "hits": 0}
        projection = await reader.get("articles", id_, fields=["title"])
        assert projection.value == {"id": id_, "title": "One"}


async def test_a_compressed_copy_is_compared_by_its_version(paper: Paper) -> None:
    id_, title = unique("a"), "All the news that is fit to compress. " * 60
    plain = (await paper.http.get("sketch", headers={"accept-encoding": "identity"})).headers
    assert not plain["etag"].endswith('-gzip"')
    put = await paper.put(id_, title=title)
    assert put.headers["etag"].endswith('-gzip"')
    async with client(paper, 30.0) as reader:
        read = await reader.get("articles", id_)
        assert read.etag == put.headers["etag"].replace("-gzip", "")
        same = await reader.get("articles", id_, refresh=True)
        assert (same.value, same.etag, reader.statistics.not_modified) == (read.value, read.etag, 1)
        result = await reader.patch("articles", id_, {"hits": 1}, if_match=read.etag)
        assert result.etag != read.etag
        async with reader.transaction() as transaction:
            await transaction.get("articles", id_)
            transaction.patch("articles", id_, {"hits": 2})
        assert await hits(reader, id_) == 2


async def test_a_write_of_another_client_is_visible_within_the_bound(paper: Paper) -> None:
    id_ = unique("a")
    await paper.put(id_)
    async with client(paper) as reader:
        assert (await reader.get("articles", id_)).source is Source.ORIGIN

        async def from_its_own_cache() -> bool:
            return (await reader.get("articles", id_)).source is Source.OWN

        await eventually(from_its_own_cache)
        await paper.inc(id_)

        async def is_visible() -> bool:
            return await hits(reader, id_) == 1

        await eventually(is_visible)
        assert reader.statistics.hits


async def test_a_client_sees_its_own_writes_at_once(paper: Paper) -> None:
    id_ = unique("a")
    async with client(paper, 30.0) as reader:
        await reader.put("articles", id_, {"title": "One"})
        for number in range(5):
            assert await hits(reader, id_) == number
            await reader.patch("articles", id_, {"hits": {"inc": 1}}, form="update")
        await reader.delete("articles", id_)
        assert (await reader.get("articles", id_, missing_ok=True)).value is None


async def test_a_client_sees_the_time_of_its_own_write(paper: Paper) -> None:
    """It is in its own group, as docs/schema.md recommends, which no request names."""
    updated = {"type": "timestamp", "updated": True, "group": "updated"}
    fields = {"title": {"type": "string"}, "updated": updated}
    reports = {"cache": {"visibility": "public", "max_ttl_s": 60}, "fields": fields}
    database, transport = unique("db"), httpx.ASGITransport(paper.api)
    await paper.running.mediator.control.set_schema(database, {"classes": {"reports": reports}})
    async with CoherentClient("http://test", database, delta_s=30.0, transport=transport) as reader:

        async def time() -> tuple[str, Source]:
            read = await reader.get("reports", "r", fields=["updated"])
            assert read.value is not None
            return read.value["updated"], read.source

        async def is_cached() -> bool:
            return (await time())[1] is Source.OWN

        await reader.put("reports", "r", {"title": "One"})
        for write in (
            partial(reader.patch, "reports", "r", {"title": "Two"}),
            partial(reader.patch, "reports", "r", {"title": {"set": "Three"}}, form="update"),
            partial(reader.put, "reports", "r", {"title": "Four"}, fields=["title"]),
        ):
            await eventually(is_cached)
            before, _ = await time()
            await write()
            assert (await time())[0] > before


@dataclass
class History:
    """The acknowledged and the read counts of each counter, with their times."""

    counts: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    stale_reads: list[str] = field(default_factory=list)
    reads: int = 0

    def record(self, id_: str, count: int) -> None:
        self.counts.setdefault(id_, []).append((monotonic(), count))

    def check_read(self, id_: str, sent_s: float, count: int) -> None:
        self.reads += 1
        due = [c for at, c in self.counts.get(id_, ()) if at < sent_s - DELTA_S]
        if due and max(due) > count:
            self.stale_reads.append(f"{id_}: {count} instead of {max(due)}")


async def test_no_read_is_older_than_the_bound(paper: Paper) -> None:
    ids = [unique("c") for _ in range(5)]
    await asyncio.gather(*map(paper.put, ids))
    history = History()

    async def work(reader: CoherentClient, rng: Random) -> None:
        for _ in range(250):
            id_ = rng.choice(ids)
            if rng.random() < 0.05:
                result = await reader.patch("articles", id_, {"hits": {"inc": 1}}, form="update")
                assert result.value is not None
                history.record(id_, result.value["hits"])
            else:
                sent_s = monotonic()
                count = await hits(reader, id_)
                history.check_read(id_, sent_s, count)
                history.record(id_, count)
            await asyncio.sleep(0)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client(paper)) for _ in range(4)]
        await asyncio.gather(*(work(reader, Random(n)) for n, reader in enumerate(clients)))
        assert sum(reader.statistics.hits for reader in clients)
    assert history.stale_reads == []
    assert history.reads > 800
