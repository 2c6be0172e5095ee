"""A query reads the history of its streams: the reach of its window, in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any

import pytest

from mediator.base import holding
from mediator.coordination.connecting import Coordination
from mediator.event_streams.port import StreamKey, TuplePage
from mediator.standing.results import LoggedTuple
from tests.process.standing.bench import Bench
from tests.process.standing.oracle import Recorder

PAIR: dict[str, Any] = {"relations": ["r", "s"], "predicates": [["r.a", "s.a"]]}
MAX_AT_ONCE = 3_000
"""Maximum of tuples in memory: a page, and a range of a stream that is searched by time."""


def coordination(bench: Bench) -> Coordination:
    shared = bench.service.mediator.coordination
    assert shared is not None
    return shared


class Readings:
    """Counts the tuples that are read from streams.

    Attributes:
        count: Tuples read.
        max_at_once: Maximum of tuples read between two publications.
    """

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.max_at_once = self._unpublished = 0
        self._streams = coordination(bench).event_streams
        self._results = coordination(bench).standing_results
        self._read, self._publish = self._streams.read, self._results.publish
        monkeypatch.setattr(self._streams, "read", self.read)
        monkeypatch.setattr(self._results, "publish", self.publish)

    async def read(
        self, key: StreamKey, after: int | None, limit: int, wait_s: float = 0.0
    ) -> TuplePage:
        page = await self._read(key, after, limit, wait_s)
        self.count += len(page.tuples)
        self._unpublished += len(page.tuples)
        self.max_at_once = max(self.max_at_once, self._unpublished)
        return page

    async def publish(self, *arguments: Any) -> None:
        self._unpublished = 0
        await self._publish(*arguments)


async def read_log(bench: Bench) -> list[LoggedTuple]:
    batches = coordination(bench).standing_results.batches(bench.id)
    return [tuple_ async for batch in batches for tuple_ in batch.tuples]


async def fill(bench: Bench, name: str, times: Sequence[float]) -> None:
    for start in range(0, len(times), 500):
        new = [
            (time_s, {"a": start + offset})
            for offset, time_s in enumerate(times[start : start + 500])
        ]
        await bench.send(name, *new)


async def test_tuples_that_no_window_reaches_are_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tuples of the same window are far apart in the stream."""
    early = [float(n) for n in range(10_000)]
    await fill(bench, "r", [*early, 20_000.0, *early, 20_001.0, 20_002.5])
    await bench.send("s", (20_001, {"a": 0}))
    readings = Readings(bench, monkeypatch)
    query = await bench.ready({**PAIR, "window_s": 2})
    times = [tuple_.time_s for tuple_ in await read_log(bench) if tuple_.stream == "r"]
    assert sorted(times) == [20_000.0, 20_001.0, 20_002.5]
    assert readings.count <= 6_000
    await bench.send("s", (20_002, {"a": 9_999}), (20_002, {"a": 10_000}))
    await bench.expect_results(query, {"r": {"a": 10_000}, "s": {"a": 10_000}})


async def test_a_history_that_is_needed_completely_is_read_in_pages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(bench, "r", [n / 10 for n in range(20_000)])
    readings = Readings(bench, monkeypatch)
    await bench.ready({**PAIR, "window_s": 3_600})
    assert len(await read_log(bench)) == 20_000
    assert readings.max_at_once <= MAX_AT_ONCE


async def test_tuples_that_a_stream_removes_meanwhile_are_left_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.declare("old", "a", retention_s=3_600.0)
    await fill(bench, "old", [float(n) for n in range(5_000)])
    streams, key = coordination(bench).event_streams, StreamKey(bench.id, "old")
    read, state = streams.read, f"{{portolan:event-streams:{bench.id}}}:state:old"

    async def remove_and_read(*arguments: Any) -> TuplePage:
        if bench.numbers["old"] == 5_000:
            # Time passes, and the next tuple removes some of the oldest.
            await coordination(bench).redis.hincrby(state, "clock", -7_200_000)
            await bench.send("old", (5_000, {"a": -1}))
        return await read(*arguments)

    monkeypatch.setattr(streams, "read", remove_and_read)
    pair = {"relations": ["old", "s"], "predicates": [["old.a", "s.a"]]}
    await bench.ready({**pair, "window_s": 3_600, "lateness_s": 3_600})
    first = (await streams.report(key)).first
    assert first > 1
    history = [tuple_.number for tuple_ in await read_log(bench) if tuple_.number <= 5_000]
    assert sorted(history) == list(range(first, 5_001))
    assert "is not kept" not in caplog.text  # as the reason of a restart


@pytest.fixture
async def recorder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Recorder]:
    monkeypatch.setattr(holding, "PAUSE_S", 0.01)
    new_recorder = Recorder(coordination(bench), bench.id)
    yield new_recorder
    new_recorder.stop()


@pytest.mark.parametrize("seed", range(3))
async def test_the_history_is_the_reach_of_a_window_in_the_kept_tuples(
    bench: Bench, recorder: Recorder, seed: int
) -> None:
    """Times are unordered, and holders die between pages and after a publication."""
    draw = Random(seed)
    sent: dict[str, list[float]] = {}
    for name in "rs":
        centres = [draw.uniform(0, 50) for _ in range(8)]
        sent[name] = [
            centre + draw.expovariate(1) for centre in centres for _ in range(draw.randrange(1_500))
        ]
        await fill(bench, name, sent[name])
    recorder.fault = lambda call: ("before", "after", "lease")[call % 3] if call % 2 else ""
    window_s, lateness_s = draw.choice([1, 10, 40]), draw.choice([0, 3])
    await bench.ready({**PAIR, "window_s": window_s, "lateness_s": lateness_s})
    tuples = await read_log(bench)
    latest_s = float("-inf")
    for name in "rs":  # the order in which their history is taken
        latest_s = max(latest_s, *sent[name])
        expected = [
            (number, time_s)
            for number, time_s in enumerate(sent[name], 1)
            if latest_s - lateness_s - time_s <= window_s
        ]
        history = sorted(
            (tuple_.number, tuple_.time_s) for tuple_ in tuples if tuple_.stream == name
        )
        assert history == expected
        assert expected
