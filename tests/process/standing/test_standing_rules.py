"""Rules of admission control on standing queries: a late one is paused, and resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from mediator.event_streams.port import StoredTuple
from tests.faults.conditions import eventually
from tests.process.admission.replica import following
from tests.process.service import Service
from tests.process.standing.bench import Q1, Bench

LATE: dict[str, Any] = {
    **Q1,
    "name": "late",
    "relations": ["r", "s"],
    "predicates": [["r.a", "s.a"]],
    "max_lag": 5,
}
PATIENT = {**LATE, "name": "patient", "max_lag": 1_000}
PAUSE = """\
SET timer = 1
ON EVENT QueryLate e IF e.query.lag > 5 AND existsQuery(name = "patient" AND paused_s = 0)
THEN pauseQuery(e.query, 3600)
"""
RESUME = """\
SET timer = 1
ON EVENT Timer e IF existsQuery(paused_s > 0 AND late = 0)
THEN resumeQuery(selectRandomQuery(paused_s > 0))
"""


@pytest.fixture
async def ruled(started: Service, bench: Bench) -> AsyncIterator[Bench]:
    async with following(started):
        yield bench
    await started.mediator.admission.put("", None, None, dry_run=False)


async def follow(bench: Bench, rules: str) -> int:
    stored, _ = await bench.service.mediator.admission.put(rules, None, None, dry_run=False)
    return stored.version


async def test_a_query_that_is_late_is_paused_and_another_rule_resumes_it(
    ruled: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, patient = await ruled.ready(LATE), await ruled.ready(PATIENT)

    was_read = asyncio.Event()

    async def read_nothing(*_: Any) -> Sequence[StoredTuple]:
        was_read.set()
        return []

    version = await follow(ruled, PAUSE)
    with monkeypatch.context() as patched:
        # The holder lives, but reads nothing.
        patched.setattr(ruled.streams, "read", read_nothing)
        await was_read.wait()
        await ruled.send("r", (1, {"a": 1}))
        await ruled.send("s", *[(2, {"a": 1, "b": 2})] * 5)
        assert (await ruled.show(late))["lag"] == 6
        await eventually(lambda: ruled.has_state(late, "paused"))

    async def is_logged() -> bool:  # only after the action
        return bool(await ruled.service.mediator.admission.log(None, 5))

    await eventually(is_logged)
    (entry,) = await ruled.service.mediator.admission.log(None, 5)
    assert (entry["version"], entry["event"]["query"]["id"]) == (version, late)
    assert entry["event"]["query"]["late"] == 1
    (action,) = entry["actions"]
    assert (action["action"], action["outcome"]) == ("pauseQuery", "done")
    pause = (await ruled.show(late))["paused"]
    assert (pause["version"], pause["rule"]) == (version, 1)
    results = [{"r": {"a": 1}, "s": {"a": 1, "b": 2}}] * 5
    await ruled.expect_results(patient, *results)
    assert await ruled.results(late) == []
    assert (await ruled.show(late))["lag"] == 6
    # New rules end the pauses of the rules that they replace; actions resume it likewise.
    await follow(ruled, "SET timer = 2")
    await ruled.expect_results(late, *results)
    await eventually(lambda: ruled.has_state(late, "ready"))
    await ruled.pause(late)
    version = await follow(ruled, RESUME)

    async def has_resumed() -> bool:
        entries = await ruled.service.mediator.admission.log(None, 5)
        return any(
            entry["version"] == version and entry["actions"][0]["outcome"] == "done"
            for entry in entries
        )

    await eventually(has_resumed)
    await eventually(lambda: ruled.has_state(late, "ready"))
