"""The relay of logs, with a log in memory: whatever interrupts it, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from mediator.changes.feed import Feed, FeedRolledBack, LeaseLost
from mediator.stores.port import StoreUnavailable
from tests.process.changes.log_relay.logs import IDLE, Bench, Failing, ToldFeed, drain, place_of


async def test_a_round_does_nothing_for_a_database_without_changes(bench: Bench) -> None:
    one, two = bench.databases
    feed = ToldFeed(bench.feed)
    relay = await bench.relay(feed=cast(Feed, feed), pace_us=IDLE)
    await drain(relay)
    feed.told.clear()
    for _ in range(5):
        bench.log.write(one)
        await relay.relay()
        await relay.relay()
    assert feed.told == [one] * 5
    assert (await bench.feed.cursors(two, bench.system))["0"] == ""


async def test_cursors_that_stayed_behind_repeat_and_skip_nothing(bench: Bench) -> None:
    one, two = bench.databases
    expected: dict[str, list[str]] = {one: [], two: []}
    for number in range(6):
        # A relay that dies after each turn; its successor begins at the least cursor.
        relay = await bench.relay(f"r{number}", pace_us=IDLE)
        for database in (one, one, two if number % 3 == 2 else one):
            expected[database].append(bench.log.write(database).id)
            if number % 2:
                await relay.relay()
        await drain(relay)
    assert {name: await bench.ids(name) for name in expected} == expected
    cursors = [(await bench.feed.cursors(name, bench.system))["0"] for name in (one, two)]
    assert cursors[0] < cursors[1]
    await drain(await bench.relay("last"))
    cursors = [(await bench.feed.cursors(name, bench.system))["0"] for name in (one, two)]
    assert cursors[0] == cursors[1]
    assert {name: await bench.ids(name) for name in expected} == expected


async def test_each_database_gets_its_changes(bench: Bench) -> None:
    one, two = bench.databases
    relay = await bench.relay()
    expected: dict[str, list[str]] = {one: [], two: []}
    for n in range(3_000):
        database = (one, two)[n % 3 == 0]
        change = bench.log.write(database, f"o{n % 7}", log="01"[n % 7 % 2])
        expected[database].append(change.id)
    assert (await drain(relay)).drained
    for database in bench.databases:
        assert await bench.ids(database) == expected[database]
        assert list(await bench.feed.relayed_until(database)) == [bench.system]


async def test_a_database_that_is_new_is_not_skipped(bench: Bench) -> None:
    """Although other databases are further, and the relay dies between them."""
    one, two = bench.databases
    relay = await bench.relay()
    first = bench.log.write(one)
    await drain(relay)
    lost = [bench.log.write(two).id, bench.log.write(two).id]
    bench.log.write(one)
    for number in range(1, 4):
        dying = await bench.relay(feed=Failing(bench.feed, "append", number, after=True))
        with suppress(ConnectionError):
            await drain(dying)
    await drain(await bench.relay("two"))
    assert await bench.ids(two) == lost
    assert (await bench.ids(one))[0] == first.id


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["begin", "append"])
async def test_a_relay_that_dies_loses_and_doubles_nothing(
    bench: Bench, name: str, after: bool
) -> None:
    expected: dict[str, list[str]] = {database: [] for database in bench.databases}
    for number in range(1, 7):
        for database in bench.databases:
            expected[database] += [bench.log.write(database, f"o{n}").id for n in range(5)]
        dying = await bench.relay(f"r{number}", Failing(bench.feed, name, number, after=after))
        with suppress(ConnectionError):  # some calls are made too seldom to fail
            await drain(dying)
    await drain(await bench.relay("last"))
    for database in bench.databases:
        assert await bench.ids(database) == expected[database]


async def test_a_relay_that_wakes_late_does_no_harm(bench: Bench) -> None:
    """It has read, and sleeps; another takes over and goes on; then it appends what it read."""
    database = bench.databases[0]
    ids = [bench.log.write(database).id for _ in range(5)]
    reading, awake = asyncio.Event(), asyncio.Event()

    async def sleep() -> None:
        reading.set()
        await awake.wait()

    bench.log.pause = sleep
    late = asyncio.create_task((await bench.relay("late")).relay())
    await reading.wait()
    bench.log.pause = None
    successor = await bench.relay("next")
    await drain(successor)
    ids.append(bench.log.write(database).id)
    await drain(successor)
    awake.set()
    with pytest.raises(LeaseLost):
        await late
    assert await bench.ids(database) == ids


async def test_a_cursor_that_went_back_is_found_and_made_good(bench: Bench) -> None:
    database = bench.databases[0]
    relay = await bench.relay()
    ids = [bench.log.write(database).id for _ in range(3)]
    await drain(relay)
    keys = [key async for key in bench.redis.scan_iter(f"*feed:{database}*")]
    older = {key: await bench.redis.dump(key) or b"" for key in keys}
    ids += [bench.log.write(database).id for _ in range(3)]
    await drain(relay)
    for key in keys:
        await bench.redis.restore(key, 0, older[key], replace=True)
    assert await bench.ids(database) == ids[:3]
    with pytest.raises(FeedRolledBack):
        await relay.relay()
    relay.forget(reached=True)
    assert (await relay.relay()).missing == ()
    await drain(relay)
    assert await bench.ids(database) == ids


async def test_what_was_believed_is_compared_after_a_lost_connection(bench: Bench) -> None:
    database = bench.databases[0]
    relay = await bench.relay()
    bench.log.write(database)
    await drain(relay)
    keys = [key async for key in bench.redis.scan_iter(f"*feed:{database}*")]
    await bench.redis.delete(*keys)
    relay.forget()
    with pytest.raises(FeedRolledBack):
        await relay.relay()
    await drain(relay)
    assert len(await bench.ids(database)) == 1


async def test_changes_that_are_missing_for_good_are_noticed(bench: Bench) -> None:
    database = bench.databases[0]
    relay = await bench.relay()
    for _ in range(3):
        bench.log.write(database)
        await drain(relay)
    await relay.trim()
    assert len(bench.log.entries["0"]) == 1, "the last one stays"
    assert (await (await bench.relay("two")).relay()).missing == ()
    bench.log.write(database)
    bench.log.write(database)
    del bench.log.entries["0"][:2]
    assert (await (await bench.relay("three")).relay()).missing == ("0",)


async def test_an_entry_at_which_a_cursor_stands_is_not_trimmed(bench: Bench) -> None:
    """Without it, a log that goes on right after the cursor looks as if something were missing."""
    one, two = bench.databases
    relay = await bench.relay(pace_us=IDLE)
    changes = []
    for database in (one, two, one, one):
        changes.append(bench.log.write(database))
        await drain(relay)
    await relay.trim()
    assert (await bench.feed.cursors(two, bench.system))["0"] == place_of(changes[1])
    assert [c for _, c in bench.log.entries["0"]] == changes[1:]
    assert (await (await bench.relay("next")).relay()).missing == ()


async def test_a_crash_between_append_and_trim_is_nothing(bench: Bench) -> None:
    database = bench.databases[0]
    ids = []
    for number in range(4):
        relay = await bench.relay(f"r{number}")
        ids += [bench.log.write(database).id for _ in range(3)]
        await drain(relay)
        if number % 2:
            await relay.trim()
    assert await bench.ids(database) == ids


async def test_a_class_that_another_replica_made_is_found(bench: Bench) -> None:
    one, two = bench.databases
    bench.known = [one]
    change = bench.log.write(two)
    await drain(await bench.relay())
    assert await bench.ids(two) == [change.id]


async def test_changes_of_a_class_that_is_gone_are_passed_over(bench: Bench) -> None:
    one, two = bench.databases
    bench.log.write("nowhere")
    change = bench.log.write(one)
    await drain(await bench.relay())
    assert await bench.ids(one) == [change.id]
    assert await bench.ids(two) == []


async def test_a_store_that_fails_is_asked_again(bench: Bench) -> None:
    database = bench.databases[0]
    relay = await bench.relay()
    change = bench.log.write(database)

    async def fail() -> None:
        raise StoreUnavailable("it is away")

    bench.log.pause = fail
    with pytest.raises(StoreUnavailable):
        await relay.relay()
    bench.log.pause = None
    relay.forget()
    await drain(relay)
    assert await bench.ids(database) == [change.id]


async def test_an_append_may_be_sent_twice(bench: Bench) -> None:
    """As a client does whose connection broke before the answer came."""

    class Twice:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.feed, name)

        async def append(self, database: str, *args: Any) -> int:
            count = await bench.feed.append(database, *args)
            assert await bench.feed.append(database, *args) == 0
            return count

    ids = []
    relay = await bench.relay(feed=Twice())
    for _ in range(3):
        ids += [bench.log.write(bench.databases[0]).id for _ in range(10)]
        await drain(relay)
    assert await bench.ids(bench.databases[0]) == ids
