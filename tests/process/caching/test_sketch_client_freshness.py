"""Copies that are young enough whatever the filter contains, and their renewal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sketch.client import (
    CoherentClient,
    NotFound,
    Source,
)
from tests.faults.conditions import WITHIN_S
from tests.process.caching.coherent_origin import Origin, SharedCache
from tests.process.caching.serving import until
from tests.process.caching.sketch_clients import OLD, connected, title


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
        assert len(origin.requests()) == 2


async def test_a_response_of_a_shared_cache_is_as_old_as_the_filter(origin: Origin) -> None:
    """Its time of read is unknown, but it was not outdated at the filter's snapshot."""
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
    """Connect eagerly, and read `count` objects of the filter, which will soon be old."""
    ids = [f"a{number}" for number in range(1, count + 1)]
    for id_ in ids:
        origin.objects["articles", id_] = dict(OLD)
    async with connected(origin, mode="eager") as client:
        for seconds in (0, 5):
            await advance(origin, seconds)
        for id_ in ids:
            await title(client, id_, refresh=True)
            await origin.write("articles", id_, {"title": "new"})
        await advance(origin, 4)
        for id_ in reads * ids:
            assert await title(client, id_) == ("old", Source.OWN)
        yield client


async def read_often(client: CoherentClient, count: int) -> None:
    """Read objects often enough to have them renewed."""
    for number in 2 * list(range(1, count + 1)):
        await title(client, f"a{number}")


async def advance(origin: Origin, seconds: float) -> None:
    """Advance the time, and wait for the background work of an eager client."""
    origin.time.advance(seconds)
    await until(lambda: len(origin.time.sleepers) == 2)


async def test_in_eager_mode_copies_in_demand_are_revalidated_ahead(
    origin: Origin,
) -> None:
    async with in_demand(origin, 1) as client:
        pause = origin.hold("GET", "a1")
        origin.time.advance(2.5)
        await pause.reached.wait()
        assert origin.requests()[-1].forced
        assert await title(client) == ("old", Source.OWN)
        pause.open()
        async with asyncio.timeout(WITHIN_S):
            while await title(client) != ("new", Source.OWN):  # noqa: ASYNC110 - see `until`
                await asyncio.sleep(0.001)
        assert len(origin.requests()) == 2
    assert origin.batches == []


async def test_eagerly_many_objects_are_renewed_in_one_request(origin: Origin) -> None:
    async with in_demand(origin, 7) as client:
        del origin.objects["articles", "a5"]
        before = len(origin.requests())
        await advance(origin, 2.5)
        assert len(origin.requests()) == before
        assert [sorted(batch) for batch in origin.batches] == [[f"a{n}" for n in range(1, 8)]]
        await advance(origin, 5)
        for number in (1, 2, 3, 4, 6, 7):
            assert await title(client, f"a{number}") == ("new", Source.OWN)
        with pytest.raises(NotFound):
            await title(client, "a5")
        assert (client.statistics.renewals, client.statistics.renewed) == (1, 6)


async def test_an_unchanged_copy_is_renewed_by_its_etag(origin: Origin) -> None:
    async with in_demand(origin, 5) as client:
        await advance(origin, 2.5)
        await read_often(client, 5)
        await advance(origin, 7)
        assert client.statistics.renewed == 10
        assert client.statistics.bytes_received < 5_000
        await advance(origin, 5)
        assert await title(client) == ("new", Source.OWN)


async def test_a_copy_read_only_once_is_not_renewed(origin: Origin) -> None:
    async with in_demand(origin, 5, reads=1) as client:
        for _ in range(3):
            await advance(origin, 2.5)
        assert client.statistics.renewals == 0


async def test_a_copy_that_is_no_longer_read_is_no_longer_renewed(origin: Origin) -> None:
    async with in_demand(origin, 5) as client:
        for _ in range(20):
            await advance(origin, 2.5)
        renewals = client.statistics.renewals
        assert 1 <= renewals <= 5
        for _ in range(5):
            await advance(origin, 2.5)
        assert client.statistics.renewals == renewals


async def test_a_copy_unchanged_for_long_gets_a_ttl_again(origin: Origin) -> None:
    origin.ttl_s = 20.0
    async with in_demand(origin, 5) as client:
        unchanged = client.statistics.not_modified
        while len(origin.requests()) == 5:
            await advance(origin, 1.5)
            await read_often(client, 5)
        # No round waits for objects that are requested singly.
        await until(lambda: client.statistics.not_modified == unchanged + 5)
        batches = len(origin.batches)
        assert batches > 5
        assert len(origin.requests()) == 10
        assert {exchange.status for exchange in origin.requests()[5:]} == {304}
        await advance(origin, 9)
        assert await title(client) == ("new", Source.OWN)
        await advance(origin, 2)
        assert await title(client) == ("new", Source.OWN), "by the TTL it got"
        assert len(origin.batches) == batches


async def test_an_incomplete_batch_response_does_not_stop_renewals(origin: Origin) -> None:
    async with in_demand(origin, 7) as client:
        origin.batch_items = 2
        await advance(origin, 2.5)
        assert (client.statistics.renewals, client.statistics.renewed) == (1, 2)
        origin.batch_items = None
        await advance(origin, 2)
        assert (client.statistics.renewals, client.statistics.renewed) == (2, 7)


async def test_copies_that_change_often_are_renewed_in_batches(origin: Origin) -> None:
    """They get no TTLs then, so no filter has to contain them."""
    origin.ttl_s = 6.0
    ids = [f"a{number}" for number in range(1, 6)]
    async with in_demand(origin, len(ids)) as client:
        for tick in range(60):
            await advance(origin, 1.5)
            await read_often(client, len(ids))
            for id_ in ids if tick % 10 == 0 else ():
                await origin.write("articles", id_, {"title": f"{tick}"})
        assert len(origin.requests()) == len(ids)
        assert client.statistics.renewals > 5


async def test_a_copy_that_is_always_refreshed_is_not_renewed(origin: Origin) -> None:
    ids = [f"a{number}" for number in range(1, 6)]
    for id_ in ids:
        origin.objects["articles", id_] = dict(OLD)
    async with connected(origin, mode="eager") as client:
        for _ in range(10):
            await advance(origin, 1.5)
            for id_ in ids:
                await title(client, id_, refresh=True)
                await origin.write("articles", id_, {"title": "new"})
        for _ in range(6):
            await advance(origin, 1.5)
        assert origin.batches == []


@asynccontextmanager
async def renewing(client: CoherentClient, origin: Origin, before: int) -> AsyncIterator[None]:
    """Pause the answer to a renewal after `before` others, while the block runs."""
    for _ in range(before):
        await advance(origin, 2.5)
        await read_often(client, 5)
        assert await title(client) == ("new", Source.OWN)
        await advance(origin, 4.5)
    pause = origin.hold("POST", "/batch", "read")
    origin.time.advance(2.5)
    await pause.reached.wait()
    yield
    pause.open()
    await advance(origin, 0)
    assert client.statistics.renewals == before + 1


@pytest.mark.parametrize("before", [0, 1])
async def test_a_renewed_copy_is_as_old_as_the_request(origin: Origin, before: int) -> None:
    async with in_demand(origin, 5) as client:
        async with renewing(client, origin, before):
            await origin.write("articles", "a1", {"title": "newest"})
            origin.time.advance(6)
        origin.filter_status = 503
        assert await title(client) == ("new", Source.OWN)
        origin.time.advance(4.1)
        assert await title(client) == ("newest", Source.ORIGIN)


@pytest.mark.parametrize("before", [0, 1])
async def test_a_late_renewal_does_not_hide_newer_versions(origin: Origin, before: int) -> None:
    async with in_demand(origin, 5) as client:
        async with renewing(client, origin, before):
            await origin.write("articles", "a1", {"title": "newest"})
            assert await title(client, refresh=True) == ("newest", Source.ORIGIN)
            await client.patch("articles", "a2", {"title": "mine"})
        assert (await title(client))[0] == "newest"
        assert (await title(client, "a2"))[0] == "mine"


@pytest.mark.parametrize(
    "fault",
    [
        {"batch_status": 503},
        {"is_partial": True},
        {"batch_answer": b"[1, 2, 3, 4, 5]"},
        {"batch_answer": b"[%b]" % b", ".join(5 * [b'{"etag": 7, "status": 200, "body": {}}'])},
    ],
    ids=["refused", "partial", "no objects", "no tags"],
)
async def test_readers_revalidate_if_renewals_fail(origin: Origin, fault: dict[str, Any]) -> None:
    async with in_demand(origin, 5) as client:
        vars(origin).update(fault)
        await advance(origin, 2.5)
        assert (client.statistics.renewals, client.statistics.renewed) == (1, 0)
        origin.time.advance(4)
        assert await title(client) == ("new", Source.ORIGIN)


@pytest.mark.parametrize("mode", ["lazy", "eager"])
async def test_copies_are_not_revalidated_ahead_without_need(origin: Origin, mode: str) -> None:
    """In lazy mode, or without the key in the filter."""
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
        assert len(origin.requests()) == 1
        assert origin.batches == []


async def test_an_explicitly_requested_filter_is_used(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        origin.time.advance(1)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_without_a_filter_a_young_copy_is_used(origin: Origin) -> None:
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
        pause = origin.hold("PATCH", "a1", "read")
        writing = asyncio.ensure_future(origin.write("articles", "a1", {"title": "new"}))
        await pause.reached.wait()
        assert await title(client) == ("old", Source.ORIGIN)
        assert origin.requests()[-1].status == 304
        pause.open()
        await writing
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(10.1)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_an_answer_that_was_overtaken_by_a_newer_one_is_not_shown_again(
    origin: Origin,
) -> None:
    """The answer that arrives last has the older version."""
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
