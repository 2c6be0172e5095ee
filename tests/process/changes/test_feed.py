"""The feed in Redis: what is brought twice is taken once, and nothing is skipped."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from mediator.base.lease import Lease
from mediator.changes.document import change_from, document_of, time_of
from mediator.changes.feed import (
    BEGINNING,
    PARTITIONS,
    FeedRolledBack,
    LeaseLost,
    LogBatch,
    PositionGone,
    Source,
    WriterProgress,
    partition_of,
)
from mediator.coordination.connecting import client_of, connect
from mediator.coordination.feed import RedisFeed, Retention
from mediator.coordination.leases import Leases
from mediator.coordination.scripts import TICKS
from mediator.coordination.view_state import RedisViewState
from mediator.coordination.writers import RedisWriters
from mediator.model.change import Change
from mediator.stores.port import SystemConfig
from redis_connection.commands import command

SOURCE = Source("store", "0")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bench:
    """A feed of a database of its own, and a lease."""

    def __init__(self, url: str, retention: Retention | None = None) -> None:
        self.redis = connect(url)
        self.client = client_of(url)
        self.feed = RedisFeed(self.redis, self.client, retention)
        self.leases = Leases(self.redis)
        self.database = f"d{uuid.uuid4().hex[:12]}"
        self.lease = Lease(f"test:{self.database}", "holder")

    def change(self, number: int, object_id: str = "x", version: int | None = None) -> Change:
        version = number if version is None else version
        after = {"n": number}
        return Change(
            f"op{number}:main", self.database, "c", object_id, "main", version, "update",
            None, after, 1_700_000_000_000_000 + number, self.database,
        )  # fmt: skip

    def brought(self, after: str, upto: str, numbers: Iterable[int]) -> LogBatch:
        return LogBatch(SOURCE, after, upto, [(place(n), self.change(n)) for n in numbers])

    async def append(
        self, *brought: LogBatch, until_tick: int | None = None, lease: Lease | None = None
    ) -> int:
        return await self.feed.append(self.database, brought, lease or self.lease, until_tick)

    async def ids(self) -> list[str]:
        """Return the ids of all changes in the feed, partition by partition."""
        found: list[str] = []
        for partition in range(PARTITIONS):
            oldest = await self.feed.oldest(self.database, partition)
            told = await self.feed.read(self.database, partition, oldest, 10_000)
            found += [change.id for _, change in told]
        return found

    async def close(self) -> None:
        keys = [key async for key in self.redis.scan_iter(f"*{self.database}*")]
        if keys:
            await self.redis.delete(*keys)
        await self.client.close()
        await self.redis.aclose()


def place(number: int) -> str:
    return f"{number:020d}"


def ids_of(numbers: Iterable[int]) -> Sequence[str]:
    return [f"op{number}:main" for number in numbers]


@pytest.fixture
async def bench(redis_config: SystemConfig) -> AsyncIterator[Bench]:
    bench = Bench(redis_config.url)
    await bench.leases.acquire(bench.lease.name, bench.lease.token, 60)
    yield bench
    await bench.close()


async def test_a_change_is_its_document(bench: Bench) -> None:
    change = bench.change(7, "ü/\U0001f600")
    assert change_from(document_of(change), bench.database) == change


@pytest.mark.parametrize("time_us", [-1, 0, 999_999, 1_000_000, 1_799_999_999_000_001])
def test_the_time_of_a_change_is_that_of_its_document(time_us: int) -> None:
    change = Change("o:g", "d", "c", "x", "g", 1, "update", None, {}, time_us, "d")
    document = document_of(change)
    assert change_from(document, "d") == change
    told = datetime.fromisoformat(orjson.loads(document)["time"])
    assert told == time_of(document) == EPOCH + timedelta(microseconds=time_us)


async def test_what_is_brought_twice_is_taken_once(bench: Bench) -> None:
    batch = bench.brought("", place(3), [1, 2, 3])
    assert await bench.append(batch) == 3
    assert await bench.append(batch) == 0
    overlapping = bench.brought("", place(5), [1, 2, 3, 4, 5])
    assert await bench.append(overlapping) == 2
    assert await bench.ids() == ids_of(range(1, 6))
    assert await bench.feed.cursors(bench.database, "store") == {"0": place(5)}
    assert await bench.feed.cursors(bench.database, "stor") == {}


async def test_changes_of_many_objects_overlap(bench: Bench) -> None:
    """Whatever is in their texts, each keeps its class, and those that are known are left out."""
    texts = ["\n", "\r\n", "a\nb", "\u2028", "", "\\n", "\x00"]
    entries = [
        (place(n), replace(bench.change(n, f"o{n % 5}"), class_name=f"c{n % 3}",
                           after={"t": texts[n % len(texts)]}))
        for n in range(60)
    ]  # fmt: skip
    known = LogBatch(SOURCE, "", place(24), entries[:25])
    assert await bench.append(known) == 25
    overlapping = LogBatch(SOURCE, "", place(59), entries)
    assert await bench.append(overlapping) == 35
    for partition in range(PARTITIONS):
        events = await bench.feed.events(bench.database, partition, BEGINNING, 100)
        expected = [c for _, c in entries if partition_of(c.class_name, c.object_id) == partition]
        assert [change_from(event.data, bench.database) for event in events] == expected
        assert [event.class_name for event in events] == [c.class_name for c in expected]


async def test_an_empty_batch_moves_the_cursor(bench: Bench) -> None:
    await bench.append(bench.brought("", place(9), []))
    assert await bench.feed.cursors(bench.database, "store") == {"0": place(9)}
    await bench.append(bench.brought("", place(4), []))
    assert await bench.feed.cursors(bench.database, "store") == {"0": place(9)}


async def test_without_its_lease_a_relay_appends_nothing(bench: Bench) -> None:
    stale = Lease(bench.lease.name, "before")
    with pytest.raises(LeaseLost):
        await bench.append(bench.brought("", place(1), [1]), until_tick=1, lease=stale)
    assert await bench.ids() == []
    assert await bench.feed.cursors(bench.database, "store") == {}


async def test_a_feed_that_went_back_says_so(bench: Bench) -> None:
    await bench.append(bench.brought("", place(2), [1, 2]))
    with pytest.raises(FeedRolledBack):
        await bench.append(bench.brought(place(3), place(4), [4]))
    with pytest.raises(FeedRolledBack):
        await bench.append(bench.brought(place(3), place(3), []), until_tick=9)
    assert await bench.ids() == ids_of([1, 2])
    assert await bench.feed.relayed_until(bench.database) == {}


async def test_logs_are_brought_together_or_not_at_all(bench: Bench) -> None:
    """One that went back keeps the others from being told of, wherever it stands among them."""
    logs = [
        replace(bench.brought("", place(n), [n]), source=Source("store", f"{n}")) for n in (1, 2)
    ]
    assert await bench.append(*logs, until_tick=5) == 2
    told = {"1": place(1), "2": place(2)}
    rest = bench.brought("", place(4), [3, 4])
    back = replace(logs[1], after=place(3), upto=place(9), entries=())
    for order in ([rest, back], [back, rest]):
        with pytest.raises(FeedRolledBack):
            await bench.append(*order, until_tick=9)
        assert await bench.feed.cursors(bench.database, "store") == told
        assert await bench.feed.relayed_until(bench.database) == {"store": 5}
    assert sorted(await bench.ids()) == ids_of([1, 2])
    assert await bench.append(rest, replace(back, after=place(2)), until_tick=9) == 2
    told |= {"0": place(4), "2": place(9)}
    assert await bench.feed.cursors(bench.database, "store") == told
    assert await bench.feed.relayed_until(bench.database) == {"store": 9}


async def test_what_is_not_all_is_not_called_complete(bench: Bench) -> None:
    await bench.append(bench.brought("", place(1), [1]), until_tick=5)
    await bench.append(bench.brought(place(1), place(2), [2]))
    assert await bench.feed.relayed_until(bench.database) == {"store": 5}


async def test_a_server_that_forgot_the_scripts_is_told_them_again(bench: Bench) -> None:
    for number in (1, 2):
        await bench.redis.script_flush()
        assert await bench.append(bench.brought("", place(number), [number])) == 1
    assert await bench.ids() == ids_of([1, 2])


async def test_a_broken_line_is_made_again(bench: Bench) -> None:
    for number in (1, 2):
        await bench.append(bench.brought("", place(number), [number]))
        (client_id,) = await bench.client.execute([command("CLIENT", "ID")])
        assert await bench.redis.client_kill_filter(_id=client_id) == 1
    assert await bench.ids() == ids_of([1, 2])


async def test_places_are_compared_byte_by_byte(bench: Bench) -> None:
    """Not as the server's locale has it, in which a hyphen may count for nothing."""
    first = LogBatch(SOURCE, "", "0-9", [("0-9", bench.change(1))])
    await bench.append(first)
    with pytest.raises(FeedRolledBack):
        await bench.append(LogBatch(SOURCE, "00", "01", []))


async def test_changes_above_the_last_of_their_group_are_taken(bench: Bench) -> None:
    changes = [bench.change(n) for n in (1, 2, 3)]
    assert await bench.feed.append_newer(changes[:2]) == 2
    assert await bench.feed.append_newer(changes) == 1
    await bench.feed.acknowledged(changes)
    assert await bench.feed.append_newer(changes) == 0, "a relay that was slow comes with them"
    assert await bench.feed.append_newer([bench.change(4)]) == 1
    await bench.feed.acknowledged(changes)
    assert await bench.feed.append_newer([bench.change(4)]) == 0
    assert await bench.ids() == ids_of([1, 2, 3, 4])


async def test_a_system_is_complete_up_to_its_slowest_replica(bench: Bench) -> None:
    feed, name, system = bench.feed, bench.database, f"mongo_{bench.database}"
    one, two = WriterProgress(system, "one"), WriterProgress(system, f"two_{name}")
    writers = RedisWriters(bench.redis)
    await writers.note_recovered(system, (await writers.read()).run)
    await feed.publish_progress(name, one, 50)
    await feed.publish_progress(name, two, 40)
    await bench.append(bench.brought("", "", []), until_tick=7)
    assert await feed.relayed_until(name) == {system: 40, "store": 7}
    assert await feed.published_progress(name, system) == {one.replica: 50, two.replica: 40}
    await feed.retire(name, system, {two.replica: 39})
    assert await feed.relayed_until(name) == {system: 40, "store": 7}, "it has told something"
    await writers.register(two.replica, "token")
    await feed.retire(name, system, {two.replica: 40})
    assert await feed.relayed_until(name) == {system: 40, "store": 7}, "it is registered"
    await writers.revoke(two.replica, "token")
    await feed.retire(name, system, {two.replica: 40})
    assert await feed.relayed_until(name) == {system: 50, "store": 7}
    await feed.publish_progress(name, two, 60)
    await feed.leave(name, one)
    assert await feed.relayed_until(name) == {system: 60, "store": 7}


async def test_a_system_whose_writers_are_not_known_is_not_complete(bench: Bench) -> None:
    """Another run of the server may have forgotten a writer that still holds its lease."""
    system = f"mongo_{bench.database}"
    writers = RedisWriters(bench.redis)
    await bench.feed.publish_progress(bench.database, WriterProgress(system, "one"), 50)
    await writers.note_recovered(system, "another run")
    assert system not in await bench.feed.relayed_until(bench.database)
    await writers.note_recovered(system, (await writers.read()).run)
    assert await bench.feed.relayed_until(bench.database) == {system: 50}


async def test_ticks_rise_over_runs_and_clocks_that_are_set(bench: Bench) -> None:
    """What was given out before another run, even if that has forgotten it, is below all there."""
    state = RedisViewState(bench.redis)
    first = await bench.feed.tick()
    assert (await state.watermarks(bench.database)).tick >= first
    lost = await bench.feed.tick()
    await bench.redis.hset(TICKS, mapping={"number": first, "run": "another"})
    read = (await state.watermarks(bench.database)).tick
    assert lost < read < await bench.feed.tick()
    ahead = lost + 100 * 3600 * 1_000_000
    await bench.redis.hset(TICKS, "number", ahead)
    assert [await bench.feed.tick() for _ in range(3)] == [ahead + 1, ahead + 2, ahead + 3]


async def test_a_feed_that_lacks_what_a_replica_brought_says_so(bench: Bench) -> None:
    feed, progress = bench.feed, WriterProgress("mongo", "one")
    for number in (1, 2):
        assert await feed.append_newer([bench.change(number)], progress) == 1
    assert progress.appends == {bench.database: 2}
    await bench.redis.hset(f"{{portolan:feed:{bench.database}}}:appends", "mongo/one", 1)
    with pytest.raises(FeedRolledBack):
        await feed.append_newer([bench.change(3)], progress)
    with pytest.raises(FeedRolledBack):
        await feed.publish_progress(bench.database, progress, 1)
    assert await bench.ids() == ids_of([1, 2])


async def test_objects_keep_their_order_in_their_partition(bench: Bench) -> None:
    changes = [bench.change(n, f"o{n % 10}") for n in range(100)]
    entries = [(place(n), change) for n, change in enumerate(changes)]
    await bench.append(LogBatch(SOURCE, "", place(99), entries))
    for partition in range(PARTITIONS):
        told = [c for _, c in await bench.feed.read(bench.database, partition, BEGINNING, 1000)]
        assert told == [c for c in changes if partition_of("c", c.object_id) == partition]
        if told:
            pages = [p async for p in _pages(bench, partition, 7)]
            assert [c for page in pages for c in page] == told


async def _pages(bench: Bench, partition: int, limit: int) -> AsyncIterator[list[Change]]:
    after = BEGINNING
    while page := await bench.feed.read(bench.database, partition, after, limit):
        yield [change for _, change in page]
        after = page[-1][0]
    assert after == await bench.feed.last(bench.database, partition)


async def test_a_position_is_gone_once_what_follows_it_is_removed(
    redis_config: SystemConfig,
) -> None:
    bench = Bench(redis_config.url, Retention(changes=3))
    feed, name, partition = bench.feed, bench.database, partition_of("c", "x")
    try:
        await feed.append_newer([bench.change(n) for n in range(1, 9)])
        before = [id_ for id_, _ in await feed.read(name, partition, BEGINNING, 100)]
        await feed.trim(name)
        assert await bench.ids() == ids_of([6, 7, 8])
        assert await feed.oldest(name, partition) == before[4]
        assert len(await feed.read(name, partition, before[4], 10)) == 3
        for gone in (BEGINNING, before[3]):
            with pytest.raises(PositionGone):
                await feed.read(name, partition, gone, 10)
    finally:
        await bench.close()


async def test_what_is_too_old_is_removed_whole(redis_config: SystemConfig) -> None:
    bench = Bench(redis_config.url, Retention(seconds=0.0))
    feed, name, partition = bench.feed, bench.database, partition_of("c", "x")
    try:
        await feed.append_newer([bench.change(n) for n in range(1, 4)])
        newest = await feed.last(name, partition)
        while await bench.redis.xlen(f"{{portolan:feed:{name}}}:{partition}"):
            await feed.trim(name)
        assert await feed.last(name, partition) == newest
        assert await feed.read(name, partition, newest, 10) == []
    finally:
        await bench.close()


async def test_a_lease_is_held_by_one(bench: Bench) -> None:
    name = f"other:{bench.database}"
    assert await bench.leases.acquire(name, "a", 60)
    assert await bench.leases.acquire(name, "a", 60)
    assert not await bench.leases.acquire(name, "b", 60)
    assert not await bench.leases.renew(name, "b", 60)
    await bench.leases.release(name, "b")
    assert await bench.leases.renew(name, "a", 60)
    await bench.leases.release(name, "a")
    assert await bench.leases.acquire(name, "b", 60)


async def test_a_feed_that_lacks_what_a_retired_replica_brought_says_so(bench: Bench) -> None:
    feed, progress = bench.feed, WriterProgress("mongo", "one")
    await feed.publish_progress(bench.database, progress, 40)
    assert await feed.append_newer([bench.change(1)], progress) == 1
    await feed.retire(bench.database, "mongo", {"one": 40})
    progress.appends[bench.database] += 1
    with pytest.raises(FeedRolledBack):
        await feed.append_newer([bench.change(2)], progress)
