"""Streams as inputs of Structured Streaming: exactly once, over restarts and in partitions."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.serializers import CloudPickleSerializer
from redis.asyncio import Redis

from mediator.changes.feed import PARTITIONS
from mediator.changes.position import FeedPosition
from mediator.control.port import ChangeOptions
from mediator.model.operations import Update
from mediator.stores.port import SystemConfig
from spark_jobs.runner.port import InputUnfit
from spark_jobs.sources.stream_ranges import ChangesRange, StreamLost, TuplesRange, tuples_in
from spark_jobs.sources.streams import StreamData
from tests.process.redis_keys import go_back, keys_under
from tests.process.service import unique
from tests.spark.streams.database_streams import FIELDS, OTHER_CLASSES, Sink, Streams


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [row["number"] for row in rows]


async def test_a_stream_is_read_in_partitions_as_it_was_sent(streams: Streams) -> None:
    """There are two batches; planning the second commits the first."""
    key, sink = await streams.declare(), Sink()
    await streams.append(key, *range(1, 3_501))
    options = {"stream": key.stream, "partitions": 2, "maxPerTrigger": 2_000, "consumer": "ledger"}
    await streams.drain(sink, **options)
    assert sink.partitions == {0: 2, 1: 2}
    rows = sorted(sink.rows, key=lambda row: row["number"])
    assert numbers(rows) == list(range(1, 3_501))
    assert rows[6] == {"stream": key.stream, "number": 7, "time_s": 1.0, "values": '{"n":7}'}
    report = await streams.event_streams.report(key)
    assert report.consumers == {"ledger": 2_000}


async def test_a_batch_that_was_planned_has_the_same_rows_after_a_restart(
    streams: Streams,
) -> None:
    """The first batch, of a query that starts at the latest tuple, and a later one."""
    key, sink = await streams.declare(), Sink(kill=0)
    options = {"stream": key.stream, "startingAt": "latest", "maxPerTrigger": 3}
    await streams.append(key, 1, 2, 3, 4)
    with pytest.raises(StreamingQueryException):
        await streams.drain(sink, **options)
    await streams.append(key, *range(5, 14))
    sink.kill = 2
    with pytest.raises(StreamingQueryException):
        await streams.drain(sink, **options)
    await streams.append(key, 14, 15)
    await streams.drain(sink, **options)
    assert numbers(sink.rows) == list(range(5, 16))
    for batch, expected in ((0, []), (2, [8, 9, 10])):
        assert [numbers(rows) for rows in sink.seen[batch]] == [expected, expected]
    assert all(len(rows) <= 3 for attempts in sink.seen.values() for rows in attempts)


@pytest.mark.parametrize(
    ("starting_at", "expected"), [("earliest", [1, 2, 3]), ("1", [2, 3]), ("latest", [])]
)
async def test_a_query_starts_at_the_position_of_its_option(
    streams: Streams, starting_at: str, expected: list[int]
) -> None:
    key = await streams.declare()
    await streams.append(key, 1, 2, 3)
    options = {"stream": key.stream, "startingAt": starting_at}
    assert numbers(await streams.read(**options)) == expected


async def test_expired_tuples_fail_the_query_unless_it_may_lose_them(
    streams: Streams, redis_config: SystemConfig
) -> None:
    key = await streams.declare()
    await streams.append(key, 1, 2, 3, 4)
    state = f"{{portolan:event-streams:{key.database}}}:state:{key.stream}"
    async with Redis.from_url(redis_config.url) as redis:
        await redis.hincrby(state, "clock", -7_200_000)  # two hours pass
    await streams.append(key, 5)
    options = {"stream": key.stream, "startingAt": "2"}
    with pytest.raises(StreamLost, match=r"tuples from 3 to 5 are due.*failOnLoss"):
        await streams.read(**options)
    assert numbers(await streams.read(**options, failOnLoss="false")) == [5]


@pytest.mark.parametrize("bound", [{}, {"maxPerTrigger": "1000"}], ids=["unbounded", "bounded"])
async def test_a_stream_that_went_back_fails_the_query_unless_it_may_lose_tuples(
    streams: Streams, redis_config: SystemConfig, bound: dict[str, str]
) -> None:
    """The stream reached 10, went back and reached 8: which of these eight were read is unknown."""
    key, sink = await streams.declare(), Sink()
    options = {"stream": key.stream, **bound}
    prefix = f"{{portolan:event-streams:{key.database}}}:"
    async with Redis.from_url(redis_config.url) as redis:
        await streams.append(key, *range(1, 6))
        state = await keys_under(redis, prefix)
        await streams.append(key, *range(6, 11))
        await streams.drain(sink, **options)
        await go_back(redis, prefix, state)
    await streams.append(key, 6, 7, 8)
    with pytest.raises(StreamingQueryException, match=r"tuple 10, .* got to 8 only"):
        await streams.drain(sink, **options)
    await streams.drain(sink, **options, failOnLoss="false")
    await streams.append(key, 9, 10, 11)
    await streams.drain(sink, **options)
    assert numbers(sink.rows) == [*range(1, 11), 9, 10, 11]


@pytest.mark.parametrize("remaining", [4, 5])
async def test_a_range_is_lost_if_its_stream_goes_back_before_the_read(
    streams: Streams, remaining: int
) -> None:
    key = await streams.declare()
    await streams.append(key, *range(1, remaining + 1))
    planned = TuplesRange(*key, 5, 10)
    with pytest.raises(StreamLost, match="failOnLoss"):
        await rows_in(streams, planned, fail_on_loss=True)
    assert await rows_in(streams, planned, fail_on_loss=False) == []


async def rows_in(
    streams: Streams, planned: TuplesRange, *, fail_on_loss: bool
) -> list[dict[str, Any]]:
    batches = tuples_in(streams.event_streams, planned, fail_on_loss=fail_on_loss)
    return [row async for batch in batches for row in batch.to_pylist()]


async def test_a_lost_feed_fails_the_query_unless_it_may_lose_changes(
    streams: Streams,
) -> None:
    running, database = streams.running, streams.database
    shared = running.mediator.coordination
    assert shared is not None
    id_ = running.mediator.data.model.databases[database].id
    await running.create(database, "people", "p", name="n", hits=1)
    await streams.wait_for_relay(2)
    lost = FeedPosition("0" * 32).text
    options = {"class": "people", "startingAt": lost, "maxPerTrigger": "100"}
    with pytest.raises(StreamLost, match="failOnLoss"):
        await streams.read(**options)
    assert len(await streams.read(**options, failOnLoss="false")) == 2
    now = await shared.feed.generation(id_)
    end = FeedPosition(now, tuple([await shared.feed.last(id_, p) for p in range(PARTITIONS)]))
    assert await streams.read(**{**options, "startingAt": end.text}) == []


async def test_a_batch_of_changes_is_limited_for_each_partition(streams: Streams) -> None:
    running, database = streams.running, streams.database
    for n in range(20):
        await running.create(database, "others", f"o{n}", name="n")
    await streams.wait_for_relay(20)
    read = await streams.read(**{"class": "others", "maxPerTrigger": "4"})
    assert sorted(row["partition"] for row in read) == [0, 1, 2, 3]


async def test_changes_of_a_class_are_read_as_in_the_feed(streams: Streams) -> None:
    """All partitions are read, a retried batch is the same, and other classes are left out."""
    sink, running, database = Sink(kill=0), streams.running, streams.database
    for n in range(20):
        await running.create(database, "people", f"p{n}", name=f"n{n}", hits=n)
        await running.create(database, "others", f"o{n}", name="n")
    await streams.wait_for_relay(60)
    with pytest.raises(StreamingQueryException):
        await streams.drain(sink, **{"class": "people"})
    update = Update(database, "people", "p1", unique("op"), values={"name": "later"})
    await running.mediator.data.write(update)
    await streams.wait_for_relay(61)
    await streams.drain(sink, **{"class": "people"})
    first, second = sink.seen[0]
    assert first == second
    assert (len(first), sink.partitions[0]) == (40, 4)
    assert {row["partition"] for row in first} == set(range(4))
    assert sorted(row["id"] for row in first if row["group"] == "h") == sorted(
        f"p{n}" for n in range(20)
    )
    [last] = sink.rows[40:]
    assert (last["stream"], last["id"], last["kind"]) == ("people", "p1", "update")
    [created] = [row for row in first if row["id"] == "p1" and row["group"] == last["group"]]
    assert (created["kind"], created["before"]) == ("create", None)
    assert created["version"] < last["version"]
    assert created["partition"] == last["partition"]
    assert (last["before"], last["after"]) == ('{"name":"n1"}', '{"name":"later"}')
    assert last["time_s"] > 1.7e9
    renamed = {
        "people": {"fields": {"title": FIELDS["name"], "hits": FIELDS["hits"]}},
        **OTHER_CLASSES,
    }
    options = ChangeOptions(rename={"people": {"name": "title"}})
    await running.mediator.control.set_schema(database, {"classes": renamed}, options=options)
    read = await streams.read(**{"class": "people"})
    assert len(read) == 41
    assert '{"title":"later"}' in [row["after"] for row in read]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "stream and class"),
        ({"stream": "a", "class": "b"}, "stream and class"),
        ({"stream": "absent"}, "no such event stream"),
        ({"class": "absent"}, "no class absent"),
        ({"stream": "absent", "maxPerTrigger": "0"}, "maxpertrigger"),
        ({"class": "people", "startingAt": "1"}, "startingAt"),
        ({"stream": "absent", "startingAt": "soon"}, "startingAt"),
    ],
)
async def test_invalid_options_are_refused(
    streams: Streams, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(InputUnfit, match=reason):
        await streams.read(**options)


async def test_a_plan_holds_no_secret(streams: Streams, redis_config: SystemConfig) -> None:
    key = await streams.declare()
    source = StreamData({"database": streams.database, "stream": key.stream})
    reader = source.streamReader(source.schema())
    partitions = [TuplesRange(*key, 0, 1), ChangesRange(key.database, "c", None, 0, "0-0", "1-0")]
    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    assert redis_config.url.encode() not in serializer.dumps((source, reader, partitions))
