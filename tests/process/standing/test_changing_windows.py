"""Queries come and go, and the window of all of them grows and shrinks: what is read again."""

from __future__ import annotations

from typing import Any

from tests.faults.conditions import eventually
from tests.process.standing.bench import Bench

PAIR: dict[str, Any] = {"relations": ["r", "s"], "predicates": [["r.a", "s.a"]], "lateness_s": 2}
NARROW, WIDE = {**PAIR, "window_s": 10}, {**PAIR, "window_s": 1000}
FOUND: dict[str, Any] = {"r": {"a": 1}, "s": {"a": 1}}


async def logged(bench: Bench, relation: str) -> list[int]:
    """Return the numbers of a relation that the log of batches has."""
    shared = bench.service.mediator.coordination
    assert shared is not None
    batches = shared.standing_results.batches(bench.id)
    return [t.number async for each in batches for t in each.tuples if t.stream == relation]


async def forget_all(bench: Bench, after_s: int) -> None:
    """Send tuples of s until the log has none of r any more."""

    async def is_forgotten() -> bool:
        nonlocal after_s
        after_s += 1
        await bench.send("s", (after_s, {"a": 0}))
        await bench.has_taken_all()
        return not await logged(bench, "r")

    await eventually(is_forgotten)


async def test_a_window_that_shrank_and_grows_again_gets_its_history(bench: Bench) -> None:
    await bench.ready(NARROW)
    wide = await bench.ready(WIDE)
    await bench.send("r", (100, {"a": 1}))
    await bench.has_taken_all()
    assert (await bench.client.delete(f"standing-queries/{wide}")).status_code == 204
    await forget_all(bench, 500)
    wide = await bench.ready(WIDE)
    assert await logged(bench, "r") == [1]
    await bench.send("s", (700, {"a": 1}))
    await bench.finds(wide, FOUND)


async def test_a_query_that_is_more_patient_gets_what_it_may_still_reach(bench: Bench) -> None:
    hasty = await bench.ready({**NARROW, "lateness_s": 0})
    await bench.send("r", (100, {"a": 1}))
    await bench.has_taken_all()
    await bench.send("s", (112, {"a": 0}))
    await bench.has_taken_all()
    assert not await logged(bench, "r")
    patient = await bench.ready({**NARROW, "lateness_s": 5})
    await bench.send("s", (108, {"a": 1}))
    await bench.finds(patient, FOUND)
    await bench.finds(hasty, FOUND)


async def test_what_was_late_does_not_come_back_for_another_query(bench: Bench) -> None:
    """The late tuple is above one that the log has forgotten, and which the wide query needs."""
    narrow = await bench.ready(NARROW)
    await bench.send("r", (100, {"a": 1}))
    await bench.has_taken_all()
    await bench.send("s", (198, {"a": 0}))
    await bench.has_taken_all()
    await bench.send("r", (191, {"a": 1}))
    await bench.has_taken_all()
    wide = await bench.ready(WIDE)
    assert await logged(bench, "r") == [1]
    await bench.send("s", (200, {"a": 1}))
    await bench.send("r", (201, {"a": 1}))
    await bench.finds(wide, *[FOUND] * 2)
    await bench.finds(narrow, FOUND)
