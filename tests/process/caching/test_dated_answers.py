"""Clients behind one cache share what they ask for anew: answers that tell when they were true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from sketch.client import CoherentClient, NotFound, Source
from tests.process.caching.coherent_origin import Origin, SharedCache, VirtualTime
from tests.process.caching.serving import Door, until

DELTA_S = 10.0
PATH = "/v1/news/articles/a1?max_age=10"


@pytest.fixture
def origin(door: Door) -> Origin:
    origin = Origin(VirtualTime())
    origin.door = door
    origin.objects["articles", "a1"] = {"title": "old", "text": "t", "hits": 1}
    return origin


@asynccontextmanager
async def neighbours(
    origin: Origin, cache: SharedCache, count: int = 2
) -> AsyncIterator[list[CoherentClient]]:
    """Connect clients that have watched the clock for long enough, and whose filters name a1."""
    door, time = origin.door, origin.time
    assert door is not None
    door.app = cache
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                CoherentClient(
                    door.url, "news", delta_s=DELTA_S, mode="lazy", clock=time, sleep=time.sleep
                )
            )
            for _ in range(count)
        ]
        await title(clients[0])
        await origin.write("articles", "a1", {"title": "new"})
        for _ in range(2):
            time.advance(7)
            await renew(clients)
        yield clients


async def renew(clients: list[CoherentClient]) -> None:
    for client in clients:
        await client.refresh_filter()


async def title(
    client: CoherentClient, *, refresh: bool = False, fields: str | None = None
) -> tuple[str, Source]:
    read = await client.get("articles", "a1", refresh=refresh, fields=fields)
    assert read.value is not None
    return read.value["title"], read.source


async def test_one_answer_does_for_all_clients_behind_a_cache(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin), 4) as clients:
        origin.time.advance(5)
        told = [await title(client) for client in clients]
    assert told == [("new", Source.ORIGIN), *[("new", Source.SHARED)] * 3]
    assert [each.path for each in origin.asked()][1:] == [PATH]


async def test_each_client_keeps_it_until_it_is_too_old(origin: Origin) -> None:
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


async def test_what_the_cache_has_may_be_too_old(origin: Origin) -> None:
    """A whole answer is asked for then, which it keeps for the others."""
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        await title(first)
        await origin.write("articles", "a1", {"title": "newest"})
        origin.time.advance(1)
        await renew([first, second])
        origin.time.advance(6)
        assert await title(second) == ("newest", Source.ORIGIN)
        assert origin.asked()[-1].forced
        assert await title(first) == ("newest", Source.SHARED)
        assert len(origin.asked()) == 3


async def test_what_was_old_when_it_came_may_be_followed_by_what_is_as_old(origin: Origin) -> None:
    """The tags tell that the one is not older than the other, though neither is as of now."""
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


async def test_but_not_by_what_is_older(origin: Origin) -> None:
    cache = SharedCache(origin)
    async with neighbours(origin, cache) as (first, second):
        origin.time.advance(5)
        await title(first)
        older = cache.cached[PATH]
        await origin.write("articles", "a1", {"title": "newest"})
        del cache.cached[PATH]
        origin.time.advance(6)
        filters = second.statistics.filter_refreshes
        assert await title(second) == ("newest", Source.ORIGIN)
        await until(lambda: second.statistics.filter_refreshes > filters)
        older[0].headers["portolan-as-of"] = str(origin.clock_us() - 1_000_000)
        cache.cached[PATH] = (*older[:2], older[2] + 20)
        origin.time.advance(10.1)
        assert await title(second) == ("newest", Source.ORIGIN)


async def test_who_asks_by_the_filter_never_gets_it(origin: Origin) -> None:
    """No filter names it when it is outdated."""
    cache = SharedCache(origin)
    async with neighbours(origin, cache) as (first, second):
        origin.time.advance(5)
        await title(first)
        origin.time.advance(60)
        await renew([first, second])
        await title(second)
    assert origin.asked()[-1].path == PATH.partition("?")[0]


async def test_reads_as_of_now_go_to_the_origin(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        await title(first)
        assert await title(second, refresh=True) == ("new", Source.ORIGIN)
        assert origin.asked()[-1].forced


async def test_own_writes_are_not_taken_back(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        await title(first)
        await second.patch("articles", "a1", {"title": "mine"})
        assert await title(second) == ("mine", Source.ORIGIN)


async def test_nor_what_was_seen(origin: Origin) -> None:
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
        gate = origin.hold("GET", PATH, "dated")
        reads = [asyncio.create_task(title(first)) for _ in range(5)]
        await gate.reached.wait()
        gate.open()
        assert await asyncio.gather(*reads) == [("new", Source.ORIGIN)] * 5
        assert origin.asked()[-1].path == PATH
        assert len(origin.asked()) == 2


async def test_readers_who_need_a_younger_answer_ask_again(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, _):
        origin.time.advance(5)
        gate = origin.hold("GET", PATH, "read")
        early = asyncio.create_task(title(first))
        await gate.reached.wait()
        await first.patch("articles", "a1", {"title": "mine"})
        late = [asyncio.create_task(title(first)) for _ in range(3)]
        await until(lambda: first.statistics.joined >= len(late))
        gate.open()
        assert (await early)[0] == "new"
        assert {(await each)[0] for each in late} == {"mine"}


async def test_fields_and_absence_are_dated_too(origin: Origin) -> None:
    async with neighbours(origin, SharedCache(origin)) as (first, second):
        origin.time.advance(5)
        assert await title(first, fields="title") == ("new", Source.ORIGIN)
        assert origin.asked()[-1].path == "/v1/news/articles/a1?fields=title&max_age=10"
        assert await title(second, fields="title") == ("new", Source.SHARED)
        del origin.objects["articles", "a1"]
        for client in (first, second):
            with pytest.raises(NotFound):
                await title(client)
        assert len([e for e in origin.asked() if e.path == PATH]) == 1


async def test_where_answers_have_no_date_the_origin_is_asked_as_before(origin: Origin) -> None:
    origin.dates = False
    async with neighbours(origin, SharedCache(origin)) as (first, _):
        for _ in range(3):
            origin.time.advance(9)
            await renew([first])
            origin.time.advance(6)
            assert await title(first) == ("new", Source.ORIGIN)
    asked = origin.asked()[1:]
    assert [each.path == PATH for each in asked] == [True, False, False, False]
    assert [each.forced for each in asked[1:]] == [True, True, True]


async def test_a_clock_that_was_watched_for_a_moment_only_tells_nothing(origin: Origin) -> None:
    cache, door = SharedCache(origin), origin.door
    assert door is not None
    door.app = cache
    time = origin.time
    async with CoherentClient(
        door.url, "news", delta_s=DELTA_S, mode="lazy", clock=time, sleep=time.sleep
    ) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        time.advance(8)
        await client.refresh_filter()
        time.advance(3.9)
        assert await title(client) == ("new", Source.ORIGIN)
    assert origin.asked()[-1].path == PATH.partition("?")[0]
    assert origin.asked()[-1].forced
