"""The Python client against an origin over HTTP, in exact schedules and a time of its own."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sketch.client import (
    BrokenFilter,
    Closed,
    CoherentClient,
    NotFound,
    PreconditionFailed,
    Source,
    Unavailable,
    Unreachable,
)
from tests.process.caching.coherent_origin import (
    App,
    Door,
    Origin,
    SharedCache,
    VirtualTime,
    served,
    until,
)

PAGE = Path(__file__).parents[3] / "docs" / "caching-clients.md"
OLD = {"title": "old", "text": "t", "hits": 1}


@pytest.fixture
def origin(door: Door) -> Origin:
    place = Origin(VirtualTime())
    place.objects["articles", "a1"] = dict(OLD)
    place.door = door
    return place


@asynccontextmanager
async def connected(
    origin: Origin, app: App | None = None, **options: Any
) -> AsyncIterator[CoherentClient]:
    chosen: dict[str, Any] = {"mode": "lazy", "delta_s": 10.0} | options
    time = origin.time
    assert origin.door is not None
    origin.door.app = app or origin
    async with CoherentClient(
        origin.door.url, "news", clock=time, sleep=time.sleep, **chosen
    ) as client:
        yield client


async def title(client: CoherentClient, id_: str = "a1", **options: Any) -> tuple[str, Source]:
    read = await client.get("articles", id_, **options)
    assert read.value is not None
    return read.value["title"], read.source


# --- what is cached, and for how long ---------------------------------------------------------


async def test_a_copy_is_reused_until_its_end_though_its_max_age_is_zero(origin: Origin) -> None:
    async with connected(origin, delta_s=500.0) as client:
        assert await title(client) == ("old", Source.ORIGIN)
        origin.time.advance(9)
        assert await title(client) == ("old", Source.OWN)
    assert len(origin.asked()) == 1
    assert client.statistics.hits == 1


async def test_a_copy_ends_when_the_sketchs_clock_may_have_passed_its_end(origin: Origin) -> None:
    origin.ttl_s = 5.0
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(4.9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.1)
        assert await title(client) == ("old", Source.ORIGIN)
    assert [e.status for e in origin.asked()] == [200, 304]


async def test_the_sketchs_clock_is_reckoned_from_when_the_filter_was_asked_for(
    origin: Origin,
) -> None:
    """The filter tells the time it was made at, which may be just after it was asked for."""
    origin.ttl_s = 5.0
    async with connected(origin) as client:
        gate = origin.hold("GET", "/sketch", "read")
        refreshing = asyncio.ensure_future(client.refresh_filter())
        await gate.reached.wait()
        origin.time.advance(3)
        gate.open()
        await refreshing
        await title(client)
        origin.time.advance(5)
        assert await title(client) == ("old", Source.ORIGIN)


async def test_what_must_not_be_stored_is_not(origin: Origin) -> None:
    origin.ttl_s = 0.0
    async with connected(origin) as client:
        assert await title(client) == ("old", Source.ORIGIN)
        assert await title(client) == ("old", Source.ORIGIN)
    assert [e.status for e in origin.asked()] == [200, 200]


async def test_what_has_no_life_but_may_be_kept_is_asked_for_by_its_tag(origin: Origin) -> None:
    """As answers of classes that are not switched on: `no-cache`."""
    origin.ttl_s = 0.0
    async with connected(origin) as client:
        origin.extra = {"cache-control": "no-cache"}
        for _ in range(2):
            assert await title(client) == ("old", Source.ORIGIN)
    assert [e.status for e in origin.asked()] == [200, 304]


async def test_an_object_of_a_private_class_is_reused_by_its_client(origin: Origin) -> None:
    origin.visibility = "private"
    async with connected(origin) as client:
        await title(client)
        assert await title(client) == ("old", Source.OWN)


async def test_a_missing_object_is_cached_as_missing_until_it_is_created(origin: Origin) -> None:
    async with connected(origin) as client:
        for _ in range(2):
            with pytest.raises(NotFound) as caught:
                await client.get("articles", "new")
            assert caught.value.kind == "not-found"
        assert len(origin.asked()) == 1
        missing = await client.get("articles", "new", missing_ok=True)
        assert (missing.value, missing.source) == (None, Source.OWN)
        await origin.write("articles", "new", {"title": "here"})
        await client.refresh_filter()
        assert (await client.get("articles", "new")).value == {"id": "new", "title": "here"}


async def test_values_are_the_readers_own(origin: Origin) -> None:
    async with connected(origin) as client:
        first = await client.get("articles", "a1")
        assert first.value is not None
        first.value["title"] = "scribbled"
        assert await title(client) == ("old", Source.OWN)


async def test_the_cache_stays_within_its_size(origin: Origin) -> None:
    for number in range(5):
        origin.objects["articles", f"b{number}"] = {"text": "x" * 1000}
    async with connected(origin, cache_bytes=4000) as client:
        for _ in range(2):
            for number in range(5):
                await client.get("articles", f"b{number}")
    assert client.statistics.evictions == 8
    assert client.statistics.hits == 0


# --- the filter's age -------------------------------------------------------------------------


async def test_a_key_in_the_filter_is_revalidated_to_the_origin(origin: Origin) -> None:
    cache = SharedCache(origin)
    async with connected(origin, cache) as client:
        assert await title(client) == ("old", Source.ORIGIN)
        await origin.write("articles", "a1", {"title": "new"})
        assert await title(client) == ("old", Source.OWN), "the bound allows it"
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
    last = origin.asked()[-1]
    assert last.forced


async def test_a_copy_in_a_shared_cache_is_used_only_while_the_filter_vouches_for_it(
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
    assert origin.asked()[-1].forced


async def test_a_filters_age_counts_from_when_it_was_asked_for(origin: Origin) -> None:
    """Slow filter: made at 0, received at 6; at 11 it is older than 10, whatever the client saw."""
    async with connected(origin, mode="lazy") as client:
        await title(client)
        gate = origin.hold("GET", "/sketch", "read")
        refreshing = asyncio.ensure_future(client.refresh_filter())
        await gate.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        origin.time.advance(6)
        gate.open()
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
        gate = origin.hold("GET", "/sketch", "read")
        assert await title(client) == ("old", Source.ORIGIN), "the filter was too old"
        await gate.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        gate.open()
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("old", Source.OWN), "that filter is from before the write"
        origin.time.advance(1.1)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_the_age_that_a_cache_tells_of_a_filter_counts(origin: Origin) -> None:
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


async def test_a_304_makes_a_filter_as_fresh_as_the_time_it_tells(origin: Origin) -> None:
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


async def test_a_304_tells_the_sketchs_time_too(origin: Origin) -> None:
    origin.ttl_s = 15.0
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(9)
        await client.refresh_filter()
        origin.time.advance(5.9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.1)
        assert await title(client) == ("old", Source.ORIGIN)


async def test_a_filter_that_says_so_is_valid_for_less_than_the_bound(origin: Origin) -> None:
    async with connected(origin, delta_s=500.0) as client:
        await title(client)
        origin.time.advance(9.9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.2)
        assert await title(client) == ("old", Source.ORIGIN)


async def test_lazily_the_read_revalidates_beside_the_filters_request(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(11)
        gate = origin.hold("GET", "/sketch")
        assert await title(client) == ("old", Source.ORIGIN), "it does not wait for the filter"
        assert origin.asked()[-1].forced
        gate.open()
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("old", Source.OWN)


async def test_eagerly_reads_never_wait_and_never_find_an_old_filter(origin: Origin) -> None:
    async with connected(origin, mode="eager", delta_s=1.0) as client:
        await title(client)
        for turn in range(20):
            origin.time.advance(0.45)
            origin.time.advance(0.45)
            await until(lambda: client.statistics.filter_refreshes == turn + 2)  # noqa: B023
            assert await title(client) == ("old", Source.OWN)
    assert len(origin.asked()) == 1


# --- keys in the filter: the origin, and no older request -------------------------------------


async def test_reads_share_a_request_that_any_cache_may_answer(origin: Origin) -> None:
    async with connected(origin) as client:
        gate = origin.hold("GET", "a1")
        reads = [asyncio.ensure_future(title(client)) for _ in range(5)]
        await gate.reached.wait()
        gate.open()
        assert await asyncio.gather(*reads) == [("old", Source.ORIGIN)] * 5
    assert len(origin.asked()) == 1
    assert client.statistics.joined == 4


async def test_a_key_in_the_filter_does_not_join_an_older_request(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(61)
        await client.refresh_filter()
        gate = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client))
        await gate.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
        gate.open()
        assert await slow == ("old", Source.ORIGIN)
        assert await title(client) == ("new", Source.OWN), "the older answer came later"


async def test_a_read_by_a_newer_filter_does_not_join_a_request_sent_by_an_older_one(
    origin: Origin,
) -> None:
    """The answer may be as old as the older filter allows, which is too old by now."""
    async with connected(origin) as client:
        gate = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client))
        await gate.reached.wait()
        origin.time.advance(9)
        await client.refresh_filter()
        origin.time.advance(9)
        await title(client)
        assert len(origin.asked()) == 2
        gate.open()
        await slow


async def test_reads_by_the_same_filter_share_a_revalidation_sent_after_it(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        gate = origin.hold("GET", "a1")
        reads = [asyncio.ensure_future(title(client)) for _ in range(3)]
        await gate.reached.wait()
        gate.open()
        assert await asyncio.gather(*reads) == [("new", Source.ORIGIN)] * 3
        assert len(origin.asked()) == 2
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN), "revalidated before this filter"
        assert await title(client) == ("new", Source.OWN), "and after it"


async def test_a_strong_read_joins_nothing_and_uses_no_copy(origin: Origin) -> None:
    async with connected(origin) as client:
        gate = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client, refresh=True))
        await gate.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        assert await title(client, refresh=True) == ("new", Source.ORIGIN)
        gate.open()
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


async def test_an_answer_by_a_cache_that_ignores_no_cache_vouches_for_nothing(
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


async def test_what_was_seen_is_not_unseen(origin: Origin) -> None:
    """A strong read finds what a cache on the way does not know of yet, and must not keep it."""
    cache = SharedCache(origin)
    async with connected(origin, cache) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        stale = cache.cached["/v1/news/articles/a1"]
        origin.ttl_s = 0.0
        assert await title(client, refresh=True) == ("new", Source.ORIGIN)
        cache.cached["/v1/news/articles/a1"] = stale
        assert await title(client) == ("new", Source.ORIGIN)


# --- copies that are young enough, whatever filters say ----------------------------------------


async def test_a_copy_younger_than_the_bound_is_used_though_the_filter_names_it(
    origin: Origin,
) -> None:
    async with connected(origin) as client:
        origin.time.advance(7)
        assert await title(client, refresh=True) == ("old", Source.ORIGIN)
        await origin.write("articles", "a1", {"title": "new"})
        origin.time.advance(4)
        assert await title(client) == ("old", Source.OWN)
        await until(lambda: client.statistics.filter_refreshes >= 2)
        origin.time.advance(5.9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.2)
        assert await title(client) == ("new", Source.ORIGIN)
        assert len(origin.asked()) == 2


async def test_what_another_cache_answered_is_as_young_as_the_filter(origin: Origin) -> None:
    """When it was read is not known, only that it was not outdated when the filter was made."""
    cache = SharedCache(origin)
    async with connected(origin, cache) as other:
        await title(other)
    async with connected(origin, cache, mode="eager") as client:
        await client.get("articles", "a2", missing_ok=True)
        origin.time.advance(8)
        assert await title(client) == ("old", Source.SHARED)
        await origin.write("articles", "a1", {"title": "new"})
        origin.time.advance(1.5)
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.6)
        assert await title(client) == ("new", Source.ORIGIN)


@asynccontextmanager
async def in_demand(origin: Origin, count: int, reads: int = 2) -> AsyncIterator[CoherentClient]:
    """Connect eagerly, and read so many objects that the filter names; they will soon be old."""
    ids = [f"a{number}" for number in range(1, count + 1)]
    for id_ in ids:
        origin.objects["articles", id_] = dict(OLD)
    async with connected(origin, mode="eager") as client:
        for seconds in (0, 5):
            await pass_by(origin, seconds)
        for id_ in ids:
            await title(client, id_, refresh=True)
            await origin.write("articles", id_, {"title": "new"})
        await pass_by(origin, 4)
        for id_ in reads * ids:
            assert await title(client, id_) == ("old", Source.OWN)
        yield client


async def read_often(client: CoherentClient, count: int) -> None:
    """Read objects as often as makes it worth renewing them."""
    for number in 2 * list(range(1, count + 1)):
        await title(client, f"a{number}")


async def pass_by(origin: Origin, seconds: float) -> None:
    """Let time pass, until what an eager client does by itself is done."""
    origin.time.advance(seconds)
    await until(lambda: len(origin.time.sleepers) == 2)


async def test_eagerly_what_is_read_and_grows_old_is_revalidated_before_anybody_waits(
    origin: Origin,
) -> None:
    async with in_demand(origin, 1) as client:
        gate = origin.hold("GET", "a1")
        origin.time.advance(2.5)
        await gate.reached.wait()
        assert origin.asked()[-1].forced
        assert await title(client) == ("old", Source.OWN)
        gate.open()
        async with asyncio.timeout(20):
            while await title(client) != ("new", Source.OWN):  # noqa: ASYNC110 - see `until`
                await asyncio.sleep(0.001)
        assert len(origin.asked()) == 2
    assert origin.batches == []


async def test_eagerly_many_objects_are_renewed_in_one_request(origin: Origin) -> None:
    async with in_demand(origin, 7) as client:
        del origin.objects["articles", "a5"]
        asked = len(origin.asked())
        await pass_by(origin, 2.5)
        assert len(origin.asked()) == asked
        assert [sorted(batch) for batch in origin.batches] == [[f"a{n}" for n in range(1, 8)]]
        await pass_by(origin, 5)
        for number in (1, 2, 3, 4, 6, 7):
            assert await title(client, f"a{number}") == ("new", Source.OWN)
        with pytest.raises(NotFound):
            await title(client, "a5")
        assert (client.statistics.renewals, client.statistics.renewed) == (1, 6)


async def test_what_has_not_changed_is_renewed_by_its_tag(origin: Origin) -> None:
    async with in_demand(origin, 5) as client:
        await pass_by(origin, 2.5)
        await read_often(client, 5)
        await pass_by(origin, 7)
        assert client.statistics.renewed == 10
        assert client.statistics.bytes_received < 5_000
        await pass_by(origin, 5)
        assert await title(client) == ("new", Source.OWN)


async def test_what_was_read_but_once_is_not_renewed(origin: Origin) -> None:
    async with in_demand(origin, 5, reads=1) as client:
        for _ in range(3):
            await pass_by(origin, 2.5)
        assert client.statistics.renewals == 0


async def test_what_is_read_no_more_is_renewed_no_more(origin: Origin) -> None:
    async with in_demand(origin, 5) as client:
        for _ in range(20):
            await pass_by(origin, 2.5)
        done = client.statistics.renewals
        assert 1 <= done <= 5
        for _ in range(5):
            await pass_by(origin, 2.5)
        assert client.statistics.renewals == done


async def test_what_has_not_changed_for_long_gets_a_life_again(origin: Origin) -> None:
    origin.ttl_s = 20.0
    async with in_demand(origin, 5) as client:
        while len(origin.asked()) == 5:
            await pass_by(origin, 1.5)
            await read_often(client, 5)
        done = len(origin.batches)
        assert done > 5
        assert len(origin.asked()) == 10
        assert {each.status for each in origin.asked()[5:]} == {304}
        await pass_by(origin, 9)
        assert await title(client) == ("new", Source.OWN)
        await pass_by(origin, 2)
        assert await title(client) == ("new", Source.OWN), "by the life it got"
        assert len(origin.batches) == done


async def test_an_answer_that_makes_no_sense_ends_nothing(origin: Origin) -> None:
    async with in_demand(origin, 7) as client:
        origin.batch_items = 2
        await pass_by(origin, 2.5)
        assert (client.statistics.renewals, client.statistics.renewed) == (1, 2)
        origin.batch_items = None
        await pass_by(origin, 2)
        assert (client.statistics.renewals, client.statistics.renewed) == (2, 7)


async def test_what_changes_again_and_again_is_asked_for_together(origin: Origin) -> None:
    """It has no lives then, so that no filter has to name it."""
    origin.ttl_s = 6.0
    ids = [f"a{number}" for number in range(1, 6)]
    async with in_demand(origin, len(ids)) as client:
        for tick in range(60):
            await pass_by(origin, 1.5)
            await read_often(client, len(ids))
            for id_ in ids if tick % 10 == 0 else ():
                await origin.write("articles", id_, {"title": f"{tick}"})
        assert len(origin.asked()) == len(ids)
        assert client.statistics.renewals > 5


async def test_what_is_always_read_afresh_is_not_renewed(origin: Origin) -> None:
    ids = [f"a{number}" for number in range(1, 6)]
    for id_ in ids:
        origin.objects["articles", id_] = dict(OLD)
    async with connected(origin, mode="eager") as client:
        for _ in range(10):
            await pass_by(origin, 1.5)
            for id_ in ids:
                await title(client, id_, refresh=True)
                await origin.write("articles", id_, {"title": "new"})
        for _ in range(6):
            await pass_by(origin, 1.5)
        assert origin.batches == []


@asynccontextmanager
async def renewing(client: CoherentClient, origin: Origin, before: int) -> AsyncIterator[None]:
    """Hold the answer to a renewal that comes after so many others; the block goes on meanwhile."""
    for _ in range(before):
        await pass_by(origin, 2.5)
        await read_often(client, 5)
        assert await title(client) == ("new", Source.OWN)
        await pass_by(origin, 4.5)
    gate = origin.hold("POST", "/batch", "read")
    origin.time.advance(2.5)
    await gate.reached.wait()
    yield
    gate.open()
    await pass_by(origin, 0)
    assert client.statistics.renewals == before + 1


@pytest.mark.parametrize("before", [0, 1])
async def test_what_was_renewed_is_as_old_as_the_request(origin: Origin, before: int) -> None:
    async with in_demand(origin, 5) as client:
        async with renewing(client, origin, before):
            await origin.write("articles", "a1", {"title": "newest"})
            origin.time.advance(6)
        origin.filter_status = 503
        assert await title(client) == ("new", Source.OWN)
        origin.time.advance(4.1)
        assert await title(client) == ("newest", Source.ORIGIN)


@pytest.mark.parametrize("before", [0, 1])
async def test_a_renewal_that_comes_late_takes_nothing_back(origin: Origin, before: int) -> None:
    async with in_demand(origin, 5) as client:
        async with renewing(client, origin, before):
            await origin.write("articles", "a1", {"title": "newest"})
            assert await title(client, refresh=True) == ("newest", Source.ORIGIN)
            await client.patch("articles", "a2", {"title": "mine"})
        assert (await title(client))[0] == "newest"
        assert (await title(client, "a2"))[0] == "mine"


@pytest.mark.parametrize("fault", [{"batch_status": 503}, {"is_partial": True}])
async def test_where_nothing_can_be_renewed_readers_revalidate(
    origin: Origin, fault: dict[str, Any]
) -> None:
    async with in_demand(origin, 5) as client:
        vars(origin).update(fault)
        await pass_by(origin, 2.5)
        assert (client.statistics.renewals, client.statistics.renewed) == (1, 0)
        origin.time.advance(4)
        assert await title(client) == ("new", Source.ORIGIN)


@pytest.mark.parametrize("mode", ["lazy", "eager"])
async def test_nothing_is_revalidated_ahead_that_may_never_have_to_be(
    origin: Origin, mode: str
) -> None:
    """Lazily, and what the filter does not name."""
    async with connected(origin, mode=mode) as client:
        origin.time.advance(1)
        await title(client, refresh=True)
        if mode == "lazy":
            await origin.write("articles", "a1", {"title": "new"})
        origin.time.advance(9.5)
        for _ in range(3):
            assert await title(client) == ("old", Source.OWN)
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("old", Source.OWN)
        assert len(origin.asked()) == 1
        assert origin.batches == []


async def test_a_filter_that_was_asked_for_on_purpose_is_heeded(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        origin.time.advance(1)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_without_a_filter_a_young_copy_will_do(origin: Origin) -> None:
    async with connected(origin) as client:
        origin.time.advance(9)
        await title(client, refresh=True)
        origin.filter_status = 503
        origin.time.advance(9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(2)
        assert await title(client) == ("old", Source.ORIGIN)


async def test_a_copy_confirmed_while_a_write_is_pending_is_shown_while_it_is_young(
    origin: Origin,
) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(11)
        gate = origin.hold("PATCH", "a1", "read")
        writing = asyncio.ensure_future(origin.write("articles", "a1", {"title": "new"}))
        await gate.reached.wait()
        assert await title(client) == ("old", Source.ORIGIN)
        assert origin.asked()[-1].status == 304
        gate.open()
        await writing
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(10.1)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_an_answer_that_was_overtaken_by_a_newer_one_is_not_shown_again(
    origin: Origin,
) -> None:
    """Asked for first and read last: it is the later answer that the versions call older."""
    async with connected(origin) as client:
        late = origin.hold("GET", "a1")
        first = asyncio.ensure_future(title(client, refresh=True))
        await late.reached.wait()
        early = origin.hold("GET", "a1", "read")
        second = asyncio.ensure_future(title(client, refresh=True))
        await early.reached.wait()
        await origin.write("articles", "a1", {"title": "new"})
        late.open()
        assert await first == ("new", Source.ORIGIN)
        early.open()
        assert await second == ("old", Source.ORIGIN), "it began before the first had come"
        assert await title(client) == ("new", Source.OWN)


# --- own writes -------------------------------------------------------------------------------


async def test_what_a_write_answers_is_kept_while_it_is_young(origin: Origin) -> None:
    origin.shows_whole = True
    async with connected(origin) as client:
        await client.patch("articles", "a1", {"title": "mine"})
        origin.time.advance(9)
        read = await client.get("articles", "a1")
        assert (read.value, read.source) == (OLD | {"id": "a1", "title": "mine"}, Source.OWN)
        assert read.etag == origin.tag("articles", "a1")
        assert not origin.asked()
        origin.time.advance(2)
        assert await title(client) == ("mine", Source.ORIGIN)
    assert origin.asked()[-1].headers["if-none-match"] == read.etag


async def test_what_a_write_answers_is_as_old_as_its_request(origin: Origin) -> None:
    origin.shows_whole = True
    async with connected(origin) as client:
        gate = origin.hold("PATCH", "a1", "read")
        writing = asyncio.ensure_future(client.patch("articles", "a1", {"title": "mine"}))
        await gate.reached.wait()
        origin.time.advance(9)
        gate.open()
        await writing
        await origin.write("articles", "a1", {"title": "new"})
        assert await title(client) == ("mine", Source.OWN)
        origin.time.advance(1.1)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_of_two_own_writes_the_later_one_is_kept_whichever_is_answered_last(
    origin: Origin,
) -> None:
    origin.shows_whole = True
    for method in ("PATCH", "PUT"):
        async with connected(origin) as client:
            gate = origin.hold(method, "a1")
            if method == "PATCH":
                last = client.patch("articles", "a1", {"title": "last"})
            else:
                last = client.put("articles", "a1", OLD | {"title": "last"})
            writing = asyncio.ensure_future(last)
            await gate.reached.wait()
            await client.patch("articles", "a1", {"title": "first"})
            assert await title(client) == ("first", Source.OWN)
            gate.open()
            await writing
            assert await title(client) == ("last", Source.OWN)


async def test_what_was_read_beside_an_own_write_is_not_unseen_by_its_answer(
    origin: Origin,
) -> None:
    origin.shows_whole = True
    door = origin.door
    assert door is not None
    async with connected(origin) as client:
        answered = asyncio.Event()

        async def late(scope: Any, receive: Any, send: Any) -> None:
            async def held(message: Any) -> None:
                if scope["method"] == "PATCH":
                    await answered.wait()
                await send(message)

            await origin(scope, receive, held)

        door.app = late
        writing = asyncio.ensure_future(client.patch("articles", "a1", {"title": "mine"}))
        await until(lambda: origin.objects["articles", "a1"]["title"] == "mine")
        await origin.write("articles", "a1", {"title": "theirs"})
        assert await title(client, refresh=True) == ("theirs", Source.ORIGIN)
        answered.set()
        await writing
        assert await title(client) == ("theirs", Source.OWN)


async def test_what_was_asked_for_beside_an_own_write_may_know_of_it(origin: Origin) -> None:
    origin.shows_whole = True
    async with connected(origin) as client:
        gate = origin.hold("GET", "a1")
        slow = asyncio.ensure_future(title(client, refresh=True))
        await gate.reached.wait()
        await client.patch("articles", "a1", {"title": "mine"})
        gate.open()
        assert await slow == ("mine", Source.ORIGIN)
        assert await title(client) == ("mine", Source.OWN)


async def test_a_class_that_is_not_cached_is_not_kept_by_writing_it_either(
    origin: Origin,
) -> None:
    origin.shows_whole = True
    origin.groups = {"notes": {"main": ["text"]}}
    async with connected(origin) as client:
        origin.groups = {"articles": {"main": ["text", "title", "hits"]}}
        await client.patch("articles", "a1", {"title": "mine"})
        assert await title(client) == ("mine", Source.ORIGIN)


async def test_a_copy_from_before_an_own_write_is_not_young_enough(origin: Origin) -> None:
    """Also when the filter knows of the write, and it need not be remembered for its sake."""
    async with connected(origin, mode="eager") as client:
        await title(client)
        origin.time.advance(8)
        await title(client, refresh=True)
        await client.patch("articles", "a1", {"title": "mine"})
        origin.time.advance(1.5)
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("mine", Source.ORIGIN)


async def test_a_client_sees_its_own_write_before_any_filter_does(origin: Origin) -> None:
    cache = SharedCache(origin)
    async with connected(origin, cache) as client:
        await title(client)
        written = await client.put("articles", "a1", OLD | {"title": "mine"})
        assert written.etag == origin.tag("articles", "a1")
        assert written.position == "p1"
        assert await title(client) == ("mine", Source.ORIGIN)
        assert await title(client) == ("mine", Source.OWN), "revalidated after the write"


async def test_own_writes_are_remembered_until_a_filter_asked_for_after_them(
    origin: Origin,
) -> None:
    cache = SharedCache(origin)
    async with connected(origin, cache, cache_bytes=0) as client:
        await title(client)
        stale = cache.cached["/v1/news/articles/a1"]
        gate = origin.hold("GET", "/sketch", "read")
        refreshing = asyncio.ensure_future(client.refresh_filter())
        await gate.reached.wait()
        await client.patch("articles", "a1", {"title": "mine"})
        gate.open()
        await refreshing
        assert (await title(client))[0] == "mine", "that filter is from before the write"
        cache.cached["/v1/news/articles/a1"] = stale
        await client.refresh_filter()
        assert (await title(client))[0] == "mine", "now the filter knows"
        origin.time.advance(61)
        await client.refresh_filter()
        await title(client)
    assert not origin.asked()[-1].forced


async def test_reads_beside_an_own_write_may_come_before_it(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        gate = origin.hold("PUT", "a1", "read")
        writing = asyncio.ensure_future(client.put("articles", "a1", OLD | {"title": "mine"}))
        await gate.reached.wait()
        assert await title(client) == ("old", Source.OWN)
        gate.open()
        await writing
        assert await title(client) == ("mine", Source.ORIGIN)


@pytest.mark.parametrize("told", ["the filter names it", "there is no filter", "it was unsaid"])
async def test_a_read_after_an_own_write_joins_no_request_from_before_it(
    origin: Origin, told: str
) -> None:
    async with connected(origin) as client:
        await title(client)
        if told == "the filter names it":
            await origin.write("articles", "a1", {"title": "new"})
            await client.refresh_filter()
        elif told == "there is no filter":
            origin.filter_status = 503
            origin.time.advance(11)
        else:
            await origin.write("articles", "a1", {"title": "new"})
            origin.ttl_s = 0.0
            await title(client, refresh=True)
        gate = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client))
        await gate.reached.wait()
        await client.patch("articles", "a1", {"title": "mine"})
        assert await title(client) == ("mine", Source.ORIGIN)
        gate.open()
        await slow


async def test_a_write_whose_outcome_is_unknown_is_remembered_too(origin: Origin) -> None:
    async with connected(origin, timeout_s=0.2) as client:
        await title(client)
        gate = origin.hold("PUT", "a1", "arrived")
        with pytest.raises(Unreachable):
            await client.put("articles", "a1", OLD | {"title": "mine"})
        gate.open()
        await until(lambda: origin.objects["articles", "a1"]["title"] == "mine")
        assert (await title(client))[0] == "mine"


async def test_a_write_to_one_group_leaves_the_others_alone(origin: Origin) -> None:
    async with connected(origin) as client:
        await client.get("articles", "a1", fields=["title", "text"])
        await client.get("articles", "a1", fields="hits")
        await client.patch("articles", "a1", {"hits": 2}, form="update")
        read = await client.get("articles", "a1", fields=("text", "title", "text"))
        assert (read.value, read.source) == ({"id": "a1", "title": "old", "text": "t"}, Source.OWN)
        hits = await client.get("articles", "a1", fields=["hits"])
        assert (hits.value, hits.source) == ({"id": "a1", "hits": 2}, Source.ORIGIN)
    assert origin.asked()[0].path.endswith("/a1?fields=text,title")


async def test_a_put_of_some_fields_is_remembered_by_their_groups(origin: Origin) -> None:
    async with connected(origin) as client:
        await client.get("articles", "a1", fields=["title"])
        await client.put("articles", "a1", {"hits": 3}, fields=iter(["hits"]))
        read = await client.get("articles", "a1", fields=["title"])
        assert read.source == Source.OWN
    assert origin.asked("PUT")[0].path.endswith("/a1?fields=hits")


async def test_a_created_and_a_deleted_object_are_seen(origin: Origin) -> None:
    async with connected(origin) as client:
        missing = await client.get("notes", "n1", missing_ok=True)
        assert missing.value is None
        made = await client.post("notes", {"id": "n1", "text": "x"})
        assert made.location == "/v1/news/notes/n1"
        read = await client.get("notes", "n1")
        assert read.value == {"id": "n1", "text": "x"}
        with pytest.raises(PreconditionFailed):
            await client.delete("notes", "n1", if_match='"j1.main:9"')
        await client.delete("notes", "n1", if_match=read.etag)
        with pytest.raises(NotFound):
            await client.get("notes", "n1")


# --- what is wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda raw: raw[:-9],
        lambda raw: b"",
        lambda raw: raw[:4] + b"\x02" + raw[5:],
    ],
    ids=["checksum", "cut", "empty", "version"],
)
async def test_after_a_broken_filter_everything_is_revalidated(origin: Origin, damage: Any) -> None:
    async with connected(origin) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        origin.damage = damage
        with pytest.raises(BrokenFilter):
            await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
        assert origin.asked()[-1].forced
        origin.damage = bytes
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
        assert await title(client) == ("new", Source.OWN)


async def test_without_filters_reads_revalidate_once_the_last_one_is_too_old(
    origin: Origin,
) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.filter_status = 503
        with pytest.raises(Unavailable):
            await client.refresh_filter()
        assert await title(client) == ("old", Source.OWN), "the bound still holds"
        origin.time.advance(10.1)
        assert await title(client) == ("old", Source.ORIGIN)
        for id_ in ("a2", "a3"):
            await client.get("articles", id_, missing_ok=True)
            assert origin.asked()[-1].forced
        await until(lambda: client.statistics.filter_failures == 2)
        assert len(origin.filters()) == 3, "it is not asked for at every read"
        origin.filter_status = 200
        origin.time.advance(5.1)
        await title(client)
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("old", Source.OWN)


async def test_a_client_starts_without_a_filter(origin: Origin) -> None:
    origin.filter_status = 503
    async with connected(origin, mode="eager", delta_s=1.0) as client:
        assert await title(client) == ("old", Source.ORIGIN)
        origin.filter_status = 200
        origin.time.advance(0.6)
        await until(lambda: client.statistics.filter_refreshes == 1)
        await title(client)
        assert await title(client) == ("old", Source.OWN)


@pytest.mark.parametrize("told", [True, False], ids=["told by the filter", "not told"])
async def test_another_generation_makes_every_copy_doubtful(origin: Origin, told: bool) -> None:
    """The sketch was lost, and with it who holds what: a write since then is in no filter."""
    async with connected(origin) as client:
        await title(client)
        origin.begin_anew(fresh=not told)
        origin.fresh = not told
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
        assert origin.asked()[-1].forced


async def test_another_map_of_groups_makes_every_copy_doubtful(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.groups = {"articles": {"main": ["text"], "head": ["title"], "hits": ["hits"]}}
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)


async def test_a_copy_asked_for_before_the_sketch_was_lost_is_doubtful_when_it_comes(
    origin: Origin,
) -> None:
    async with connected(origin) as client:
        gate = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client))
        await gate.reached.wait()
        origin.begin_anew()
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        gate.open()
        assert await slow == ("old", Source.ORIGIN)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_a_copy_confirmed_beside_a_filter_of_another_generation_is_doubtful(
    origin: Origin,
) -> None:
    """Which of the two sketches its answer was reported to is not known."""
    async with connected(origin) as client:
        gate = origin.hold("GET", "/sketch")
        refreshing = asyncio.ensure_future(client.refresh_filter())
        await gate.reached.wait()
        await title(client, refresh=True)
        origin.begin_anew()
        gate.open()
        await refreshing
        assert await title(client) == ("old", Source.OWN), "it is young enough without any filter"
        await client.refresh_filter()
        assert await title(client) == ("old", Source.ORIGIN)
        assert origin.asked()[-1].forced


async def test_a_filter_older_than_the_one_before_is_refused(origin: Origin) -> None:
    """A cache that stores filters and tells no age must not make the bound longer."""
    async with connected(origin) as client:
        await title(client)
        old_clock = origin.time.now
        origin.time.advance(5)
        await client.refresh_filter()
        origin.sketch._clock = lambda: (
            origin.clock_us() - round((origin.time.now - old_clock) * 1_000_000)
        )
        with pytest.raises(BrokenFilter):
            await client.refresh_filter()


async def test_a_class_that_the_filter_does_not_know_is_read_at_the_origin(origin: Origin) -> None:
    origin.groups = {"notes": {"main": ["text"]}}
    async with connected(origin) as client:
        origin.groups = {"articles": {"main": ["text", "title", "hits"]}}
        for _ in range(2):
            assert await title(client) == ("old", Source.ORIGIN)
            assert origin.asked()[-1].forced


async def test_a_views_answer_is_asked_for_again_at_the_systems(origin: Origin) -> None:
    """What bounds the view's age is the schema: that may be more than this client's bound."""
    async with connected(origin) as client:
        origin.extra = {"portolan-staleness": "bound=60, measured=3"}
        await title(client)
        origin.extra = {}
        await client.get("articles", "a1", refresh=True)
    wishes = [each.headers.get("prefer") for each in origin.asked()]
    assert wishes == [None, "consistency=strong", "consistency=strong"]


async def test_at_least_a_position_is_asked_for_at_the_origin_and_not_kept(
    origin: Origin,
) -> None:
    async with connected(origin) as client:
        position = (await client.patch("articles", "a1", {"title": "mine"})).position
        assert position is not None
        async with connected(origin) as reader:
            assert await title(reader, at_least=position) == ("mine", Source.ORIGIN)
            assert await title(reader) == ("mine", Source.ORIGIN)
        asked = origin.asked()
        assert asked[-2].headers["prefer"] == "at-least=p1, max-staleness=10.000000"
        with pytest.raises(ValueError):
            await client.get("articles", "a1", at_least="p1\r\nX: y")


async def test_an_error_at_revalidation_is_an_error(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        await client.patch("articles", "a1", {"title": "mine"})
    async with served(origin) as url:
        lost = CoherentClient(url, "news", clock=origin.time)
        await lost.refresh_filter()
        await title(lost)
    with pytest.raises(Unreachable):
        await lost.get("articles", "a1", refresh=True)
    assert await title(lost) == ("mine", Source.OWN)
    await lost.close()


# --- ends -------------------------------------------------------------------------------------


async def test_a_reader_that_gives_up_does_not_take_others_with_it(origin: Origin) -> None:
    async with connected(origin) as client:
        gate = origin.hold("GET", "a1")
        first, second = (asyncio.ensure_future(title(client)) for _ in range(2))
        await gate.reached.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        gate.open()
        assert await second == ("old", Source.ORIGIN)


async def test_a_request_that_all_readers_gave_up_is_joined_by_nobody(origin: Origin) -> None:
    async with connected(origin) as client:
        gate = origin.hold("GET", "a1")
        only = asyncio.ensure_future(title(client))
        await gate.reached.wait()
        only.cancel()
        await asyncio.wait([only])
        assert await title(client) == ("old", Source.ORIGIN)
        gate.open()


async def test_closing_ends_the_reads_under_way(origin: Origin) -> None:
    async with connected(origin, mode="eager") as client:
        gate = origin.hold("GET", "a1")
        reading = asyncio.ensure_future(title(client))
        await gate.reached.wait()
        await client.close()
        with pytest.raises(Closed):
            await reading
        with pytest.raises(Closed):
            await title(client)
        gate.open()


@pytest.mark.parametrize("id_", ["query", "ä/#?% +", "!'()*~", "%41", "日本"])
async def test_any_id_is_found_at_its_address_and_by_its_key(origin: Origin, id_: str) -> None:
    async with connected(origin) as client:
        origin.objects["articles", id_] = dict(OLD)
        await client.get("articles", id_)
        await origin.write("articles", id_, {"title": "new"})
        await client.refresh_filter()
        read = await client.get("articles", id_)
        assert read.value == OLD | {"title": "new", "id": id_}
    assert not origin.asked()[-1].path.endswith("/query")


# --- the page ------------------------------------------------------------------------------------


async def test_the_page_shows_it_in_ten_lines(
    origin: Origin, door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    door.app = origin
    printed = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert printed is not None
    text = printed[1].replace("https://cache.example", door.url)
    assert len([line for line in text.splitlines() if line]) <= 10
    told: dict[str, Any] = {}
    await eval(compile(text, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), told)
    assert capsys.readouterr().out == "old own\n"
    assert told["changed"].value["title"] == told["exact"].value["title"] == "New"
    assert told["teaser"].value == {"id": "a1", "title": "New"}
