"""A paused query loses no results: they come when it resumes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mediator.base.slices import Slices
from mediator.event_streams.port import StreamKey
from mediator.model.pause import Pause
from mediator.standing import catch_up, intake, lag
from mediator.standing.batch_run import BatchRun
from mediator.standing.catch_up import CatchUp
from tests.faults.conditions import eventually
from tests.process.standing.bench import Q1, Q2, Bench

RS: dict[str, Any] = {**Q1, "relations": ["r", "s"], "predicates": [["r.a", "s.a"]]}
S: dict[str, Any] = {"a": 1, "b": 2}


async def test_a_paused_query_has_no_results_until_it_resumes(bench: Bench) -> None:
    query, other = await bench.ready(RS), await bench.ready(RS)
    await bench.send("r", (1, {"a": 1}))
    await bench.wait_until_taken()
    await bench.pause(query)
    document = await bench.show(query)
    assert (document["lag"], document["max_lag"]) == (0, 10_000)
    assert (document["paused"]["version"], document["paused"]["rule"]) == (1, 1)
    await bench.send("s", (2, S), (3, S))
    await bench.expect_results(other, *[{"r": {"a": 1}, "s": S}] * 2)
    assert await bench.results(query) == []
    assert (await bench.show(query))["lag"] == 2
    assert (await bench.show(other))["lag"] == 0
    await bench.resume(query)
    await eventually(lambda: bench.has_state(query, "ready"))
    await bench.expect_results(query, *[{"r": {"a": 1}, "s": S}] * 2)
    document = await bench.show(query)
    assert (document["lag"], document["paused"]) == (0, None)


async def test_tuples_that_only_a_paused_query_needs_are_kept(bench: Bench) -> None:
    query, other = await bench.ready(RS), await bench.ready(Q2)
    await bench.send("r", (1, {"a": 1}))
    await bench.wait_until_taken()
    await bench.pause(query)
    await bench.send("s", (2, S))
    await bench.wait_until_taken()  # or it could be read after later tuples, and be late
    # Their windows advance far.
    for second in range(20, 2000, 200):
        await bench.send("u", (second, {"c": 3}))
        await bench.wait_until_taken()
    assert await bench.results(query) == []
    await bench.resume(query)
    await bench.expect_results(query, {"r": {"a": 1}, "s": S})
    await bench.send("s", (1815, S))
    await bench.send("r", (1816, {"a": 1}))
    await bench.expect_results(query, *[{"r": {"a": 1}, "s": S}] * 2)
    assert await bench.results(other) == []


async def count_logged(bench: Bench) -> Counter[str]:
    """Return the number of tuples of each relation in the log of batches."""
    shared = bench.service.mediator.coordination
    assert shared is not None
    batches = [batch async for batch in shared.standing_results.batches(bench.id)]
    return Counter(tuple_.stream for batch in batches for tuple_ in batch.tuples)


async def test_only_its_own_streams_are_kept_for_a_paused_query(bench: Bench) -> None:
    query, _ = await bench.ready(RS), await bench.ready(Q2)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("u", (1, {"c": 3}))
    await bench.wait_until_taken()
    await bench.pause(query)
    # Tuples of both in one batch: both are sent before it is taken.
    for second in range(100, 2000, 100):
        await bench.send("s", (second, S))
        await bench.send("u", *[(second, {"c": 3})] * 3)
        await bench.wait_until_taken()
    counts = await count_logged(bench)
    assert (counts["r"], counts["s"]) == (1, 19)
    # The batches that their windows reach, and those that the last one has to remove.
    assert counts["u"] <= 6
    await bench.resume(query)
    await eventually(lambda: bench.has_state(query, "ready"))
    await bench.send("s", (2000, S))
    await bench.send("u", (2100, {"c": 3}))
    await bench.wait_until_taken()
    assert (await count_logged(bench))["s"] <= 2


async def test_the_log_is_cut_where_a_query_is_paused_again(bench: Bench) -> None:
    query, _ = await bench.ready(RS), await bench.ready(Q2)
    await bench.pause(query)
    for second in range(100, 1000, 100):
        await bench.send("s", (second, S))
        await bench.wait_until_taken()
    assert (await count_logged(bench))["s"] == 9
    await bench.resume(query)
    await eventually(lambda: bench.has_state(query, "ready"))
    # No batch comes between them.
    await bench.pause(query)
    assert (await count_logged(bench))["s"] == 1


async def test_batches_wait_for_a_query_that_has_missed_too_much(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "MAX_MISSED", 5)
    monkeypatch.setattr(catch_up, "_BATCH_TUPLES", 1)
    monkeypatch.setattr(intake, "_BATCH_TUPLES", 3)
    run, missed = CatchUp.run, list[int]()

    async def busy(catching_up: CatchUp, slices: Slices) -> BatchRun:
        # More tuples arrive than are executed.
        offsets = await bench.offsets()
        missed.append(sum(offsets[name] - n for name, n in catching_up.numbers.items()))
        if len(missed) < 20:
            await bench.send("s", *[(2, S)] * 3)
        return await run(catching_up, slices)

    query, other = await bench.ready(RS), await bench.ready(RS)
    await bench.send("r", (1, {"a": 1}))
    await bench.wait_until_taken()
    await bench.pause(query)
    await bench.send("s", *[(2, S)] * 3)
    await bench.wait_until_taken()
    monkeypatch.setattr(CatchUp, "run", busy)
    await bench.resume(query)
    result = {"r": {"a": 1}, "s": S}
    await bench.expect_results(query, *[result] * 60)
    await bench.expect_results(other, *[result] * 60)
    assert max(missed) <= 5 + 3


async def test_a_pause_ends_after_its_time_and_with_its_rules(bench: Bench) -> None:
    query, service = await bench.ready(RS), bench.service.mediator.standing_queries
    assert service is not None
    await bench.pause(query)
    # A later pause replaces the end.
    assert await service.pause(bench.database, query, Pause(1, 1, 0.01))
    await eventually(lambda: bench.has_state(query, "ready"))
    await bench.pause(query, Pause(4, 1, 3600))
    await service.end_pauses(4)
    assert (await bench.show(query))["paused"]
    await service.end_pauses(5)
    await eventually(lambda: bench.has_state(query, "ready"))
    assert not await service.resume(bench.database, query)
    assert not await service.pause(bench.database, "0" * 32, Pause(1, 1, 5))
    assert not await service.pause("nowhere", query, Pause(1, 1, 5))


async def test_a_pause_ends_when_too_much_is_missed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "MAX_MISSED", 5)
    query = await bench.ready(RS)
    await bench.pause(query)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", *[(2, S)] * 5)
    await bench.expect_results(query, *[{"r": {"a": 1}, "s": S}] * 5)
    # It is paused again once it has caught up.
    await eventually(lambda: bench.has_state(query, "paused"))
    await bench.send("s", (2, S))
    await bench.wait_until_taken()
    assert len(await bench.results(query)) == 5


async def test_a_query_that_is_paused_or_catches_up_can_be_removed(bench: Bench) -> None:
    query, other = await bench.ready(RS), await bench.ready(RS)
    await bench.pause(query)
    await bench.send("r", (1, {"a": 1}))
    await bench.send("s", (2, S))
    await bench.wait_until_taken()
    assert (await bench.client.delete(f"standing-queries/{query}")).status_code == 204
    await bench.send("s", (3, S))
    await bench.expect_results(other, *[{"r": {"a": 1}, "s": S}] * 2)
    shared = bench.service.mediator.coordination
    assert shared is not None
    assert await shared.standing_results.pauses(bench.id) == {}


async def test_a_paused_query_whose_stream_is_dropped_is_stopped(bench: Bench) -> None:
    query = await bench.ready(RS)
    await bench.pause(query)
    await bench.streams.drop(StreamKey(bench.id, "r"))
    await eventually(lambda: bench.has_state(query, "stopped"))
    assert (await bench.show(query))["lag"] == 0


async def test_the_plan_is_that_of_queries_that_are_executed(bench: Bench) -> None:
    query = await bench.ready(RS)

    async def runs() -> bool:
        return (await bench.plan())["running"] is not None

    await eventually(runs)
    await bench.pause(query)
    assert (await bench.plan())["running"] is None


@pytest.mark.parametrize("value", [0, 100_001, 1.5, "5", None])
async def test_an_invalid_lag_is_refused(bench: Bench, value: Any) -> None:
    answer = await bench.client.post("standing-queries", json={**RS, "max_lag": value})
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/max_lag"]


async def test_late_tuples_of_a_pause_do_not_come_back_as_history(bench: Bench) -> None:
    """A wide query needs forgotten tuples, and the paused one has missed later ones."""
    hasty = {**RS, "lateness_s": 2}
    query = await bench.ready(hasty)
    other = {"relations": ["s", "u"], "predicates": [["s.b", "u.c"]], "window_s": 1}
    await bench.ready({**other, "lateness_s": 2})
    await bench.send("r", (100, {"a": 1}))
    await bench.wait_until_taken()
    await bench.send("u", (198, {"c": 3}))
    await bench.wait_until_taken()
    await bench.pause(query)
    # Both are late; the second is out of the reach of the paused query.
    for second in (191, 150):
        await bench.send("r", (second, {"a": 1}))
        await bench.wait_until_taken()
    await bench.send("s", (200, S))
    await bench.wait_until_taken()
    await bench.send("r", (201, {"a": 1}))
    await bench.wait_until_taken()
    wide = await bench.ready({**hasty, "window_s": 1000})
    assert await count_logged(bench) == {"r": 2, "s": 1, "u": 1}
    await bench.resume(query)
    await eventually(lambda: bench.has_state(query, "ready"))
    result = {"r": {"a": 1}, "s": S}
    await bench.expect_results(query, result)
    await bench.send("s", (201, S))
    await bench.expect_results(query, *[result] * 2)
    await bench.expect_results(wide, *[result] * 2)
