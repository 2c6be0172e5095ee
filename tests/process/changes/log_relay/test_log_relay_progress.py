"""The tick up to which a log relay reports the feed as complete, and its batches of appends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import pytest

from mediator.base.lease import Lease
from mediator.changes.document import document_of
from mediator.changes.feed import Feed, FeedRolledBack, LogBatch
from mediator.changes.log_relay import RelayResult
from mediator.coordination.scripts import TICKS
from tests.faults.conditions import eventually
from tests.process.changes.log_relay.logs import (
    DEFAULT,
    EAGER,
    IDLE,
    FailingFeed,
    Harness,
    LateLog,
    cursor_of,
    drain,
    is_beyond,
)


async def test_a_feed_whose_clock_was_set_back_still_receives_changes(harness: Harness) -> None:
    one, two = harness.databases
    relay = await harness.relay(pace_us=DEFAULT)
    await drain(relay)
    await harness.feed.tick()
    # As if the clock had been an hour ahead until now.
    await harness.redis.hincrby(TICKS, "number", 3600 * 1_000_000)
    change = harness.log.write(one)

    async def is_relayed() -> bool:
        await relay.relay()
        return (await harness.feed.cursors(two, harness.system)).get("0") == cursor_of(change)

    await eventually(is_relayed)
    tick = await harness.feed.tick()
    await eventually(partial(is_beyond, harness, relay, two, tick))


async def test_withheld_changes_are_not_reported_as_complete(harness: Harness) -> None:
    log = harness.log = LateLog()
    database = harness.databases[0]
    relay = await harness.relay()
    log.numbers = (5, 7)
    await relay.relay()
    assert await harness.feed.relayed_until(database) == {}
    before = await harness.feed.tick()
    log.numbers = (6, 9)
    await relay.relay()
    assert await harness.feed.relayed_until(database) == {}
    log.numbers = (7, 9)
    await relay.relay()
    until_tick = (await harness.feed.relayed_until(database))[harness.system]
    assert until_tick < before, "writes acknowledged since can be withheld"
    log.numbers = (9, 9)
    await relay.relay()
    assert (await harness.feed.relayed_until(database))[harness.system] > before


@pytest.mark.parametrize("pace_us", [EAGER, IDLE], ids=["eager", "idle"])
async def test_a_log_that_is_not_drained_is_not_reported_as_complete(
    harness: Harness, pace_us: int
) -> None:
    """Once drained, the relay publishes the progress of each database with new changes."""
    database = harness.databases[0]
    relay = await harness.relay(pace_us=pace_us)
    await drain(relay)
    until = await harness.feed.relayed_until(database)
    for _ in range(1_000):
        harness.log.write(database)
    assert not (await relay.relay()).drained
    assert await harness.feed.relayed_until(database) == until
    assert await relay.relay() == RelayResult(0, 0, drained=True)
    assert (await harness.feed.relayed_until(database))[harness.system] > until[harness.system]


async def test_changes_written_during_a_read_are_not_reported_as_complete(harness: Harness) -> None:
    database = harness.databases[0]
    relay = await harness.relay()
    acknowledged: list[int] = []

    async def write() -> None:
        harness.log.write(database)
        acknowledged.append(await harness.feed.tick())

    harness.log.pause = write
    assert (await relay.relay()).drained
    assert (await harness.feed.relayed_until(database))[harness.system] <= min(acknowledged)


async def test_many_changes_are_appended_in_batches_and_complete_with_the_last(
    harness: Harness,
) -> None:
    database = harness.databases[0]
    appends: list[tuple[int, bool]] = []

    class RecordingFeed:
        def __getattr__(self, name: str) -> Any:
            return getattr(harness.feed, name)

        async def append(
            self, name: str, batches: Sequence[LogBatch], lease: Lease, until_tick: int | None
        ) -> int:
            if name == database:
                appends.append(
                    (sum(len(batch.entries) for batch in batches), until_tick is not None)
                )
            return await harness.feed.append(name, batches, lease, until_tick)

    expected = [harness.log.write(database, f"o{n % 2}", log="01"[n % 2]).id for n in range(1_800)]
    result = await (await harness.relay(feed=cast(Feed, RecordingFeed()))).relay()
    assert (result.appended, result.drained) == (1_800, True)
    assert appends == [(900, False), (900, True)]
    assert await harness.ids(database) == expected


async def test_large_changes_are_appended_few_at_a_time(harness: Harness) -> None:
    """Hundreds of them wait for the feed, and each request must arrive in time."""
    database, sizes = harness.databases[0], []
    harness.log.large = {"text": "x" * 100_000}

    class RecordingFeed:
        def __getattr__(self, name: str) -> Any:
            return getattr(harness.feed, name)

        async def append(self, name: str, batches: Sequence[LogBatch], *args: Any) -> int:
            changes = [change for batch in batches for _, change in batch.entries]
            sizes.append(sum(len(document_of(change)) for change in changes))
            return await harness.feed.append(name, batches, *args)

    expected = [harness.log.write(database, f"o{n % 8}", log="01"[n % 2]).id for n in range(300)]
    result = await (await harness.relay(feed=cast(Feed, RecordingFeed()))).relay()
    assert (result.appended, result.drained) == (300, True)
    assert max(sizes) < 2**22 + 2**20
    assert await harness.ids(database) == expected
    assert harness.system in await harness.feed.relayed_until(database)


async def test_a_relay_killed_between_large_requests_loses_and_duplicates_nothing(
    harness: Harness,
) -> None:
    database = harness.databases[0]
    harness.log.large = {"text": "x" * 100_000}
    expected = [harness.log.write(database, f"o{n % 9}").id for n in range(100)]
    failing = await harness.relay(feed=FailingFeed(harness.feed, "append", 2, after=True))
    with pytest.raises(ConnectionError):
        await failing.relay()
    assert 0 < len(await harness.ids(database)) < 100
    assert await harness.feed.relayed_until(database) == {}
    await drain(await harness.relay("two"))
    assert await harness.ids(database) == expected


async def test_a_relay_killed_between_batches_loses_and_duplicates_nothing(
    harness: Harness,
) -> None:
    database = harness.databases[0]
    expected = [harness.log.write(database, f"o{n % 2}", log="01"[n % 2]).id for n in range(1_800)]
    failing = await harness.relay(feed=FailingFeed(harness.feed, "append", 1, after=True))
    with pytest.raises(ConnectionError):
        await failing.relay()
    assert len(await harness.ids(database)) == 900
    assert await harness.feed.relayed_until(database) == {}
    await drain(await harness.relay("two"))
    assert await harness.ids(database) == expected


async def test_a_cursor_beyond_the_read_entries_stays_there(harness: Harness) -> None:
    """A successor starts at the lowest cursor, and needs several rounds to reach the others."""
    one, two = harness.databases
    relay = await harness.relay(pace_us=IDLE)
    await drain(relay)
    expected = [harness.log.write(one).id for _ in range(1_500)]
    await drain(relay)
    cursors = [(await harness.feed.cursors(name, harness.system))["0"] for name in (one, two)]
    assert cursors[1] < cursors[0]
    successor = await harness.relay("next")
    assert not (await successor.relay()).drained
    between = f"{1_200:020d}"
    await harness.redis.hset(f"{{portolan:feed:{one}}}:cursors", f"{harness.system}/0", between)
    with pytest.raises(FeedRolledBack):
        await drain(successor)
    successor.forget(reached=True)
    await harness.redis.hset(f"{{portolan:feed:{one}}}:cursors", f"{harness.system}/0", cursors[0])
    await drain(successor)
    assert await harness.ids(one) == expected
