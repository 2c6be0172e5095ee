"""Histories of replicas that stand still at any step: the feed never claims what it lacks."""

from __future__ import annotations

import asyncio

import pytest

from mediator.base.concurrency import end
from tests.process.changes.writers.replicas import Bench, Fate, History


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("lives", [False, True], ids=["killed", "stalled"])
async def test_nothing_is_missing_whenever_a_replica_stands_still(
    bench: Bench, *, after: bool, lives: bool
) -> None:
    """At every call to what replicas share, for longer than a lease; while another one has died."""
    [one] = await bench.settled("one")
    step, history = 0, History(bench)
    ended = False
    while not ended:
        step += 1
        dead, fate = bench.replica(f"dead{step}"), Fate(step, after=after)
        await history.live(dead, 1)
        await history.write(dead)
        victim = bench.replica(f"victim{step}", fate)
        life = asyncio.create_task(history.live(victim, 3))
        stands = asyncio.create_task(fate.stands.wait())
        await asyncio.wait({life, stands}, return_when=asyncio.FIRST_COMPLETED)
        ended = not fate.stands.is_set()
        for _ in range(5):
            await history.live(one, 1)
            await history.check()
        if lives:
            fate.goes_on.set()
            while not life.done():
                await history.live(one, 1)
                await history.check()
        await end([life, stands])
    await one.run()
    await history.check()
    assert step > 20
    assert history.acknowledged.keys() <= set(await bench.ids())
    assert await bench.until_tick() > max(history.acknowledged.values())
