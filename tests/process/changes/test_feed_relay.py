"""The relay of logs, with a log in memory: whatever interrupts it, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mediator.base.lease import Lease
from mediator.changes.feed import BEGINNING, PARTITIONS, Feed, FeedRolledBack, LeaseLost, LogBatch
from mediator.changes.log_relay import LogRelay, RelayResult
from mediator.changes.routes import SystemRoutes
from mediator.coordination.connecting import client_of, connect
from mediator.coordination.feed import RedisFeed
from mediator.coordination.leases import Leases
from mediator.coordination.scripts import TICKS
from mediator.model.change import Change
from mediator.routing.model import RoutingModel
from mediator.stores.port import Fragment, FragmentOf, LogEntry, StoreUnavailable, SystemConfig
from tests.faults.conditions import eventually


class MemoryLog:
    """Two logs that are lists, and that fail when told to."""

    def __init__(self) -> None:
        self.entries: dict[str, list[tuple[str, Change]]] = {"0": [], "1": []}
        self.reads: list[tuple[str, str | None]] = []
        self.pause: Callable[[], Awaitable[None]] | None = None
        self._next = 0

    def write(self, database: str, object_id: str = "x", log: str = "0") -> Change:
        self._next += 1
        change = Change(
            f"op{self._next}:main", database, "c", object_id, "main", self._next, "update",
            {"n": self._next - 1}, {"n": self._next}, self._next, database,
        )  # fmt: skip
        self.entries[log].append((f"{self._next:020d}", change))
        return change

    def logs(self) -> Sequence[str]:
        return ("0", "1")

    async def changes(
        self, log: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> list[LogEntry]:
        self.reads.append((log, after))
        beyond = [e for e in self.entries[log] if e[0] > (after or "")][:limit]
        if self.pause is not None:
            await self.pause()
        known = [(p, c if fragment_of(c.database, c.class_name) else None) for p, c in beyond]
        return [LogEntry(position, change) for position, change in known]

    async def oldest(self, log: str) -> str | None:
        return self.entries[log][0][0] if self.entries[log] else None

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        assert keep_s > 0
        before = len(self.entries[log])
        self.entries[log] = [e for e in self.entries[log] if e[0] > upto]
        return before - len(self.entries[log])


class LateLog(MemoryLog):
    """A log that withholds what was written from a number on."""

    numbers = (0, 0)

    async def horizon(self) -> tuple[int, int]:
        return self.numbers


EAGER, IDLE, OURS = 0, 10**12, 200_000


class ToldFeed:
    """A feed that notes for which database it was told something."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    async def append(self, database: str, *args: Any) -> int:
        self.told.append(database)
        return await self._feed.append(database, *args)


class Bench:
    """Databases on one system, their feeds, and relays that compete for a lease."""

    def __init__(self, url: str) -> None:
        self.redis = connect(url)
        self.client = client_of(url)
        self.feed: Feed = RedisFeed(self.redis, self.client)
        self.leases = Leases(self.redis)
        tag = uuid.uuid4().hex[:10]
        self.databases = [f"a{tag}", f"b{tag}"]
        self.known = list(self.databases)
        self.system = f"s{tag}"
        self.log = MemoryLog()

    def model(self) -> RoutingModel:
        def route(database: str) -> Any:
            fragment = Fragment(self.system, database, "c", {}, {"main": ()})
            return SimpleNamespace(classes={"c": SimpleNamespace(fragments=(fragment,))})

        return RoutingModel(1, {name: route(name) for name in self.known})

    async def refresh(self) -> None:
        self.known = list(self.databases)

    async def relay(
        self, token: str = "one", feed: Feed | None = None, pace_us: int = EAGER
    ) -> LogRelay:
        """Start a relay that takes the lease, as the holder's successor does."""
        lease = Lease(f"relay:{self.system}", token)
        await self.redis.set(lease.key, token)
        routes = SystemRoutes(self.system, self.model, self.refresh)
        return LogRelay(self.log, feed or self.feed, routes, lease, pace_us)

    async def ids(self, database: str) -> list[str]:
        """Return the ids in a feed, sorted by version; those of one object in their order."""
        found: list[tuple[str, Change]] = []
        for partition in range(PARTITIONS):
            told = await self.feed.read(database, partition, BEGINNING, 100_000)
            found += told
            last: dict[str, int] = {}
            for _, change in told:
                assert last.get(change.object_id, 0) < change.version
                last[change.object_id] = change.version
        return [c.id for _, c in sorted(found, key=lambda pair: pair[1].version)]

    async def close(self) -> None:
        for name in (*self.databases, self.system):
            keys = [key async for key in self.redis.scan_iter(f"*{name}*")]
            if keys:
                await self.redis.delete(*keys)
        await self.client.close()
        await self.redis.aclose()


class Failing:
    """A feed whose chosen calls fail, before or after they took effect."""

    def __init__(self, feed: Feed, name: str, number: int, *, after: bool) -> None:
        self._feed = feed
        self._name = name
        self._number = number
        self._after = after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._feed, name)
        if name != self._name:
            return real

        async def call(*args: Any) -> Any:
            self._number -= 1
            if self._number == 0 and not self._after:
                raise ConnectionError
            answer = await real(*args)
            if self._number == 0:
                raise ConnectionError
            return answer

        return call


@pytest.fixture
async def bench(redis_config: SystemConfig) -> AsyncIterator[Bench]:
    bench = Bench(redis_config.url)
    yield bench
    await bench.close()


def place_of(change: Change) -> str:
    return f"{change.version:020d}"


async def drain(relay: LogRelay) -> RelayResult:
    while True:
        done = await relay.relay()
        if not done.read:
            return done


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


async def test_a_feed_whose_clock_was_set_back_is_told_all_the_same(bench: Bench) -> None:
    one, two = bench.databases
    relay = await bench.relay(pace_us=OURS)
    await drain(relay)
    await bench.feed.tick()
    # As if the clock had been an hour ahead until now.
    await bench.redis.hincrby(TICKS, "number", 3600 * 1_000_000)
    change = bench.log.write(one)

    async def is_told() -> bool:
        await relay.relay()
        return (await bench.feed.cursors(two, bench.system)).get("0") == place_of(change)

    await eventually(is_told)
    tick = await bench.feed.tick()
    await eventually(partial(is_beyond, bench, relay, two, tick))


async def is_beyond(bench: Bench, relay: LogRelay, database: str, tick: int) -> bool:
    await relay.relay()
    return (await bench.feed.relayed_until(database))[bench.system] > tick


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


async def test_what_is_withheld_is_not_called_complete(bench: Bench) -> None:
    log = bench.log = LateLog()
    database = bench.databases[0]
    relay = await bench.relay()
    log.numbers = (5, 7)
    await relay.relay()
    assert await bench.feed.relayed_until(database) == {}
    before = await bench.feed.tick()
    log.numbers = (6, 9)
    await relay.relay()
    assert await bench.feed.relayed_until(database) == {}
    log.numbers = (7, 9)
    await relay.relay()
    until_tick = (await bench.feed.relayed_until(database))[bench.system]
    assert until_tick < before, "what was acknowledged since may be withheld"
    log.numbers = (9, 9)
    await relay.relay()
    assert (await bench.feed.relayed_until(database))[bench.system] > before


@pytest.mark.parametrize("pace_us", [EAGER, IDLE], ids=["eager", "idle"])
async def test_what_is_not_drained_is_not_called_complete(bench: Bench, pace_us: int) -> None:
    """As soon as it is, that is told of all to which something was appended meanwhile."""
    database = bench.databases[0]
    relay = await bench.relay(pace_us=pace_us)
    await drain(relay)
    until = await bench.feed.relayed_until(database)
    for _ in range(1_000):
        bench.log.write(database)
    assert not (await relay.relay()).drained
    assert await bench.feed.relayed_until(database) == until
    assert await relay.relay() == RelayResult(0, 0, drained=True)
    assert (await bench.feed.relayed_until(database))[bench.system] > until[bench.system]


async def test_what_comes_while_a_log_is_read_is_not_called_complete(bench: Bench) -> None:
    database = bench.databases[0]
    relay = await bench.relay()
    acknowledged: list[int] = []

    async def write() -> None:
        bench.log.write(database)
        acknowledged.append(await bench.feed.tick())

    bench.log.pause = write
    assert (await relay.relay()).drained
    assert (await bench.feed.relayed_until(database))[bench.system] <= min(acknowledged)


async def test_much_is_appended_in_parcels_and_complete_with_the_last(bench: Bench) -> None:
    database = bench.databases[0]
    told: list[tuple[int, bool]] = []

    class Noting:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.feed, name)

        async def append(
            self, name: str, brought: Sequence[LogBatch], lease: Lease, until_tick: int | None
        ) -> int:
            if name == database:
                told.append((sum(len(each.entries) for each in brought), until_tick is not None))
            return await bench.feed.append(name, brought, lease, until_tick)

    expected = [bench.log.write(database, f"o{n % 2}", log="01"[n % 2]).id for n in range(1_800)]
    done = await (await bench.relay(feed=cast(Feed, Noting()))).relay()
    assert (done.appended, done.drained) == (1_800, True)
    assert told == [(900, False), (900, True)]
    assert await bench.ids(database) == expected


async def test_a_relay_that_dies_between_parcels_loses_and_doubles_nothing(bench: Bench) -> None:
    database = bench.databases[0]
    expected = [bench.log.write(database, f"o{n % 2}", log="01"[n % 2]).id for n in range(1_800)]
    dying = await bench.relay(feed=Failing(bench.feed, "append", 1, after=True))
    with pytest.raises(ConnectionError):
        await dying.relay()
    assert len(await bench.ids(database)) == 900
    assert await bench.feed.relayed_until(database) == {}
    await drain(await bench.relay("two"))
    assert await bench.ids(database) == expected


async def test_a_cursor_that_is_beyond_what_was_read_stays_there(bench: Bench) -> None:
    """A successor begins at the least cursor, and takes more than one round to the others."""
    one, two = bench.databases
    relay = await bench.relay(pace_us=IDLE)
    await drain(relay)
    expected = [bench.log.write(one).id for _ in range(1_500)]
    await drain(relay)
    cursors = [(await bench.feed.cursors(name, bench.system))["0"] for name in (one, two)]
    assert cursors[1] < cursors[0]
    successor = await bench.relay("next")
    assert not (await successor.relay()).drained
    between = f"{1_200:020d}"
    await bench.redis.hset(f"{{portolan:feed:{one}}}:cursors", f"{bench.system}/0", between)
    with pytest.raises(FeedRolledBack):
        await drain(successor)
    successor.forget(reached=True)
    await bench.redis.hset(f"{{portolan:feed:{one}}}:cursors", f"{bench.system}/0", cursors[0])
    await drain(successor)
    assert await bench.ids(one) == expected


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
