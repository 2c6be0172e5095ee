"""Event streams in Redis: numbers without gaps, batches as a whole, retention, back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from math import inf
from random import Random
from typing import Any

import pytest
from redis.asyncio import Redis

from mediator.base.errors import Conflict, IdempotencyReused, NotFound, TooManyRequests
from mediator.changes.feed import PositionGone
from mediator.coordination.event_streams import RedisEventStreams, StreamBounds
from mediator.event_streams.port import EventStream, NewTuple, StoredTuple, StreamKey
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import unique

DAY_MS = 86_400_000
FAR_MS = 10**13
"""A time of the clock in the far future."""
STREAM = EventStream("prices", frozenset({"n"}), 3600.0, 5_000, {"n": "integer"})


class DeclaredStream:
    """A declared stream and its Redis."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.streams = RedisEventStreams(redis)
        self.key = StreamKey(unique(), STREAM.name)

    def name(self, kind: str) -> str:
        return f"{{portolan:event-streams:{self.key.database}}}:{kind}:{self.key.stream}"

    async def declare(self, retention_s: float = 3600.0, most_tuples: int = 5_000) -> None:
        await self.streams.drop(self.key)
        stream = EventStream(STREAM.name, STREAM.attributes, retention_s, most_tuples, STREAM.types)
        assert await self.streams.declare(self.key, stream, 2)

    async def append(self, numbers: Sequence[int]) -> int:
        return await self.streams.append(self.key, tuples(numbers))

    async def read(self, after: int | None, limit: int = 10_000) -> list[StoredTuple]:
        return (await self.streams.read(self.key, after, limit)).tuples

    async def numbers(self, after: int | None, limit: int = 10_000) -> list[int]:
        return [tuple_.number for tuple_ in await self.read(after, limit)]

    async def pass_by(self, ms: int) -> None:
        """Let time pass for the stream: its last reading of Redis's clock moves back."""
        await self.redis.hincrby(self.name("state"), "clock", -ms)

    async def pass_exactly(self, ms: int) -> None:
        """Let only this time pass until the next call: the clock is set back then."""
        state = self.name("state")
        async with self.redis.pipeline(transaction=True) as pipe:
            pipe.hincrby(state, "elapsed", ms)
            pipe.hset(state, "clock", FAR_MS)
            await pipe.execute()


def tuples(numbers: Sequence[int]) -> list[NewTuple]:
    return [NewTuple(1e9 + number / 7, b'{"n":%d}' % number) for number in numbers]


@pytest.fixture
async def declared(redis_config: SystemConfig) -> AsyncIterator[DeclaredStream]:
    async with Redis.from_url(redis_config.url) as redis:
        stream = DeclaredStream(redis)
        await stream.declare()
        yield stream
        await stream.streams.clear(stream.key.database)
        keys = [k async for k in redis.scan_iter(match=f"*{stream.key.database}*", count=10_000)]
        assert all([await redis.pttl(name) > 0 for name in keys])


async def test_tuples_have_numbers_and_come_back_as_they_were_sent(
    declared: DeclaredStream,
) -> None:
    assert await declared.streams.last(declared.key) == 0
    assert await declared.append(range(1, 4)) == 3
    assert await declared.append([4]) == 4
    expected = [StoredTuple(n, 1e9 + n / 7, {"n": n}) for n in range(1, 5)]
    assert await declared.read(0, 10) == expected
    assert await declared.read(None, 10) == expected
    assert await declared.streams.read(declared.key, 1, 2) == (expected[1:3], 4)
    assert await declared.streams.read(declared.key, 4, 10) == ([], 4)
    assert await declared.streams.last(declared.key) == 4


async def test_batches_that_arrive_together_stay_together(declared: DeclaredStream) -> None:
    """Each has 150 tuples, more than a chunk of a page, all with one value."""
    lasts = await asyncio.gather(*(declared.append([sender] * 150) for sender in range(8)))
    stored = await declared.read(0)
    assert [tuple_.number for tuple_ in stored] == list(range(1, 1201))
    for sender, last in enumerate(lasts):
        assert {tuple_.values["n"] for tuple_ in stored[last - 150 : last]} == {sender}


async def test_a_stream_is_declared_once_and_listed(declared: DeclaredStream) -> None:
    streams, database = declared.streams, declared.key.database
    assert not await streams.declare(declared.key, STREAM, 2)
    assert await streams.find(declared.key) == STREAM
    assert await streams.declare(StreamKey(database, "other"), STREAM, 2)
    with pytest.raises(Conflict):
        await streams.declare(StreamKey(database, "third"), STREAM, 2)
    assert set(await streams.of_database(database)) == {"prices", "other"}
    assert await streams.find(StreamKey(database, "third")) is None


@pytest.mark.parametrize("limit", ["tuples", "bytes"])
async def test_a_batch_that_does_not_fit_is_refused_as_a_whole(
    declared: DeclaredStream, limit: str
) -> None:
    bounds = StreamBounds(bytes=100 if limit == "bytes" else 10_000)
    declared.streams = RedisEventStreams(declared.redis, bounds)
    await declared.declare(most_tuples=4 if limit == "tuples" else 1_000)
    await declared.append([1, 2, 3])
    before = await declared.streams.report(declared.key)
    with pytest.raises(TooManyRequests) as error:
        await declared.append([4, 5])
    assert error.value.extra == {"limit": limit}
    assert 3500 < error.value.retry_after_s <= 3600
    after = await declared.streams.report(declared.key)
    assert (after.first, after.last, after.size) == (before.first, before.last, before.size)
    if limit == "tuples":
        assert await declared.append([4]) == 4


async def test_tuples_older_than_the_retention_make_room(declared: DeclaredStream) -> None:
    await declared.declare(retention_s=100.0, most_tuples=6)
    await declared.append([1, 2, 3])
    await declared.pass_by(60_000)
    await declared.append([4, 5])
    await declared.pass_by(60_000)
    assert await declared.append([6]) == 6
    assert await declared.numbers(None) == [4, 5, 6]
    assert await declared.append([7, 8, 9]) == 9
    with pytest.raises(PositionGone):
        await declared.numbers(2)
    assert await declared.numbers(3) == [4, 5, 6, 7, 8, 9]
    assert (await declared.streams.report(declared.key)).size == await size(declared, 6)


async def test_removed_tuples_make_room_for_other_bytes(declared: DeclaredStream) -> None:
    row = len(b'1000000000.0 {"n":0}')
    declared.streams = RedisEventStreams(declared.redis, StreamBounds(bytes=3 * row))
    for _ in range(3):
        await declared.append([0, 0, 0])
        with pytest.raises(TooManyRequests):
            await declared.append([0])
        await declared.pass_by(DAY_MS)


async def test_tuples_that_arrived_soon_after_others_are_not_removed_with_them(
    declared: DeclaredStream,
) -> None:
    """Within a hundredth of the retention, the precision of removal."""
    await declared.declare(retention_s=1_000.0)
    await declared.append([1])
    await declared.pass_exactly(9_000)
    await declared.append([2])
    await declared.pass_exactly(996_000)
    await declared.append([3])
    assert await declared.numbers(None) == [1, 2, 3]
    await declared.pass_by(5_000)
    await declared.append([4])
    assert await declared.numbers(None) == [3, 4]


async def size(declared: DeclaredStream, count: int) -> int:
    """Return the bytes of the tuples in Redis, and check their count."""
    rows: Any = await declared.redis.xrange(declared.name("tuples"))
    assert sum(int(fields[b"n"]) for _, fields in rows) == count
    return sum(len(fields[b"t"].replace(b"\n", b"")) for _, fields in rows)


async def test_a_stream_that_is_sent_to_all_the_time_keeps_no_tuple_for_longer(
    declared: DeclaredStream,
) -> None:
    """Ten batches a second and more, and each of 100 tuples of a second must go in its turn."""
    await declared.declare(retention_s=10.0, most_tuples=5_000)
    for _ in range(60):
        await declared.append(range(100))
        await declared.pass_exactly(500)
    report = await declared.streams.report(declared.key)
    assert report.last == 6_000
    assert 1_900 <= report.last - report.first + 1 <= 2_200


async def test_no_batch_pays_for_a_long_pause(declared: DeclaredStream) -> None:
    for _ in range(5):
        await declared.append(range(1000))
    await declared.pass_by(DAY_MS)
    await declared.append([1])
    numbers = await declared.numbers(None)
    assert (numbers[0], numbers[-1]) == (2001, 5001)


async def test_tuples_go_and_numbers_stay_when_nothing_is_sent(declared: DeclaredStream) -> None:
    await declared.declare(retention_s=0.05)
    await declared.append([1, 2])

    async def are_gone() -> bool:
        return not await declared.numbers(None)

    await eventually(are_gone)
    assert await declared.streams.last(declared.key) == 2
    with pytest.raises(PositionGone):
        await declared.numbers(1)
    assert await declared.numbers(2) == []
    await declared.declare()
    assert await declared.append([3]) == 3


async def test_a_clock_of_redis_that_is_set_back_keeps_tuples_and_stops_nothing(
    declared: DeclaredStream,
) -> None:
    await declared.declare(retention_s=100.0, most_tuples=4)
    await declared.append([1, 2])
    await declared.pass_by(90_000)
    await declared.append([3])
    await declared.pass_by(-DAY_MS)
    await declared.append([4])
    assert await declared.numbers(0) == [1, 2, 3, 4]
    await declared.pass_by(20_000)
    assert await declared.append([5, 6]) == 6
    assert await declared.numbers(None) == [3, 4, 5, 6]


async def test_a_live_consumer_stops_a_stream_that_runs_away_from_it(
    declared: DeclaredStream,
) -> None:
    declared.streams = RedisEventStreams(declared.redis, StreamBounds(behind=3))
    await declared.streams.consumed(declared.key, "slow", 0)
    await declared.append([1, 2, 3])
    await declared.streams.consumed(declared.key, "fast", 3)
    with pytest.raises(TooManyRequests) as error:
        await declared.append([4])
    assert error.value.extra == {"limit": "consumer", "consumer": "slow"}
    assert await declared.streams.last(declared.key) == 3
    await declared.streams.consumed(declared.key, "slow", 1)
    assert await declared.append([4]) == 4
    report = await declared.streams.report(declared.key)
    assert report.consumers == {"slow": 1, "fast": 3}


async def test_consumers_that_have_gone_do_not_count(declared: DeclaredStream) -> None:
    declared.streams = RedisEventStreams(declared.redis, StreamBounds(behind=3))
    for number in range(3):
        await declared.streams.consumed(declared.key, f"gone {number}", 0)
    await declared.pass_by(59_000)
    await declared.streams.consumed(declared.key, "live", 0)
    await declared.append([1])
    await declared.pass_by(2_000)
    assert (await declared.streams.report(declared.key)).consumers == {"live": 0}
    await declared.streams.consumed(declared.key, "live", 1)
    assert await declared.append([2, 3, 4]) == 4
    assert await declared.redis.zcard(declared.name("seen")) == 1
    await declared.pass_by(61_000)
    assert await declared.append([5, 6, 7, 8]) == 8
    assert await declared.redis.zcard(declared.name("seen")) == 0


async def test_a_batch_that_is_retried_is_appended_once(declared: DeclaredStream) -> None:
    streams, key = declared.streams, declared.key
    first = await streams.append_once(key, tuples([1, 2]), "id", "same")
    assert first == (2, True)
    await declared.append([3])
    assert await streams.append_once(key, tuples([1, 2]), "id", "same") == (2, False)
    with pytest.raises(IdempotencyReused) as error:
        await streams.append_once(key, tuples([1]), "id", "other")
    assert error.value.fingerprint == "same"
    assert await declared.numbers(0) == [1, 2, 3]
    await declared.declare()
    assert await streams.append_once(key, tuples([4]), "id", "other") == (4, True)


async def test_a_stream_that_is_declared_again_continues_the_numbers(
    declared: DeclaredStream,
) -> None:
    await declared.append([1, 2])
    await declared.streams.consumed(declared.key, "reader", 2)
    assert await declared.streams.drop(declared.key)
    assert not await declared.streams.drop(declared.key)
    for call in (declared.append([3]), declared.numbers(0), declared.streams.report(declared.key)):
        with pytest.raises(NotFound):
            await call
    await declared.declare()
    assert await declared.append([3]) == 3
    with pytest.raises(PositionGone):
        await declared.numbers(1)
    assert await declared.numbers(2) == [3]
    assert (await declared.streams.report(declared.key)).consumers == {}


async def test_numbers_are_continued_however_many_streams_were_dropped(
    declared: DeclaredStream,
) -> None:
    """One thousand names are remembered one by one."""
    database = declared.key.database
    await declared.append([1, 2, 3])
    await declared.streams.drop(declared.key)
    for number in range(1_001):
        key = StreamKey(database, f"other{number}")
        await declared.streams.declare(key, STREAM, 1)
        await declared.streams.drop(key)
    await declared.declare()
    assert await declared.append([4]) == 4


async def test_nothing_is_ahead_of_the_last_tuple(declared: DeclaredStream) -> None:
    with pytest.raises(PositionGone):
        await declared.numbers(1)


async def test_a_reader_waits_for_the_next_tuple(declared: DeclaredStream) -> None:
    reading = asyncio.create_task(declared.streams.read(declared.key, 0, 10, wait_s=60.0))
    await asyncio.sleep(0)
    await declared.append([1, 2])
    assert [tuple_.number for tuple_ in (await reading).tuples] == [1, 2]
    assert await declared.streams.read(declared.key, 2, 10, wait_s=0.01) == ([], 2)


async def test_a_page_is_bounded_by_its_bytes(declared: DeclaredStream) -> None:
    large = [NewTuple(0.0, b'{"text":"%b"}' % (b"x" * 10_000)) for _ in range(150)]
    await declared.streams.append(declared.key, large)
    page, last = await declared.streams.read(declared.key, 0, 10_000)
    assert [tuple_.number for tuple_ in page] == list(range(1, 106))
    assert last == 150, "more follows"
    assert await declared.numbers(105) == list(range(106, 151))


async def test_entries_of_redis_are_not_visible(declared: DeclaredStream) -> None:
    """An entry has up to a hundred tuples of one batch."""
    for count in (1, 100, 101, 250, 2):
        await declared.append(range(count))
    last = 454
    assert await declared.redis.xlen(declared.name("tuples")) == 8
    for after in range(last + 1):
        for limit in (1, 99, 1_000):
            expected = list(range(after + 1, min(last, after + limit) + 1))
            assert await declared.numbers(after, limit) == expected


async def test_a_report_says_what_is_kept_and_how_much_arrives(declared: DeclaredStream) -> None:
    empty = await declared.streams.report(declared.key)
    assert (empty.first, empty.last, empty.size, empty.rate) == (1, 0, 0, 0.0)
    await declared.append(range(60))
    report = await declared.streams.report(declared.key)
    assert (report.first, report.last) == (1, 60)
    assert report.size == await size(declared, 60)
    assert 0.5 < report.rate <= 1.0
    await declared.pass_by(600_000)
    assert (await declared.streams.report(declared.key)).rate < 0.001


async def test_ranges_cover_the_kept_tuples_and_bound_their_times(declared: DeclaredStream) -> None:
    await declared.declare(retention_s=10_000.0)
    assert await declared.streams.ranges(declared.key) == []
    draw = Random(7)
    for step in range(24):
        times = [draw.uniform(0, 1e6) for _ in range(draw.randrange(1, 400))]
        new = [NewTuple(time_s, b"{}") for time_s in times]
        await declared.streams.append(declared.key, new)
        if step % 2 == 0:  # tuples that arrive together, or soon after one another, are a range
            await declared.pass_by(1_000_000)
    ranges = await declared.streams.ranges(declared.key)
    stored = {tuple_.number: tuple_.time_s for tuple_ in await read_all(declared)}
    covered = [n for range_ in ranges for n in range(range_.first, range_.last + 1)]
    assert covered == list(stored)
    assert covered[0] > 1
    for range_ in ranges:
        latest_s = max(stored[n] for n in range(range_.first, range_.last + 1))
        assert latest_s <= range_.latest_s < latest_s + 1
    # As an older version left it: new tuples in it do not bound the times of the others.
    last = len(ranges) - 1
    record: Any = await declared.redis.lindex(declared.name("records"), last)
    await declared.redis.lset(declared.name("records"), last, record.rpartition(b" ")[0])
    assert (await declared.streams.ranges(declared.key))[last].latest_s == inf
    await declared.append([1])
    assert [range_.latest_s for range_ in await declared.streams.ranges(declared.key)][last] == inf


async def read_all(declared: DeclaredStream) -> list[StoredTuple]:
    stored = await declared.read(None, 1_000)
    while page := await declared.read(stored[-1].number, 1_000):
        stored += page
    return stored
