"""Histories of replicas that stall at any step: the feed never claims changes that it lacks."""

from __future__ import annotations

import asyncio

import pytest

from mediator.base.concurrency import end
from tests.process.changes.writers.replicas import Harness, History, StallPoint


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("resumes", [False, True], ids=["killed", "stalled"])
async def test_no_change_is_missing_when_a_replica_stalls_at_any_step(
    harness: Harness, *, after: bool, resumes: bool
) -> None:
    """At every call to shared state, for longer than a lease, while another replica has failed."""
    [one] = await harness.register("one")
    step, history = 0, History(harness)
    ended = False
    while not ended:
        step += 1
        failed, stall = harness.replica(f"failed{step}"), StallPoint(step, after=after)
        await history.work(failed, 1)
        await history.write(failed)
        victim = harness.replica(f"victim{step}", stall)
        work = asyncio.create_task(history.work(victim, 3))
        stalled = asyncio.create_task(stall.stalled.wait())
        await asyncio.wait({work, stalled}, return_when=asyncio.FIRST_COMPLETED)
        ended = not stall.stalled.is_set()
        for _ in range(5):
            await history.work(one, 1)
            await history.check()
        if resumes:
            stall.resumed.set()
            while not work.done():
                await history.work(one, 1)
                await history.check()
        await end([work, stalled])
    await one.run()
    await history.check()
    assert step > 20
    assert history.acknowledged.keys() <= set(await harness.ids())
    assert await harness.until_tick() > max(history.acknowledged.values())
