"""The feed in Redis: repeated changes are appended once, and nothing is skipped."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from mediator.base.lease import Lease, LeaseLost
from mediator.changes.document import change_from, document_of, encoded, time_of
from mediator.changes.feed import (
    BEGINNING,
    PARTITIONS,
    FeedRolledBack,
    LogBatch,
    LogSource,
    PositionGone,
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

SOURCE = LogSource("store", "0")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Harness:
    """The feed of a new database, and a lease."""

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

    def batch(self, after: str, upto: str, numbers: Iterable[int]) -> LogBatch:
        return LogBatch(SOURCE, after, upto, [(cursor(n), self.change(n)) for n in numbers])

    async def append(
        self, *batches: LogBatch, until_tick: int | None = None, lease: Lease | None = None
    ) -> int:
        return await self.feed.append(self.database, batches, lease or self.lease, until_tick)

    async def append_newer(
        self, changes: Iterable[Change], progress: WriterProgress | None = None
    ) -> int:
        """Append changes of records as the replica of a progress, or as a new one."""
        progress = progress or WriterProgress("store", uuid.uuid4().hex)
        return await self.feed.append_newer(self.database, [*map(encoded, changes)], progress)

    async def ids(self) -> list[str]:
        """Return the ids of all changes in the feed, partition by partition."""
        change_ids: list[str] = []
        for partition in range(PARTITIONS):
            oldest = await self.feed.oldest(self.database, partition)
            entries = await self.feed.read(self.database, partition, oldest, 10_000)
            change_ids += [change.id for _, change in entries]
        return change_ids

    async def close(self) -> None:
        keys = [key async for key in self.redis.scan_iter(f"*{self.database}*")]
        if keys:
            await self.redis.delete(*keys)
        await self.client.close()
        await self.redis.aclose()


def cursor(number: int) -> str:
    return f"{number:020d}"


def ids_of(numbers: Iterable[int]) -> Sequence[str]:
    return [f"op{number}:main" for number in numbers]


@pytest.fixture
async def harness(redis_config: SystemConfig) -> AsyncIterator[Harness]:
    harness = Harness(redis_config.url)
    await harness.leases.acquire(harness.lease.name, harness.lease.token, 60)
    yield harness
    await harness.close()


async def test_a_change_is_its_document(harness: Harness) -> None:
    change = harness.change(7, "ü/\U0001f600")
    assert change_from(document_of(change), harness.database) == change


@pytest.mark.parametrize("time_us", [-1, 0, 999_999, 1_000_000, 1_799_999_999_000_001])
def test_the_time_of_a_change_is_that_of_its_document(time_us: int) -> None:
    change = Change("o:g", "d", "c", "x", "g", 1, "update", None, {}, time_us, "d")
    document = document_of(change)
    assert change_from(document, "d") == change
    written = datetime.fromisoformat(orjson.loads(document)["time"])
    assert written == time_of(document) == EPOCH + timedelta(microseconds=time_us)


async def test_a_change_relayed_twice_is_appended_once(harness: Harness) -> None:
    batch = harness.batch("", cursor(3), [1, 2, 3])
    assert await harness.append(batch) == 3
    assert await harness.append(batch) == 0
    overlapping = harness.batch("", cursor(5), [1, 2, 3, 4, 5])
    assert await harness.append(overlapping) == 2
    assert await harness.ids() == ids_of(range(1, 6))
    assert await harness.feed.cursors(harness.database, "store") == {"0": cursor(5)}
    assert await harness.feed.cursors(harness.database, "stor") == {}


async def test_changes_of_many_objects_overlap(harness: Harness) -> None:
    """Whatever their texts, changes keep their class, and known changes are left out."""
    texts = ["\n", "\r\n", "a\nb", "\u2028", "", "\\n", "\x00"]
    entries = [
        (cursor(n), replace(harness.change(n, f"o{n % 5}"), class_name=f"c{n % 3}",
                           after={"t": texts[n % len(texts)]}))
        for n in range(60)
    ]  # fmt: skip
    known_batch = LogBatch(SOURCE, "", cursor(24), entries[:25])
    assert await harness.append(known_batch) == 25
    overlapping = LogBatch(SOURCE, "", cursor(59), entries)
    assert await harness.append(overlapping) == 35
    for partition in range(PARTITIONS):
        events = await harness.feed.events(harness.database, partition, BEGINNING, 100)
        expected = [c for _, c in entries if partition_of(c.class_name, c.object_id) == partition]
        assert [change_from(event.data, harness.database) for event in events] == expected
        assert [event.class_name for event in events] == [c.class_name for c in expected]


async def test_an_empty_batch_moves_the_cursor(harness: Harness) -> None:
    await harness.append(harness.batch("", cursor(9), []))
    assert await harness.feed.cursors(harness.database, "store") == {"0": cursor(9)}
    await harness.append(harness.batch("", cursor(4), []))
    assert await harness.feed.cursors(harness.database, "store") == {"0": cursor(9)}


async def test_without_its_lease_a_relay_appends_nothing(harness: Harness) -> None:
    stale = Lease(harness.lease.name, "before")
    with pytest.raises(LeaseLost):
        await harness.append(harness.batch("", cursor(1), [1]), until_tick=1, lease=stale)
    assert await harness.ids() == []
    assert await harness.feed.cursors(harness.database, "store") == {}


async def test_a_feed_that_rolled_back_refuses_appends(harness: Harness) -> None:
    await harness.append(harness.batch("", cursor(2), [1, 2]))
    with pytest.raises(FeedRolledBack):
        await harness.append(harness.batch(cursor(3), cursor(4), [4]))
    with pytest.raises(FeedRolledBack):
        await harness.append(harness.batch(cursor(3), cursor(3), []), until_tick=9)
    assert await harness.ids() == ids_of([1, 2])
    assert await harness.feed.relayed_until(harness.database) == {}


async def test_logs_are_relayed_together_or_not_at_all(harness: Harness) -> None:
    """A log that rolled back blocks the others, whatever its position."""
    logs = [
        replace(harness.batch("", cursor(n), [n]), source=LogSource("store", f"{n}"))
        for n in (1, 2)
    ]
    assert await harness.append(*logs, until_tick=5) == 2
    cursors = {"1": cursor(1), "2": cursor(2)}
    next_batch = harness.batch("", cursor(4), [3, 4])
    rolled_back = replace(logs[1], after=cursor(3), upto=cursor(9), entries=())
    for order in ([next_batch, rolled_back], [rolled_back, next_batch]):
        with pytest.raises(FeedRolledBack):
            await harness.append(*order, until_tick=9)
        assert await harness.feed.cursors(harness.database, "store") == cursors
        assert await harness.feed.relayed_until(harness.database) == {"store": 5}
    assert sorted(await harness.ids()) == ids_of([1, 2])
    assert (
        await harness.append(next_batch, replace(rolled_back, after=cursor(2)), until_tick=9) == 2
    )
    cursors |= {"0": cursor(4), "2": cursor(9)}
    assert await harness.feed.cursors(harness.database, "store") == cursors
    assert await harness.feed.relayed_until(harness.database) == {"store": 9}


async def test_an_incomplete_batch_is_not_reported_as_complete(harness: Harness) -> None:
    await harness.append(harness.batch("", cursor(1), [1]), until_tick=5)
    await harness.append(harness.batch(cursor(1), cursor(2), [2]))
    assert await harness.feed.relayed_until(harness.database) == {"store": 5}


async def test_a_server_that_forgot_the_scripts_receives_them_again(harness: Harness) -> None:
    for number in (1, 2):
        await harness.redis.script_flush()
        assert await harness.append(harness.batch("", cursor(number), [number])) == 1
    assert await harness.ids() == ids_of([1, 2])


async def test_a_broken_connection_is_opened_again(harness: Harness) -> None:
    for number in (1, 2):
        await harness.append(harness.batch("", cursor(number), [number]))
        (client_id,) = await harness.client.execute([command("CLIENT", "ID")])
        assert await harness.redis.client_kill_filter(_id=client_id) == 1
    assert await harness.ids() == ids_of([1, 2])


async def test_cursors_are_compared_byte_by_byte(harness: Harness) -> None:
    """Not by the server's locale, which can ignore hyphens."""
    first = LogBatch(SOURCE, "", "0-9", [("0-9", harness.change(1))])
    await harness.append(first)
    with pytest.raises(FeedRolledBack):
        await harness.append(LogBatch(SOURCE, "00", "01", []))


async def test_changes_above_the_last_of_their_group_are_taken(harness: Harness) -> None:
    changes = [harness.change(n) for n in (1, 2, 3)]
    assert await harness.append_newer(changes[:2]) == 2
    assert await harness.append_newer(changes) == 1
    await harness.feed.acknowledged(harness.database, changes)
    assert await harness.append_newer(changes) == 0, "as from a slow relay"
    assert await harness.append_newer([harness.change(4)]) == 1
    await harness.feed.acknowledged(harness.database, changes)
    assert await harness.append_newer([harness.change(4)]) == 0
    assert await harness.ids() == ids_of([1, 2, 3, 4])


async def test_a_system_is_complete_up_to_its_slowest_replica(harness: Harness) -> None:
    feed, name, system = harness.feed, harness.database, f"mongo_{harness.database}"
    one, two = WriterProgress(system, "one"), WriterProgress(system, f"two_{name}")
    writers = RedisWriters(harness.redis)
    await writers.note_recovered(system, (await writers.read()).run)
    await feed.publish_progress(name, one, 50)
    await feed.publish_progress(name, two, 40)
    await harness.append(harness.batch("", "", []), until_tick=7)
    assert await feed.relayed_until(name) == {system: 40, "store": 7}
    assert await feed.published_progress(name, system) == {one.replica: 50, two.replica: 40}
    await feed.retire(name, system, {two.replica: 39})
    assert await feed.relayed_until(name) == {system: 40, "store": 7}, "it has reported progress"
    await writers.register(two.replica, "token")
    await feed.retire(name, system, {two.replica: 40})
    assert await feed.relayed_until(name) == {system: 40, "store": 7}, "it is registered"
    await writers.revoke(two.replica, "token")
    await feed.retire(name, system, {two.replica: 40})
    assert await feed.relayed_until(name) == {system: 50, "store": 7}
    await feed.publish_progress(name, two, 60)
    await feed.leave(name, one)
    assert await feed.relayed_until(name) == {system: 60, "store": 7}


async def test_a_system_whose_writers_are_not_known_is_not_complete(harness: Harness) -> None:
    """A new run of the server can have forgotten a writer that still holds its lease."""
    system = f"mongo_{harness.database}"
    writers = RedisWriters(harness.redis)
    await harness.feed.publish_progress(harness.database, WriterProgress(system, "one"), 50)
    await writers.note_recovered(system, "another run")
    assert system not in await harness.feed.relayed_until(harness.database)
    await writers.note_recovered(system, (await writers.read()).run)
    assert await harness.feed.relayed_until(harness.database) == {system: 50}


async def test_ticks_rise_over_runs_and_clocks_that_are_set(harness: Harness) -> None:
    """Ticks of an earlier run, even forgotten ones, are below all later ticks."""
    state = RedisViewState(harness.redis)
    first = await harness.feed.tick()
    assert (await state.watermarks(harness.database)).tick >= first
    lost = await harness.feed.tick()
    await harness.redis.hset(TICKS, mapping={"number": first, "run": "another"})
    watermark = (await state.watermarks(harness.database)).tick
    assert lost < watermark < await harness.feed.tick()
    ahead = lost + 100 * 3600 * 1_000_000
    await harness.redis.hset(TICKS, "number", ahead)
    assert [await harness.feed.tick() for _ in range(3)] == [ahead + 1, ahead + 2, ahead + 3]


async def test_a_feed_that_lacks_changes_of_a_replica_refuses_appends(harness: Harness) -> None:
    feed, progress = harness.feed, WriterProgress("mongo", "one")
    for number in (1, 2):
        assert await harness.append_newer([harness.change(number)], progress) == 1
    assert progress.appends == {harness.database: 2}
    await harness.redis.hset(f"{{portolan:feed:{harness.database}}}:appends", "mongo/one", 1)
    with pytest.raises(FeedRolledBack):
        await harness.append_newer([harness.change(3)], progress)
    with pytest.raises(FeedRolledBack):
        await feed.publish_progress(harness.database, progress, 1)
    assert await harness.ids() == ids_of([1, 2])


async def test_objects_keep_their_order_in_their_partition(harness: Harness) -> None:
    changes = [harness.change(n, f"o{n % 10}") for n in range(100)]
    entries = [(cursor(n), change) for n, change in enumerate(changes)]
    await harness.append(LogBatch(SOURCE, "", cursor(99), entries))
    for partition in range(PARTITIONS):
        relayed = [
            c for _, c in await harness.feed.read(harness.database, partition, BEGINNING, 1000)
        ]
        assert relayed == [c for c in changes if partition_of("c", c.object_id) == partition]
        if relayed:
            pages = [p async for p in _pages(harness, partition, 7)]
            assert [c for page in pages for c in page] == relayed


async def _pages(harness: Harness, partition: int, limit: int) -> AsyncIterator[list[Change]]:
    after = BEGINNING
    while page := await harness.feed.read(harness.database, partition, after, limit):
        yield [change for _, change in page]
        after = page[-1][0]
    assert after == await harness.feed.last(harness.database, partition)


async def test_a_position_is_gone_once_its_successors_are_removed(
    redis_config: SystemConfig,
) -> None:
    harness = Harness(redis_config.url, Retention(changes=3))
    feed, name, partition = harness.feed, harness.database, partition_of("c", "x")
    try:
        await harness.append_newer([harness.change(n) for n in range(1, 9)])
        event_ids = [id_ for id_, _ in await feed.read(name, partition, BEGINNING, 100)]
        await feed.trim(name)
        assert await harness.ids() == ids_of([6, 7, 8])
        assert await feed.oldest(name, partition) == event_ids[4]
        assert len(await feed.read(name, partition, event_ids[4], 10)) == 3
        for position in (BEGINNING, event_ids[3]):
            with pytest.raises(PositionGone):
                await feed.read(name, partition, position, 10)
    finally:
        await harness.close()


async def test_changes_past_their_retention_are_removed(redis_config: SystemConfig) -> None:
    harness = Harness(redis_config.url, Retention(seconds=0.0))
    feed, name, partition = harness.feed, harness.database, partition_of("c", "x")
    try:
        await harness.append_newer([harness.change(n) for n in range(1, 4)])
        newest = await feed.last(name, partition)
        while await harness.redis.xlen(f"{{portolan:feed:{name}}}:{partition}"):
            await feed.trim(name)
        assert await feed.last(name, partition) == newest
        assert await feed.read(name, partition, newest, 10) == []
    finally:
        await harness.close()


async def test_a_lease_is_held_by_one(harness: Harness) -> None:
    name = f"other:{harness.database}"
    assert await harness.leases.acquire(name, "a", 60)
    assert await harness.leases.acquire(name, "a", 60)
    assert not await harness.leases.acquire(name, "b", 60)
    await harness.leases.release(name, "b")
    assert not await harness.leases.acquire(name, "b", 60)
    await harness.leases.release(name, "a")
    assert await harness.leases.acquire(name, "b", 60)


async def test_a_feed_that_lacks_changes_of_a_retired_replica_refuses_appends(
    harness: Harness,
) -> None:
    feed, progress = harness.feed, WriterProgress("mongo", "one")
    await feed.publish_progress(harness.database, progress, 40)
    assert await harness.append_newer([harness.change(1)], progress) == 1
    await feed.retire(harness.database, "mongo", {"one": 40})
    progress.appends[harness.database] += 1
    with pytest.raises(FeedRolledBack):
        await harness.append_newer([harness.change(2)], progress)
