"""The relay of logs, with a log in memory: no interruption loses or duplicates changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from mediator.base.lease import LeaseLost
from mediator.changes.feed import Feed, FeedRolledBack
from mediator.coordination.scripts import feed_key
from mediator.stores.port import StoreUnavailable
from tests.process.changes.log_relay.logs import (
    IDLE,
    FailingFeed,
    Harness,
    RecordingFeed,
    cursor_of,
    drain,
)
from tests.process.redis_keys import go_back, keys_under


async def test_a_round_does_nothing_for_a_database_without_changes(harness: Harness) -> None:
    one, two = harness.databases
    feed = RecordingFeed(harness.feed)
    relay = await harness.relay(feed=cast(Feed, feed), pace_us=IDLE)
    await drain(relay)
    feed.appended.clear()
    for _ in range(5):
        harness.log.write(one)
        await relay.relay()
        await relay.relay()
    assert feed.appended == [one] * 5
    assert (await harness.feed.cursors(two, harness.system))["0"] == ""


async def test_cursors_that_stayed_behind_repeat_and_skip_nothing(harness: Harness) -> None:
    one, two = harness.databases
    expected: dict[str, list[str]] = {one: [], two: []}
    for number in range(6):
        # A relay that is killed after each round; its successor starts at the lowest cursor.
        relay = await harness.relay(f"r{number}", pace_us=IDLE)
        for database in (one, one, two if number % 3 == 2 else one):
            expected[database].append(harness.log.write(database).id)
            if number % 2:
                await relay.relay()
        await drain(relay)
    assert {name: await harness.ids(name) for name in expected} == expected
    cursors = [(await harness.feed.cursors(name, harness.system))["0"] for name in (one, two)]
    assert cursors[0] < cursors[1]
    await drain(await harness.relay("last"))
    cursors = [(await harness.feed.cursors(name, harness.system))["0"] for name in (one, two)]
    assert cursors[0] == cursors[1]
    assert {name: await harness.ids(name) for name in expected} == expected


async def test_each_database_gets_its_changes(harness: Harness) -> None:
    one, two = harness.databases
    relay = await harness.relay()
    expected: dict[str, list[str]] = {one: [], two: []}
    for n in range(3_000):
        database = (one, two)[n % 3 == 0]
        change = harness.log.write(database, f"o{n % 7}", log="01"[n % 7 % 2])
        expected[database].append(change.id)
    assert (await drain(relay)).drained
    for database in harness.databases:
        assert await harness.ids(database) == expected[database]
        assert list(await harness.feed.relayed_until(database)) == [harness.system]


async def test_a_new_database_is_not_skipped(harness: Harness) -> None:
    """Even if other databases are ahead and the relay is killed between them."""
    one, two = harness.databases
    relay = await harness.relay()
    first = harness.log.write(one)
    await drain(relay)
    expected = [harness.log.write(two).id, harness.log.write(two).id]
    harness.log.write(one)
    for number in range(1, 4):
        failing = await harness.relay(feed=FailingFeed(harness.feed, "append", number, after=True))
        with suppress(ConnectionError):
            await drain(failing)
    await drain(await harness.relay("two"))
    assert await harness.ids(two) == expected
    assert (await harness.ids(one))[0] == first.id


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["begin", "append"])
async def test_a_killed_relay_loses_and_duplicates_nothing(
    harness: Harness, name: str, after: bool
) -> None:
    expected: dict[str, list[str]] = {database: [] for database in harness.databases}
    for number in range(1, 7):
        for database in harness.databases:
            expected[database] += [harness.log.write(database, f"o{n}").id for n in range(5)]
        failing = await harness.relay(
            f"r{number}", FailingFeed(harness.feed, name, number, after=after)
        )
        with suppress(ConnectionError):  # some calls are too rare to fail
            await drain(failing)
    await drain(await harness.relay("last"))
    for database in harness.databases:
        assert await harness.ids(database) == expected[database]


async def test_a_relay_that_resumes_late_appends_nothing_twice(harness: Harness) -> None:
    """It sleeps after a read; another relay takes over and continues; then it appends its batch."""
    database = harness.databases[0]
    ids = [harness.log.write(database).id for _ in range(5)]
    reading, awake = asyncio.Event(), asyncio.Event()

    async def sleep() -> None:
        reading.set()
        await awake.wait()

    harness.log.pause = sleep
    late = asyncio.create_task((await harness.relay("late")).relay())
    await reading.wait()
    harness.log.pause = None
    successor = await harness.relay("next")
    await drain(successor)
    ids.append(harness.log.write(database).id)
    await drain(successor)
    awake.set()
    with pytest.raises(LeaseLost):
        await late
    assert await harness.ids(database) == ids


async def test_a_cursor_that_was_rolled_back_is_detected_and_repaired(harness: Harness) -> None:
    database = harness.databases[0]
    relay = await harness.relay()
    ids = [harness.log.write(database).id for _ in range(3)]
    await drain(relay)
    feed = feed_key(database, "")
    older = await keys_under(harness.redis, feed)
    ids += [harness.log.write(database).id for _ in range(3)]
    await drain(relay)
    await go_back(harness.redis, feed, older)
    assert await harness.ids(database) == ids[:3]
    with pytest.raises(FeedRolledBack):
        await relay.relay()
    relay.forget(reached=True)
    assert (await relay.relay()).missing == ()
    await drain(relay)
    assert await harness.ids(database) == ids


async def test_cursors_are_compared_after_a_lost_connection(harness: Harness) -> None:
    database = harness.databases[0]
    relay = await harness.relay()
    harness.log.write(database)
    await drain(relay)
    keys = [key async for key in harness.redis.scan_iter(f"*feed:{database}*")]
    await harness.redis.delete(*keys)
    relay.forget()
    with pytest.raises(FeedRolledBack):
        await relay.relay()
    await drain(relay)
    assert len(await harness.ids(database)) == 1


async def test_changes_that_are_missing_for_good_are_noticed(harness: Harness) -> None:
    database = harness.databases[0]
    relay = await harness.relay()
    for _ in range(3):
        harness.log.write(database)
        await drain(relay)
    await relay.trim()
    assert len(harness.log.entries["0"]) == 1, "the last one stays"
    assert (await (await harness.relay("two")).relay()).missing == ()
    harness.log.write(database)
    harness.log.write(database)
    del harness.log.entries["0"][:2]
    assert (await (await harness.relay("three")).relay()).missing == ("0",)


async def test_an_entry_at_which_a_cursor_stands_is_not_trimmed(harness: Harness) -> None:
    """Without it, a log that continues right after the cursor seems to lack entries."""
    one, two = harness.databases
    relay = await harness.relay(pace_us=IDLE)
    changes = []
    for database in (one, two, one, one):
        changes.append(harness.log.write(database))
        await drain(relay)
    await relay.trim()
    assert (await harness.feed.cursors(two, harness.system))["0"] == cursor_of(changes[1])
    assert [c for _, c in harness.log.entries["0"]] == changes[1:]
    assert (await (await harness.relay("next")).relay()).missing == ()


async def test_a_crash_between_append_and_trim_is_harmless(harness: Harness) -> None:
    database = harness.databases[0]
    ids = []
    for number in range(4):
        relay = await harness.relay(f"r{number}")
        ids += [harness.log.write(database).id for _ in range(3)]
        await drain(relay)
        if number % 2:
            await relay.trim()
    assert await harness.ids(database) == ids


async def test_a_class_created_by_another_replica_is_found(harness: Harness) -> None:
    one, two = harness.databases
    harness.routed_databases = [one]
    change = harness.log.write(two)
    await drain(await harness.relay())
    assert await harness.ids(two) == [change.id]


async def test_changes_of_a_class_that_is_gone_are_passed_over(harness: Harness) -> None:
    one, two = harness.databases
    harness.log.write("nowhere")
    change = harness.log.write(one)
    await drain(await harness.relay())
    assert await harness.ids(one) == [change.id]
    assert await harness.ids(two) == []


async def test_a_failing_store_is_read_again(harness: Harness) -> None:
    database = harness.databases[0]
    relay = await harness.relay()
    change = harness.log.write(database)

    async def fail() -> None:
        raise StoreUnavailable("it is away")

    harness.log.pause = fail
    with pytest.raises(StoreUnavailable):
        await relay.relay()
    harness.log.pause = None
    relay.forget()
    await drain(relay)
    assert await harness.ids(database) == [change.id]


async def test_an_append_may_be_sent_twice(harness: Harness) -> None:
    """As by a client whose connection broke before the reply."""

    class Twice:
        def __getattr__(self, name: str) -> Any:
            return getattr(harness.feed, name)

        async def append(self, database: str, *args: Any) -> int:
            count = await harness.feed.append(database, *args)
            assert await harness.feed.append(database, *args) == 0
            return count

    ids = []
    relay = await harness.relay(feed=Twice())
    for _ in range(3):
        ids += [harness.log.write(harness.databases[0]).id for _ in range(10)]
        await drain(relay)
    assert await harness.ids(harness.databases[0]) == ids
