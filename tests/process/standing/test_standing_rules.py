"""Rules of admission control on standing queries: one that is late is paused, and goes on."""

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


async def test_a_query_that_is_late_is_paused_and_another_rule_lets_it_go_on(
    ruled: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, patient = await ruled.ready(LATE), await ruled.ready(PATIENT)

    asked = asyncio.Event()

    async def behind(*_: Any) -> Sequence[StoredTuple]:
        asked.set()
        return []

    version = await follow(ruled, PAUSE)
    with monkeypatch.context() as patched:
        # The holder lives, and does not come to it.
        patched.setattr(ruled.streams, "read", behind)
        await asked.wait()
        await ruled.send("r", (1, {"a": 1}))
        await ruled.send("s", *[(2, {"a": 1, "b": 2})] * 5)
        assert (await ruled.show(late))["lag"] == 6
        await eventually(lambda: ruled.has_state(late, "paused"))

    async def is_logged() -> bool:  # which is after the act
        return bool(await ruled.service.mediator.admission.log(None, 5))

    await eventually(is_logged)
    (entry,) = await ruled.service.mediator.admission.log(None, 5)
    assert (entry["version"], entry["event"]["query"]["id"]) == (version, late)
    assert entry["event"]["query"]["late"] == 1
    (action,) = entry["actions"]
    assert (action["action"], action["outcome"]) == ("pauseQuery", "done")
    shown = (await ruled.show(late))["paused"]
    assert (shown["version"], shown["rule"]) == (version, 1)
    found = [{"r": {"a": 1}, "s": {"a": 1, "b": 2}}] * 5
    await ruled.finds(patient, *found)
    assert await ruled.results(late) == []
    assert (await ruled.show(late))["lag"] == 6
    # Rules that replace those which have paused it let it go on, and so do their actions.
    await follow(ruled, "SET timer = 2")
    await ruled.finds(late, *found)
    await eventually(lambda: ruled.has_state(late, "ready"))
    await ruled.pause(late)
    version = await follow(ruled, RESUME)

    async def has_resumed() -> bool:
        entries = await ruled.service.mediator.admission.log(None, 5)
        return any(
            each["version"] == version and each["actions"][0]["outcome"] == "done"
            for each in entries
        )

    await eventually(has_resumed)
    await eventually(lambda: ruled.has_state(late, "ready"))
