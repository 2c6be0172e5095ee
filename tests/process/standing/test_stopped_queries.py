"""Queries that cost too much, or lose a stream, are stopped; batches that cost much end early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.changes.feed import PositionGone
from mediator.event_streams.port import StreamKey
from mediator.standing import batch_run, session
from tests.faults.conditions import eventually
from tests.process.standing.bench import Q1, Q2, Bench


async def test_a_stream_that_is_dropped_stops_its_queries_and_no_other(bench: Bench) -> None:
    q1, q2 = await bench.ready(Q1), await bench.ready(Q2)
    await bench.streams.drop(StreamKey(bench.id, "r"))
    await eventually(lambda: bench.has_state(q1, "stopped"))
    detail = (await bench.client.get(f"standing-queries/{q1}")).json()["detail"]
    assert "there is no event stream r" in detail
    [event] = await bench.events(q1, 0, "stopped")
    assert event == {"detail": detail}
    s, t = {"a": 1, "b": 2}, {"b": 2, "c": 3}
    await bench.send("s", (1, s))
    await bench.send("t", (1, t))
    await bench.send("u", (1, {"c": 3}))
    await bench.expect_results(q2, {"S": s, "T": t, "U": {"c": 3}})


async def test_a_stream_that_ran_away_stops_its_queries(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = await bench.ready(Q1)

    async def raise_gone(*_: Any) -> Any:
        raise PositionGone("It is gone.")

    monkeypatch.setattr(bench.streams, "read", raise_gone)
    await eventually(lambda: bench.has_state(query, "stopped"))
    answer = await bench.client.get(f"standing-queries/{query}")
    assert "removed tuples that were not taken yet" in answer.json()["detail"]


async def test_a_tuple_that_makes_too_much_stops_its_queries_and_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_run, "MAX_PAIRS", 20)
    q1, q2 = await bench.ready(Q1), await bench.ready(Q2)
    await bench.send("s", *[(1, {"a": 1, "b": 2})] * 25)
    await bench.wait_until_taken()
    await bench.send("r", (1, {"a": 1}))
    await eventually(lambda: bench.has_state(q1, "stopped"))
    assert await bench.has_state(q2, "ready")


async def test_state_that_does_not_fit_stops_queries(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_TUPLES", 20)
    q1, q2 = await bench.ready(Q1), await bench.ready(Q2)
    await bench.send("u", *[(1, {"c": 2})] * 25)
    await eventually(lambda: bench.has_state(q2, "stopped"))
    assert await bench.has_state(q1, "ready")


async def test_a_batch_ends_early_where_it_costs_much(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_run, "_BATCH_RESULTS", 3)
    query = await bench.ready({**Q1, "relations": ["r", "s"], "predicates": [["r.a", "s.a"]]})
    for _ in range(4):
        await bench.send("r", *[(1, {"a": 1})] * 2)
        await bench.send("s", *[(1, {"a": 1, "b": 2})] * 2)
    await bench.wait_until_taken()
    assert len(await bench.results(query)) == 64


async def test_nothing_fails_when_the_last_query_is_removed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    query = await bench.ready(Q1)
    assert (await bench.client.delete(f"standing-queries/{query}")).status_code == 204

    async def is_forgotten() -> bool:
        return not await bench.offsets()

    await eventually(is_forgotten)
    # The holder goes on, and takes the next query.
    query = await bench.ready(Q2)
    assert not [record for record in caplog.records if "failed" in record.getMessage()]


class BetweenReads:
    """Creates a stream, and a query that reads it, between a holder's reads of queries and of
    streams, in either order.
    """

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        shared = bench.service.mediator.coordination
        assert shared is not None
        self.query: str | None = None
        self._bench, self._has_created = bench, False
        self._reads: dict[Any, set[str]] = {}
        results, streams = shared.standing_results, shared.event_streams
        for port, name in ((results, "published"), (results, "queries"), (streams, "of_database")):
            monkeypatch.setattr(port, name, self._watch(getattr(port, name), name))

    def _watch(self, call: Any, name: str) -> Any:
        async def watched(database: str) -> Any:
            task = asyncio.current_task()
            if name == "published":
                # A holder reads both next, if anything is new.
                self._reads[task] = set()
            elif database == self._bench.id and (reads := self._reads.get(task)) is not None:
                if reads - {name} and not self._has_created:
                    await self._create()
                reads.add(name)
            return await call(database)

        return watched

    async def _create(self) -> None:
        self._has_created = True
        await self._bench.declare("new", "a")
        new = {"relations": ["new", "s"], "predicates": [["new.a", "s.a"]], "window_s": 10}
        self.query = await self._bench.create(new)


async def test_a_query_that_is_created_with_its_stream_while_a_holder_reads_is_not_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = BetweenReads(bench, monkeypatch)
    await bench.create(Q1)

    async def is_executed() -> bool:
        if between.query is None:
            return False
        assert not await bench.has_state(between.query, "stopped")
        return await bench.has_state(between.query, "ready")

    await eventually(is_executed)
