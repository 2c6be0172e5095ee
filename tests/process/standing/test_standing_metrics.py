"""Metrics of standing queries and event streams: counted events, and gauges."""

from __future__ import annotations

from collections import Counter

import pytest
from prometheus_client import generate_latest

from app.settings.telemetry import TelemetrySettings
from app.telemetry import telemetry
from app.telemetry.telemetry import Telemetry
from mediator.base.errors import TooManyRequests
from mediator.base.observation import (
    EventStreamAppended,
    EventStreamRefused,
    StandingQueriesCounted,
)
from mediator.event_streams.port import StreamKey
from tests.faults.conditions import eventually
from tests.process.standing.bench import Q1, Bench

RS = {**Q1, "relations": ["r", "s"], "predicates": [["r.a", "s.a"]]}


async def test_executed_missed_and_caught_up_tuples_are_counted(bench: Bench) -> None:
    query = await bench.ready(RS)
    await bench.send("r", (100, {"a": 1}))
    await bench.wait_until_taken()
    await bench.send("s", (50, {"a": 1, "b": 2}), (100, {"a": 1, "b": 2}))
    await bench.expect_results(query, {"r": {"a": 1}, "s": {"a": 1, "b": 2}})
    await bench.pause(query)
    await bench.send("s", *[(100, {"a": 1, "b": 2})] * 3)
    await bench.wait_until_taken()
    await bench.resume(query)
    await eventually(lambda: bench.has_state(query, "ready"))

    async def is_counted() -> bool:  # only after the publication
        return sum_counts(bench)["caught_up"] >= 3

    await eventually(is_counted)
    counts = sum_counts(bench)
    assert counts.pop("batches") >= 3
    assert counts == {"tuples": 6, "late": 1, "results": 4, "caught_up": 3, "pauses": 1}


def sum_counts(bench: Bench) -> Counter[str]:
    counts: Counter[str] = Counter()
    for event in bench.service.observed:
        if isinstance(event, StandingQueriesCounted) and event.database == bench.database:
            counts.update(event.counts)
    return counts


async def test_lag_and_lengths_are_read_at_a_scrape(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_TIMEOUT_S", 60.0)
    query = await bench.ready(RS)
    await bench.pause(query)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", *[(1, {"a": 1, "b": 2})] * 2)
    await bench.wait_until_taken()
    scraped = Telemetry(TelemetrySettings())
    label = f'database="{bench.database}"'

    async def has_consumed() -> bool:  # noted only after the publication
        await scraped.state_refresher(bench.service.mediator).refresh()
        text = generate_latest(scraped.metrics.registry).decode()
        return f"portolan_event_stream_consumer_lag_tuples{{{label}}}" in text

    await eventually(has_consumed)
    text = generate_latest(scraped.metrics.registry).decode()
    assert f"portolan_standing_query_lag_tuples{{{label}}} 3.0" in text
    assert f'portolan_standing_queries{{{label},state="paused"}} 1.0' in text
    assert f"portolan_event_stream_tuples{{{label}}} 3.0" in text


async def test_appends_and_refusals_are_observed(bench: Bench) -> None:
    streams, name = bench.service.mediator.event_stream_service, bench.database
    assert streams is not None
    await bench.declare("small", ["a"], most_tuples=1)
    key, tuples = StreamKey(bench.id, "small"), [{"time_s": 1, "values": {"a": 1}}]
    for _ in range(2):  # the second one is a repetition
        await streams.append(name, key, tuples, ("batch", "fingerprint"))
    with pytest.raises(TooManyRequests):
        await streams.append(name, key, tuples, None)
    kinds = (EventStreamAppended, EventStreamRefused)
    assert [event for event in bench.service.observed if isinstance(event, kinds)] == [
        EventStreamAppended(name, "small", 1),
        EventStreamRefused(name, "small", "tuples"),
    ]
