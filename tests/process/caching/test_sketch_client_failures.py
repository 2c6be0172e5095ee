"""The client after failures: broken and lost filters, another generation, views, errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sketch.client import (
    BrokenFilter,
    CoherentClient,
    Source,
    Unavailable,
    Unreachable,
)
from tests.process.caching.coherent_origin import Exchange, Origin, Stage
from tests.process.caching.serving import Message, Reply, send_reply, served, until
from tests.process.caching.sketch_clients import connected, title


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
        assert origin.requests()[-1].forced
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
            assert origin.requests()[-1].forced
        await until(lambda: client.statistics.filter_failures == 2)
        assert len(origin.filters()) == 3, "the filter is not requested at every read"
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


@pytest.mark.parametrize("notified", [True, False], ids=["notified by the filter", "not notified"])
async def test_another_generation_revalidates_every_copy(origin: Origin, notified: bool) -> None:
    """The sketch lost its record of copies, so a write since then is in no filter."""
    async with connected(origin) as client:
        await title(client)
        origin.restart_sketch(fresh=not notified)
        origin.fresh = not notified
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)
        assert origin.requests()[-1].forced


async def test_another_map_of_groups_revalidates_every_copy(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.groups = {"articles": {"main": ["text"], "head": ["title"], "hits": ["hits"]}}
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)


async def test_a_copy_requested_before_a_loss_is_revalidated(
    origin: Origin,
) -> None:
    async with connected(origin) as client:
        pause = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client))
        await pause.reached.wait()
        origin.restart_sketch()
        await origin.write("articles", "a1", {"title": "new"})
        await client.refresh_filter()
        pause.open()
        assert await slow == ("old", Source.ORIGIN)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_a_copy_confirmed_during_a_change_of_generation_is_revalidated(
    origin: Origin,
) -> None:
    """It is unknown which of the two sketches has the report of its answer."""
    async with connected(origin) as client:
        pause = origin.hold("GET", "/sketch")
        refreshing = asyncio.ensure_future(client.refresh_filter())
        await pause.reached.wait()
        await title(client, refresh=True)
        origin.restart_sketch()
        pause.open()
        await refreshing
        assert await title(client) == ("old", Source.OWN), "it is young enough without any filter"
        await client.refresh_filter()
        assert await title(client) == ("old", Source.ORIGIN)
        assert origin.requests()[-1].forced


class FilterCache:
    """A cache that stores filters, sends no age, and ignores `no-cache`.

    Attributes:
        filters: The filters that it has stored, oldest first.
        index: Which of them it serves; None: a new one of the origin, which it stores.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self.filters: list[Reply] = []
        self.index: int | None = None

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if not scope["path"].endswith("/sketch"):
            await self._origin(scope, receive, send)
            return
        exchange = Exchange("GET", "/v1/news/sketch", {})
        if self.index is None:
            self.filters.append(await self._origin.reply(exchange, b""))
        await send_reply(self.filters[-1 if self.index is None else self.index], send)


async def test_a_filter_older_than_the_one_before_is_refused(origin: Origin) -> None:
    """A cache that stores filters and sends no age must not make the bound longer."""
    cache = FilterCache(origin)
    async with connected(origin, cache) as client:
        await title(client)
        origin.time.advance(5)
        await client.refresh_filter()
        cache.index = 0
        for _ in range(3):
            with pytest.raises(BrokenFilter):
                await client.refresh_filter()
        origin.time.advance(11)
        assert await title(client) == ("old", Source.ORIGIN), "the newer filter is too old by now"
        cache.index = None
        await client.refresh_filter()


async def test_filters_of_a_clock_that_was_set_back_are_used(origin: Origin) -> None:
    """Unlike a cache, the origin shows a time that advances."""
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(5)
        await client.refresh_filter()
        origin.set_us -= 3600 * 1_000_000
        await client.refresh_filter()
        assert origin.filters()[-1].forced
        assert await title(client) == ("old", Source.ORIGIN), "copies from before are not covered"
        for _ in range(3):
            origin.time.advance(9)
            assert await title(client) == ("old", Source.OWN)
            await client.refresh_filter()
        assert not origin.filters()[-1].forced


async def test_eagerly_a_clock_that_is_set_back_leaves_no_time_without_a_filter(
    origin: Origin,
) -> None:
    async with connected(origin, mode="eager", delta_s=1.0) as client:
        await title(client)
        for number in range(4):
            origin.set_us -= 3600 * 1_000_000
            origin.time.advance(0.95)
            await until(lambda: client.statistics.filter_refreshes == number + 2)  # noqa: B023
            await title(client)
            assert await title(client) == ("old", Source.OWN)
        assert client.statistics.filter_failures == 0


async def test_a_copy_that_had_expired_does_not_revive_when_the_clock_is_set_back(
    origin: Origin,
) -> None:
    """Its key has left the filter; by the new clock it has not expired yet."""
    async with connected(origin) as client:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        for _ in range(8):
            origin.time.advance(8)
            await client.refresh_filter()
        origin.set_us -= 64 * 1_000_000
        for _ in range(4):
            await client.refresh_filter()
            origin.time.advance(8)
        await client.refresh_filter()
        assert await title(client) == ("new", Source.ORIGIN)


async def test_an_expired_copy_does_not_revive_when_the_clock_is_set_back_between_two_filters(
    origin: Origin,
) -> None:
    """The later filter has a later time, but by less than has passed."""
    async with connected(origin) as client, connected(origin) as other:
        await title(client)
        await origin.write("articles", "a1", {"title": "new"})
        origin.time.advance(70)
        await other.refresh_filter()
        origin.set_us -= 60 * 1_000_000
        origin.time.advance(30)
        await client.refresh_filter()
        assert not origin.filters()[-1].forced
        assert await title(client) == ("new", Source.ORIGIN)


async def test_a_clock_that_drifts_was_not_set_back(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(9)
        origin.set_us -= 9 * 400
        await client.refresh_filter()
        assert await title(client) == ("old", Source.OWN)


@pytest.mark.parametrize("stage", ["arrived", "read"])
async def test_the_clock_was_not_set_back_because_a_filter_was_late(
    origin: Origin, stage: Stage
) -> None:
    """Only the time that has certainly passed between the two filters counts."""
    async with connected(origin) as client:
        await title(client)
        for _ in range(2):
            pause = origin.hold("GET", "/sketch", stage)
            late = asyncio.create_task(client.refresh_filter())
            await pause.reached.wait()
            origin.time.advance(3)
            pause.open()
            await late
            await client.refresh_filter()
        assert await title(client) == ("old", Source.OWN)


async def test_a_class_that_the_filter_does_not_know_is_read_at_the_origin(origin: Origin) -> None:
    origin.groups = {"notes": {"main": ["text"]}}
    async with connected(origin) as client:
        origin.groups = {"articles": {"main": ["text", "title", "hits"]}}
        for _ in range(2):
            assert await title(client) == ("old", Source.ORIGIN)
            assert origin.requests()[-1].forced


async def test_a_response_from_a_view_is_revalidated_with_strong_consistency(
    origin: Origin,
) -> None:
    """The schema bounds the view's age, and can allow more than this client's bound."""
    async with connected(origin) as client:
        origin.extra = {"portolan-staleness": "bound=60, measured=3"}
        await title(client)
        origin.extra = {}
        await client.get("articles", "a1", refresh=True)
    preferences = [exchange.headers.get("prefer") for exchange in origin.requests()]
    assert preferences == [None, "consistency=strong", "consistency=strong"]


async def test_a_read_at_a_position_goes_to_the_origin_and_is_not_cached(
    origin: Origin,
) -> None:
    async with connected(origin) as client:
        position = (await client.patch("articles", "a1", {"title": "mine"})).position
        assert position is not None
        async with connected(origin) as reader:
            assert await title(reader, at_least=position) == ("mine", Source.ORIGIN)
            assert await title(reader) == ("mine", Source.ORIGIN)
        requests = origin.requests()
        assert requests[-2].headers["prefer"] == "at-least=p1, max-staleness=10.000000"
        with pytest.raises(ValueError):
            await client.get("articles", "a1", at_least="p1\r\nX: y")


async def test_an_error_at_revalidation_is_an_error(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        await client.patch("articles", "a1", {"title": "mine"})
    async with served(origin) as url:
        reader = CoherentClient(url, "news", clock=origin.time)
        await reader.refresh_filter()
        await title(reader)
    with pytest.raises(Unreachable):
        await reader.get("articles", "a1", refresh=True)
    assert await title(reader) == ("mine", Source.OWN)
    await reader.close()
