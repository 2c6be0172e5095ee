"""Batches in Redis: atomic, by the holder only, and once, however often they are sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mediator.base.clock import SystemClock
from mediator.base.lease import Lease, LeaseLost
from mediator.changes.feed import PositionGone
from mediator.coordination import standing_results
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute
from mediator.schema.tree import Schema
from mediator.standing import class_backlog
from mediator.standing.class_backlog import ClassBacklog
from mediator.standing.model import Join
from mediator.standing.query import Destination, Source, StandingQuery
from mediator.standing.results import (
    READY,
    Delivery,
    LogEntry,
    LoggedTuple,
    Progress,
    QueryState,
)
from tests.process.standing.published import PROGRESS, QUERY, TUPLES, Published


async def test_a_batch_is_read_back_as_it_was_published(published: Published) -> None:
    key = published.key
    states = {key.query: QueryState(READY)}
    await published.publish(0, states=states, results={key.query: [b"one", b"two"]})
    [batch] = [batch async for batch in published.results.batches(key.database)]
    assert (batch.sequence, batch.tuples) == (1, TUPLES)
    assert await published.results.published(key.database) == (1, 1, PROGRESS)
    assert await published.results.queries(key.database) == {
        key.query: replace(QUERY, state=QueryState(READY))
    }
    assert await published.documents() == [b"one", b"two"]


async def test_a_progress_without_tuples_has_no_time(published: Published) -> None:
    await published.publish(0, tuples=[], progress=Progress())
    assert (await published.results.published(published.key.database)).progress == Progress()
    assert await published.batches() == []


async def test_a_batch_that_is_sent_twice_is_stored_once(published: Published) -> None:
    for _ in range(2):
        await published.publish(0, results={published.key.query: [b"one"]})
    assert await published.documents() == [b"one"]
    assert await published.batches() == [1]


async def test_only_the_holder_publishes_and_only_the_next_batch(published: Published) -> None:
    results = {published.key.query: [b"late"]}
    with pytest.raises(LeaseLost):
        await published.publish(3, results=results)
    published.lease = Lease(published.lease.name, "another")
    with pytest.raises(LeaseLost):
        await published.publish(0, results=results)
    with pytest.raises(LeaseLost):
        await published.results.put_delivery(published.key, published.lease, Delivery(1))
    await published.results.put_report(published.key.database, published.lease, b"{}")
    assert await published.documents() == []
    assert await published.batches() == []
    assert await published.results.deliveries(published.key.database) == {}
    assert await published.results.report(published.key.database) is None


async def test_batches_that_no_window_reaches_are_removed_from_the_log(
    published: Published,
) -> None:
    for sequence in range(4):
        await published.publish(sequence, keep_from=0 if sequence < 3 else 3)
    assert await published.batches() == [3, 4]


async def test_forgotten_tuples_of_later_batches_are_removed_by_relation(
    published: Published,
) -> None:
    tuples = [LoggedTuple(name, 1.0, {}, n) for n, name in enumerate("rsrtsr")]
    for sequence in range(3):
        await published.publish(sequence, tuples=tuples)
    forgotten = [LogEntry(2, "r"), LogEntry(2, "t"), LogEntry(3, "s"), LogEntry(9, "s")]
    await published.publish(3, tuples=tuples[:1], keep_from=2, forgotten=forgotten)
    remaining = [
        (batch.sequence, "".join(tuple_.stream for tuple_ in batch.tuples))
        async for batch in published.results.batches(published.key.database)
    ]
    assert remaining == [(2, "ss"), (3, "rrtr"), (4, "r")]


async def test_a_log_of_more_entries_than_are_read_at_once_is_read_in_its_batches(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_results, "_ENTRIES_AT_ONCE", 4)
    tuples = [LoggedTuple(name, 1.0, {}, n) for n, name in enumerate("cabbac")]
    for sequence in range(5):
        await published.publish(sequence, tuples=tuples)
    batches = [batch async for batch in published.results.batches(published.key.database)]
    assert [batch.sequence for batch in batches] == [1, 2, 3, 4, 5]
    assert all(batch.tuples == tuples for batch in batches)


async def test_the_last_results_are_kept_and_earlier_ones_are_gone(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_results, "MAX_RESULTS", 2)
    await published.publish(0, results={published.key.query: [b"1", b"2", b"3"]})
    with pytest.raises(PositionGone):
        await published.documents()
    results = await published.after(ResultPosition(1))
    assert [(result.number, result.document) for result in results] == [(2, b"2"), (3, b"3")]
    assert await published.after(ResultPosition(3)) == []
    with pytest.raises(PositionGone):
        await published.after(ResultPosition(4))


async def test_a_query_that_was_dropped_gets_no_results(published: Published) -> None:
    key = published.key
    assert await published.results.drop_query(key)
    assert not await published.results.drop_query(key)
    await published.publish(0, results={key.query: [b"one"]})
    await published.results.put_delivery(key, published.lease, Delivery(1))
    assert await published.documents() == []
    assert await published.results.last_result(key) == ResultPosition()
    assert await published.results.deliveries(key.database) == {}


async def test_nothing_is_left_of_a_database_that_was_dropped(published: Published) -> None:
    key = published.key
    await published.publish(0, results={key.query: [b"one"]})
    await published.results.put_report(key.database, published.lease, b"{}")
    await published.results.put_delivery(key, published.lease, Delivery(1))
    await published.results.clear(key.database)
    assert await published.redis.keys(f"*{key.database}*") == [published.lease.key.encode()]
    assert key.database not in await published.results.databases()


class HandClock(SystemClock):
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


async def test_batches_wait_for_a_class_that_takes_results_and_for_none_that_is_down(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_backlog, "MAX_WAITING", 2)
    key, clock = published.key, HandClock()
    route = DatabaseRoute(Schema(key.database), {}, key.database)
    backlog = ClassBacklog(published.results, route, clock)
    into = Destination(Source("class", "c"), {})
    query = StandingQuery({}, Join(frozenset(), frozenset(), 1.0), 0.0, into, 1, {})

    async def waits() -> bool:
        return await backlog.is_long({key.query: query})

    async def take(number: int) -> None:
        await published.results.put_delivery(key, published.lease, Delivery(number))

    await published.publish(0, results={key.query: [b"1", b"2"]})
    assert not await waits()
    await published.publish(1, results={key.query: [b"3", b"4", b"5"]})
    assert await waits()
    clock.now_s += 4.9
    assert await waits()
    clock.now_s += 0.2
    assert not await waits()
    await take(1)
    assert await waits()
    await take(3)
    assert not await waits()
    assert not await backlog.is_long({})
