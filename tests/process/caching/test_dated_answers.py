"""Clients behind one cache share revalidated answers, which carry the time of their read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from sketch.client import CoherentClient, NotFound, Source
from tests.process.caching.coherent_origin import Origin, SharedCache, VirtualTime
from tests.process.caching.serving import Endpoint, until

DELTA_S = 10.0
PATH = "/v1/news/articles/a1?max_age=10"


@pytest.fixture
def origin(endpoint: Endpoint) -> Origin:
    origin = Origin(VirtualTime())
    origin.endpoint = endpoint
    origin.objects["articles", "a1"] = {"title": "old", "text": "t", "hits": 1}
    return origin


@asynccontextmanager
async def neighbours(
    origin: Origin, cache: SharedCache, count: int = 2
) -> AsyncIterator[list[CoherentClient]]:
    """Connect clients that have observed the clock for long enough, with a1 in their filters."""
    endpoint, time = origin.endpoint, origin.time
    assert endpoint is not None
    endpoint.app = cache
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                CoherentClient(
                    endpoint.url, "news", delta_s=DELTA_S, mode="lazy", clock=time, sleep=time.sleep
                )
            )
            for _ in range(count)
        ]
        await title(clients[0])
        await origin.write("articles", "a1", {"title": "new"})
        for _ in range(2):
            time.advance(7)
            await refresh_filters(clients)
        yield clients


async def refresh_filters(clients: list[CoherentClient]) -> None:
    for client in clients:
        await client.refresh_filter()


async def title(
    client: CoherentClient, *, refresh: bool = False, fields: str | None = None
) -> tuple[str, Source]:
    read = await client.get("articles", "a1", refresh=refresh, fields=fields)
    assert read.value is not None
    return read.value["title"], read.source


async def test_one_answer_serves_all_clients_behind_a_cache(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin), 4) as clients:
        origin.time.advance(5)
        answers = [await title(client) for client in clients]
    assert answers == [("new", Source.ORIGIN), *[("new", Source.SHARED)] * 3]
    assert [exchange.path for exchange in origin.requests()][1:] == [PATH]


async def test_each_client_reuses_a_dated_copy_up_to_the_bound(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        await title(first)
        await origin.write("articles", "a1", {"title": "newest"})
        origin.time.advance(4)
        assert await title(second) == ("new", Source.SHARED)
        origin.time.advance(5.9)
        assert await title(second) == ("new", Source.OWN)
        origin.time.advance(0.2)
        assert await title(second) == ("newest", Source.ORIGIN)


async def test_a_cached_response_beyond_the_bound_is_fetched_again(origin: Origin) -> None:
    """The client requests an undated answer then, which the cache stores for the others."""
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        await title(first)
        await origin.write("articles", "a1", {"title": "newest"})
        origin.time.advance(1)
        await refresh_filters([first, second])
        origin.time.advance(6)
        assert await title(second) == ("newest", Source.ORIGIN)
        assert origin.requests()[-1].forced
        assert await title(first) == ("newest", Source.SHARED)
        assert len(origin.requests()) == 3


async def test_an_old_copy_may_be_replaced_by_an_equally_old_one(origin: Origin) -> None:
    """The ETags show that one is not older than the other, though neither is current."""
    cache = SharedCache(origin)
    async with neighbours(origin, cache) as (first, second):
        origin.time.advance(5)
        await title(first)
        origin.time.advance(6)
        filters = second.statistics.filter_refreshes
        assert await title(second) == ("new", Source.SHARED)
        await until(lambda: second.statistics.filter_refreshes > filters)
        reply, since, end = cache.cached[PATH]
        reply.headers["portolan-as-of"] = str(origin.clock_us() - 3_000_000)
        cache.cached[PATH] = reply, since, end + 10
        origin.time.advance(4.1)
        assert await title(second) == ("new", Source.SHARED)


async def test_an_old_copy_is_not_replaced_by_an_older_one(origin: Origin) -> None:
    cache = SharedCache(origin)
    async with neighbours(origin, cache) as (first, second):
        origin.time.advance(5)
        await title(first)
        older_entry = cache.cached[PATH]
        await origin.write("articles", "a1", {"title": "newest"})
        del cache.cached[PATH]
        origin.time.advance(6)
        filters = second.statistics.filter_refreshes
        assert await title(second) == ("newest", Source.ORIGIN)
        await until(lambda: second.statistics.filter_refreshes > filters)
        older_entry[0].headers["portolan-as-of"] = str(origin.clock_us() - 1_000_000)
        cache.cached[PATH] = (*older_entry[:2], older_entry[2] + 20)
        origin.time.advance(10.1)
        assert await title(second) == ("newest", Source.ORIGIN)


async def test_a_read_without_a_date_never_uses_a_dated_response(origin: Origin) -> None:
    """No filter contains its key when it is outdated."""
    cache = SharedCache(origin)
    async with neighbours(origin, cache) as (first, second):
        origin.time.advance(5)
        await title(first)
        origin.time.advance(60)
        await refresh_filters([first, second])
        await title(second)
    assert origin.requests()[-1].path == PATH.partition("?")[0]


async def test_reads_as_of_now_go_to_the_origin(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        await title(first)
        assert await title(second, refresh=True) == ("new", Source.ORIGIN)
        assert origin.requests()[-1].forced


async def test_a_dated_response_does_not_hide_an_own_write(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        await title(first)
        await second.patch("articles", "a1", {"title": "mine"})
        assert await title(second) == ("mine", Source.ORIGIN)


async def test_a_dated_response_does_not_hide_a_version_already_seen(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        await title(first)
        await origin.write("articles", "a1", {"title": "newest"})
        assert await title(second, refresh=True) == ("newest", Source.ORIGIN)
        origin.time.advance(0.5)
        assert await title(second) == ("newest", Source.OWN)


async def test_readers_of_one_client_share_a_request(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, _):
        origin.time.advance(5)
        pause = origin.hold("GET", PATH, "dated")
        reads = [asyncio.create_task(title(first)) for _ in range(5)]
        await pause.reached.wait()
        pause.open()
        assert await asyncio.gather(*reads) == [("new", Source.ORIGIN)] * 5
        assert origin.requests()[-1].path == PATH
        assert len(origin.requests()) == 2


async def test_readers_that_need_a_newer_response_send_their_own_request(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, _):
        origin.time.advance(5)
        pause = origin.hold("GET", PATH, "read")
        early = asyncio.create_task(title(first))
        await pause.reached.wait()
        await first.patch("articles", "a1", {"title": "mine"})
        late = [asyncio.create_task(title(first)) for _ in range(3)]
        await until(lambda: first.statistics.joined >= len(late))
        pause.open()
        assert (await early)[0] == "new"
        assert {(await read)[0] for read in late} == {"mine"}


async def test_fields_and_absence_are_dated(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        assert await title(first, fields="title") == ("new", Source.ORIGIN)
        assert origin.requests()[-1].path == "/v1/news/articles/a1?fields=title&max_age=10"
        assert await title(second, fields="title") == ("new", Source.SHARED)
        del origin.objects["articles", "a1"]
        for client in (first, second):
            with pytest.raises(NotFound):
                await title(client)
        assert len([e for e in origin.requests() if e.path == PATH]) == 1


async def test_without_dates_reads_are_forced_to_the_origin(origin: Origin) -> None:
    origin.dates = False
    async with neighbours(origin, SharedCache(origin)) as (first, _):
        for _ in range(3):
            origin.time.advance(9)
            await refresh_filters([first])
            origin.time.advance(6)
            assert await title(first) == ("new", Source.ORIGIN)
    requests = origin.requests()[1:]
    assert [exchange.path == PATH for exchange in requests] == [True, False, False, False]
    assert [exchange.forced for exchange in requests[1:]] == [True, True, True]


async def test_a_clock_observed_too_briefly_is_not_used(origin: Origin) -> None:
    cache, endpoint = SharedCache(origin), origin.endpoint
    assert endpoint is not None
    endpoint.app = cache
    time = origin.time
    async with CoherentClient(
        endpoint.url, "news", delta_s=DELTA_S, mode="lazy", clock=time, sleep=time.sleep
    ) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        time.advance(8)
        await client.refresh_filter()
        time.advance(3.9)
        assert await title(client) == ("new", Source.ORIGIN)
    assert origin.requests()[-1].path == PATH.partition("?")[0]
    assert origin.requests()[-1].forced
