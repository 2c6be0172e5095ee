"""Followers of large changes: how much they read at once, and in which order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import orjson
import pytest

from mediator.changes import subscriptions
from mediator.changes.feed import PARTITIONS, Event, Feed
from mediator.changes.position import order_of
from mediator.changes.subscriptions import Buffer, Subscriptions
from mediator.model.change import Change
from mediator.stores.port import SystemConfig
from tests.process.changes.test_feed import Harness


class RecordingFeed:
    """Records the events of each pass over all partitions."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.passes: list[list[Event]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    async def events(self, database: str, partition: int, after: str, limit: int) -> list[Event]:
        if not partition:
            self.passes.append([])
        events = await self._feed.events(database, partition, after, limit)
        self.passes[-1] += events
        return events


@pytest.fixture
async def harness(redis_config: SystemConfig) -> AsyncIterator[Harness]:
    harness = Harness(redis_config.url)
    yield harness
    await harness.feed.clear(harness.database)
    await harness.client.close()
    await harness.redis.aclose()


async def follow(harness: Harness, feed: RecordingFeed, limit: int) -> list[Event]:
    """Follow a feed from its beginning to its end."""
    followers = Subscriptions(cast(Feed, feed))
    subscription = await followers.open(
        harness.database, await followers.beginning(harness.database)
    )
    all_events: list[Event] = []
    try:
        while events := await subscription.next(0.0, limit):
            assert len(events) <= limit
            all_events += [event for event, _ in events]
    finally:
        await followers.close_all()
        followers.close(subscription)
    return all_events


async def write(harness: Harness, count: int, text: str, objects: int) -> list[str]:
    changes = [
        Change(
            f"op{n}:main", harness.database, "c", f"o{n % objects}", "main", n, "update",
            None, {"text": text}, n, harness.database,
        )
        for n in range(1, count + 1)
    ]  # fmt: skip
    for start in range(0, count, 50):
        await harness.append_newer(changes[start : start + 50])
    return [change.id for change in changes]


@pytest.mark.parametrize("objects", [1, 50], ids=["one partition", "all partitions"])
async def test_large_changes_are_read_some_megabytes_at_a_time_and_in_order(
    harness: Harness, objects: int
) -> None:
    expected = await write(harness, 400, "x" * 100_000, objects)
    feed = RecordingFeed(harness.feed)
    all_events = await follow(harness, feed, 1_000)
    ids = [order_of(event.id) for event in all_events]
    assert ids == sorted(ids)
    assert sorted(orjson.loads(event.data)["id"] for event in all_events) == sorted(expected)
    assert max(sum(len(e.data) for e in events) for events in feed.passes) < PARTITIONS * 4_500_000


@pytest.mark.parametrize("limit", [1, 3, 1_000])
async def test_no_more_is_read_than_is_asked_for(harness: Harness, limit: int) -> None:
    await write(harness, 100, "x", 20)
    feed = RecordingFeed(harness.feed)
    assert len(await follow(harness, feed, limit)) == 100
    assert max(map(len, feed.passes)) < limit + PARTITIONS


async def test_a_buffer_of_large_events_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "CAPACITY_BYTES", 1_000)
    buffer = Buffer()
    events = [Event(0, f"{n}-0", "c", b"x" * 300) for n in range(1, 9)]
    for batch in (events[:3], events[3:6]):  # taken events no longer count
        buffer.put(batch)
        assert await buffer.take(10, 0.0) == batch
    assert not buffer.has_overflowed
    buffer.put(events[:4])
    assert buffer.has_overflowed
