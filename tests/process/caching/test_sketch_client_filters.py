"""The client and its filters: their age, their keys, and which requests a read joins."""

from __future__ import annotations

import asyncio

import pytest

from sketch.client import (
    Source,
)
from tests.process.caching.coherent_origin import Origin, SharedCache
from tests.process.caching.serving import until
from tests.process.caching.sketch_clients import connected, title


async def test_a_key_in_the_filter_is_revalidated_to_the_origin(origin: Origin) -> None:
    cache = SharedCache(origin)
    async with connected(origin, cache) as client:
        assert await title(client) == ("old", Source.ORIGIN)
        await origin.write("articles", "a1", {"title": "new"})
        assert await title(client) == ("old", Source.OWN), "the bound allows it"
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
    last = origin.requests()[-1]
    assert last.forced


async def test_a_shared_copy_is_used_only_if_its_key_is_not_in_the_filter(
    origin: Origin,
) -> None:
    cache = SharedCache(origin)
    async with connected(origin, cache) as other:
        await title(other)
    origin.time.advance(3)
    async with connected(origin, cache) as client:
        read = await client.get("articles", "a1")
        assert (read.source, read.age_s) == (Source.SHARED, 3)
        assert client.statistics.shared == 1
    await origin.write("articles", "a1", {"title": "new"})
    async with connected(origin, cache) as client:
        assert await title(client) == ("new", Source.ORIGIN)
    assert origin.requests()[-1].forced


async def test_the_age_of_a_filter_counts_from_its_request(origin: Origin) -> None:
    """Slow filter: snapshot at 0, received at 6; at 11 it is older than 10 for the client."""
    async with connected(origin, mode="lazy") as client:
        await title(client)
        pause = origin.hold("GET", "/sketch", "read")
        refreshing = asyncio.ensure_future(client.refresh_filter())
        await pause.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        origin.time.advance(6)
        pause.open()
        await refreshing
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(5)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_a_write_while_the_filter_is_on_its_way_is_found_by_the_next_one(
    origin: Origin,
) -> None:
    async with connected(origin, delta_s=1.0) as client:
        await title(client)
        origin.time.advance(1.1)
        pause = origin.hold("GET", "/sketch", "read")
        assert await title(client) == ("old", Source.ORIGIN), "the filter was too old"
        await pause.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        pause.open()
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("old", Source.OWN), "the filter is from before the write"
        origin.time.advance(1.1)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_the_age_header_of_a_filter_counts(origin: Origin) -> None:
    origin.extra = {"age": "8"}
    async with connected(origin) as client:
        origin.extra = {}
        await title(client)
        origin.time.advance(0.9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.2)
        assert await title(client) == ("old", Source.ORIGIN), "0 + 8 + 1 s of rounding + 1.1 > 10"


async def test_a_proxy_that_passes_filters_through_does_not_age_them(origin: Origin) -> None:
    origin.extra = {"age": "0", "via": "1.1 proxy"}
    async with connected(origin, delta_s=1.0) as client:
        await title(client)
        assert await title(client) == ("old", Source.OWN)


async def test_a_304_renews_the_age_of_a_filter(origin: Origin) -> None:
    origin.ttl_s = 30.0
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(9)
        await client.refresh_filter()
        assert client.statistics.filter_not_modified == 1
        origin.time.advance(9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(2)
        assert await title(client) == ("old", Source.ORIGIN)


async def test_a_304_has_the_sketchs_time(origin: Origin) -> None:
    origin.ttl_s = 15.0
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(9)
        await client.refresh_filter()
        origin.time.advance(5.9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.1)
        assert await title(client) == ("old", Source.ORIGIN)


async def test_a_filter_can_be_valid_for_less_than_the_bound(origin: Origin) -> None:
    async with connected(origin, delta_s=500.0) as client:
        await title(client)
        origin.time.advance(9.9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.2)
        assert await title(client) == ("old", Source.ORIGIN)


async def test_lazily_the_read_revalidates_alongside_the_filters_request(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(11)
        pause = origin.hold("GET", "/sketch")
        assert await title(client) == ("old", Source.ORIGIN), "it does not wait for the filter"
        assert origin.requests()[-1].forced
        pause.open()
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("old", Source.OWN)


async def test_eagerly_reads_never_wait_and_never_find_an_old_filter(origin: Origin) -> None:
    async with connected(origin, mode="eager", delta_s=1.0) as client:
        await title(client)
        for number in range(20):
            origin.time.advance(0.45)
            origin.time.advance(0.45)
            await until(lambda: client.statistics.filter_refreshes == number + 2)  # noqa: B023
            assert await title(client) == ("old", Source.OWN)
    assert len(origin.requests()) == 1


async def test_eagerly_filters_are_renewed_before_they_are_invalid(origin: Origin) -> None:
    origin.ttl_s = 600.0
    async with connected(origin, mode="eager", delta_s=500.0) as client:
        await title(client)
        for number in range(5):
            origin.time.advance(9.1)
            await until(lambda: client.statistics.filter_refreshes == number + 2)  # noqa: B023
            origin.time.advance(0.8)
            assert await title(client) == ("old", Source.OWN)
    assert len(origin.requests()) == 1


async def test_eagerly_a_filter_that_failed_is_requested_again_within_the_validity(
    origin: Origin,
) -> None:
    async with connected(origin, mode="eager", delta_s=500.0) as client:
        await title(client)
        origin.filter_status = 503
        origin.time.advance(9.1)
        await until(lambda: client.statistics.filter_failures == 1)
        origin.filter_status = 200
        origin.time.advance(5.1)
        await until(lambda: client.statistics.filter_refreshes == 2)


@pytest.mark.parametrize("digits", [20, 5_000])
async def test_eagerly_a_filter_whose_time_is_too_long_a_number_is_requested_again(
    origin: Origin, digits: int
) -> None:
    async with connected(origin, mode="eager", delta_s=1.0) as client:
        await title(client)
        origin.extra = {"portolan-sketch-time": "9" * digits}
        origin.time.advance(0.95)
        await until(lambda: client.statistics.filter_failures == 1)
        origin.extra = {}
        origin.time.advance(0.6)
        await until(lambda: client.statistics.filter_refreshes == 2)
        assert await title(client) == ("old", Source.OWN)


async def test_eagerly_a_filter_whose_age_is_too_long_a_number_is_not_used(origin: Origin) -> None:
    async with connected(origin, mode="eager", delta_s=1.0) as client:
        await title(client)
        origin.extra = {"age": "9" * 5_000}
        origin.time.advance(0.95)
        await until(lambda: client.statistics.filter_refreshes == 2)
        origin.extra = {}
        origin.time.advance(0.95)
        await until(lambda: client.statistics.filter_refreshes == 3)
        assert await title(client) == ("old", Source.OWN)


async def test_filters_that_are_valid_for_no_time_are_not_requested_without_a_pause(
    origin: Origin,
) -> None:
    origin.valid_for_s = 0.0
    async with connected(origin, mode="eager") as client:
        for _ in range(20):
            origin.time.advance(0.01)
            await client.put("articles", "a2", {"title": "meanwhile"})
        assert len(origin.filters()) <= 4


async def test_reads_share_a_request_that_any_cache_may_answer(origin: Origin) -> None:
    async with connected(origin) as client:
        pause = origin.hold("GET", "a1")
        reads = [asyncio.ensure_future(title(client)) for _ in range(5)]
        await pause.reached.wait()
        pause.open()
        assert await asyncio.gather(*reads) == [("old", Source.ORIGIN)] * 5
    assert len(origin.requests()) == 1
    assert client.statistics.joined == 4


async def test_a_key_in_the_filter_does_not_join_an_older_request(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(61)
        await client.refresh_filter()
        pause = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client))
        await pause.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
        pause.open()
        assert await slow == ("old", Source.ORIGIN)
        assert await title(client) == ("new", Source.OWN), "the older answer came later"


async def test_a_read_by_a_newer_filter_does_not_join_a_request_sent_by_an_older_one(
    origin: Origin,
) -> None:
    """The answer may be as old as the older filter allows, which is too old by now."""
    async with connected(origin) as client:
        pause = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client))
        await pause.reached.wait()
        origin.time.advance(9)
        await client.refresh_filter()
        origin.time.advance(9)
        await title(client)
        assert len(origin.requests()) == 2
        pause.open()
        await slow


async def test_reads_by_the_same_filter_share_a_revalidation_sent_after_it(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        pause = origin.hold("GET", "a1")
        reads = [asyncio.ensure_future(title(client)) for _ in range(3)]
        await pause.reached.wait()
        pause.open()
        assert await asyncio.gather(*reads) == [("new", Source.ORIGIN)] * 3
        assert len(origin.requests()) == 2
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN), "revalidated before this filter"
        assert await title(client) == ("new", Source.OWN), "and after it"


async def test_a_strong_read_joins_nothing_and_uses_no_copy(origin: Origin) -> None:
    async with connected(origin) as client:
        pause = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client, refresh=True))
        await pause.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        assert await title(client, refresh=True) == ("new", Source.ORIGIN)
        pause.open()
        assert await slow == ("old", Source.ORIGIN)
        assert await title(client) == ("new", Source.OWN)


async def test_already_revalidated_never_sends_a_plain_request(origin: Origin) -> None:
    """The shortcut is for the client's own copy: a cache on the way may hold the old one."""
    cache = SharedCache(origin)
    async with connected(origin, cache, cache_bytes=0) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        stale = cache.cached["/v1/news/articles/a1"]
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
        cache.cached["/v1/news/articles/a1"] = stale
        assert await title(client) == ("new", Source.ORIGIN)


async def test_a_response_of_a_cache_that_ignores_no_cache_confirms_nothing(
    origin: Origin,
) -> None:
    cache = SharedCache(origin)
    cache.obeys = False
    async with connected(origin, cache) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        origin.time.advance(2)
        await client.refresh_filter()
        assert await title(client) == ("old", Source.SHARED)
        del cache.cached["/v1/news/articles/a1"]
        assert await title(client) == ("new", Source.ORIGIN), "the copy does not count as checked"


async def test_a_reader_does_not_return_to_an_older_version(origin: Origin) -> None:
    """A strong read finds a version that a cache on the way lacks, in an uncacheable answer."""
    cache = SharedCache(origin)
    async with connected(origin, cache) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        stale = cache.cached["/v1/news/articles/a1"]
        origin.ttl_s = 0.0
        assert await title(client, refresh=True) == ("new", Source.ORIGIN)
        cache.cached["/v1/news/articles/a1"] = stale
        assert await title(client) == ("new", Source.ORIGIN)
