"""Queries come and go, and their joint window grows and shrinks: what is read again."""

from __future__ import annotations

from typing import Any

from tests.faults.conditions import eventually
from tests.process.standing.bench import Bench

PAIR: dict[str, Any] = {"relations": ["r", "s"], "predicates": [["r.a", "s.a"]], "lateness_s": 2}
NARROW, WIDE = {**PAIR, "window_s": 10}, {**PAIR, "window_s": 1000}
RESULT: dict[str, Any] = {"r": {"a": 1}, "s": {"a": 1}}


async def logged_numbers(bench: Bench, relation: str) -> list[int]:
    """Return the numbers of the tuples of a relation in the log of batches."""
    shared = bench.service.mediator.coordination
    assert shared is not None
    batches = shared.standing_results.batches(bench.id)
    return [t.number async for batch in batches for t in batch.tuples if t.stream == relation]


async def forget_all(bench: Bench, after_s: int) -> None:
    """Send tuples of s until the log has none of r."""

    async def is_forgotten() -> bool:
        nonlocal after_s
        after_s += 1
        await bench.send("s", (after_s, {"a": 0}))
        await bench.wait_until_taken()
        return not await logged_numbers(bench, "r")

    await eventually(is_forgotten)


async def test_a_window_that_shrank_and_grows_again_gets_its_history(bench: Bench) -> None:
    await bench.ready(NARROW)
    wide = await bench.ready(WIDE)
    await bench.send("r", (100, {"a": 1}))
    await bench.wait_until_taken()
    assert (await bench.client.delete(f"standing-queries/{wide}")).status_code == 204
    await forget_all(bench, 500)
    wide = await bench.ready(WIDE)
    assert await logged_numbers(bench, "r") == [1]
    await bench.send("s", (700, {"a": 1}))
    await bench.expect_results(wide, RESULT)


async def test_a_query_with_more_lateness_gets_the_tuples_in_its_reach(bench: Bench) -> None:
    hasty = await bench.ready({**NARROW, "lateness_s": 0})
    await bench.send("r", (100, {"a": 1}))
    await bench.wait_until_taken()
    await bench.send("s", (112, {"a": 0}))
    await bench.wait_until_taken()
    assert not await logged_numbers(bench, "r")
    patient = await bench.ready({**NARROW, "lateness_s": 5})
    await bench.send("s", (108, {"a": 1}))
    await bench.expect_results(patient, RESULT)
    await bench.expect_results(hasty, RESULT)


async def test_late_tuples_do_not_come_back_for_another_query(bench: Bench) -> None:
    """The late tuple follows one that the log has forgotten and the wide query needs."""
    narrow = await bench.ready(NARROW)
    await bench.send("r", (100, {"a": 1}))
    await bench.wait_until_taken()
    await bench.send("s", (198, {"a": 0}))
    await bench.wait_until_taken()
    await bench.send("r", (191, {"a": 1}))
    await bench.wait_until_taken()
    wide = await bench.ready(WIDE)
    assert await logged_numbers(bench, "r") == [1]
    await bench.send("s", (200, {"a": 1}))
    await bench.send("r", (201, {"a": 1}))
    await bench.expect_results(wide, *[RESULT] * 2)
    await bench.expect_results(narrow, RESULT)
