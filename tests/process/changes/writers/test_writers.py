"""The progress that relays of records report, with records in memory."""

from __future__ import annotations

import pytest

from mediator.base.observation import ChangesRelayed, FeedGapFound, FeedRollbackFound
from mediator.changes.writers import EXPIRED_S, LEASE_S
from mediator.coordination.scripts import feed_key
from mediator.coordination.writers import RECOVERED, WRITERS
from mediator.stores.port import StoreUnavailable
from tests.process.changes.writers.replicas import Harness
from tests.process.redis_keys import go_back, keys_under


async def test_relayed_changes_are_reported_as_complete(harness: Harness) -> None:
    [one] = await harness.register("one")
    before = await harness.feed.tick()
    ids = [harness.write(one, f"o{n % 5}") for n in range(1_500)]
    while not await harness.until_tick() > before:
        await one.run()
    assert await harness.ids() == ids
    assert sum(o.count for o in harness.observed if isinstance(o, ChangesRelayed)) == 1_500


async def test_nothing_is_complete_before_the_first_sweep(harness: Harness) -> None:
    """Nor before the lease of a replica that the server may have forgotten expires."""
    ids = [harness.write(harness.replica("failed"))]
    one = harness.replica("one")
    await one.run()
    assert await harness.until_tick() < 0
    harness.clock.now_s += EXPIRED_S + 1
    ids.append(harness.write(harness.replica("forgotten")))
    one.store.away = True
    with pytest.raises(StoreUnavailable):
        await one.run()
    assert await harness.until_tick() < 0
    one.store.away = False
    for _ in range(2):
        await one.run()
    assert await harness.ids() == ids
    assert await harness.until_tick() > 0


async def test_a_replica_that_lags_holds_the_time_back(harness: Harness) -> None:
    slow, quick = await harness.register("slow", "quick")
    last = await harness.until_tick()
    harness.write(slow)
    for _ in range(3):
        await quick.run()
        await slow.writers.renew()
        harness.clock.now_s += LEASE_S - 1
    assert await harness.until_tick() <= last
    await slow.run()
    await quick.run()
    assert await harness.until_tick() > last


async def test_a_failed_replica_is_swept_and_retired(harness: Harness) -> None:
    failed, one = await harness.register("failed", "one")
    last, sweeps = await harness.until_tick(), one.store.sweeps
    ids = [harness.write(failed)]
    await one.run()
    harness.clock.now_s += LEASE_S
    await one.run()
    assert await harness.until_tick() <= last, "it may acknowledge to the end of its lease"
    harness.clock.now_s += EXPIRED_S
    for _ in range(3):
        await one.run()
    assert one.store.sweeps > sweeps
    assert await harness.ids() == ids
    assert await harness.until_tick() > last


async def test_a_replica_that_is_cut_off_acknowledges_only_what_the_others_wait_for(
    harness: Harness,
) -> None:
    """No tick published without it passes a change that it acknowledged."""
    cut, one = await harness.register("cut", "one")
    assert cut.writers.may_acknowledge(harness.system, harness.database)
    acknowledged: list[str] = []
    for _ in range(40):
        harness.clock.now_s += 0.5
        if cut.writers.may_acknowledge(harness.system, harness.database):
            acknowledged.append(harness.write(cut))
            last = await harness.feed.tick()
        await one.run()
        if await harness.until_tick() > last:
            assert await harness.ids() == acknowledged
    assert acknowledged
    assert await harness.until_tick() > last


async def test_a_retired_replica_registers_again_and_continues(harness: Harness) -> None:
    quiet, one = await harness.register("quiet", "one")
    ids = [harness.write(quiet)]
    await quiet.run()
    await one.run()
    generation = await harness.feed.generation(harness.database)
    for _ in range(2):
        harness.clock.now_s += EXPIRED_S + 1
        await one.run()
    assert not quiet.writers.may_acknowledge(harness.system, harness.database)
    await quiet.writers.renew()
    assert not quiet.writers.may_acknowledge(harness.system, harness.database), "no feed counts it"
    for _ in range(2):
        await quiet.run()
        assert quiet.writers.may_acknowledge(harness.system, harness.database)
        ids.append(harness.write(quiet))
        written = await harness.feed.tick()
        await one.run()
        assert await harness.until_tick() < written, "it is counted again"
    await quiet.run()
    assert await harness.ids() == ids
    assert FeedRollbackFound(harness.system) not in harness.observed
    assert await harness.feed.generation(harness.database) == generation, "followers go on"


async def test_a_replica_that_ends_is_not_waited_for(harness: Harness) -> None:
    ends, other = await harness.register("ends", "one")
    ids = [harness.write(ends)]
    await ends.relays.close()
    assert not ends.writers.may_acknowledge(harness.system, harness.database)
    assert await harness.ids() == ids
    last = await harness.until_tick()
    await other.run()
    assert await harness.until_tick() > last


async def test_after_a_restart_of_the_server_a_full_lease_is_waited_for(harness: Harness) -> None:
    """It can lack the registration of a cut-off replica that holds its lease."""
    forgotten, one = await harness.register("forgotten", "one")
    await harness.redis.hdel(WRITERS, f"forgotten_{harness.database}")
    await harness.redis.hset(RECOVERED, harness.system, "the last run")
    last = await harness.until_tick()
    await one.run()
    ids = [harness.write(forgotten)]
    harness.clock.now_s += LEASE_S
    await one.run()
    assert await harness.until_tick() <= last
    harness.clock.now_s += EXPIRED_S
    for _ in range(2):
        await one.run()
    assert await harness.ids() == ids
    assert await harness.until_tick() > last


async def test_changes_lost_by_the_feed_are_relayed_first(harness: Harness) -> None:
    [one] = await harness.register("one")
    ids = [harness.write(one) for _ in range(3)]
    await one.run()
    feed = feed_key(harness.database, "")
    older = await keys_under(harness.redis, feed)
    ids += [harness.write(one) for _ in range(3)]
    await one.run()
    generation = await harness.feed.generation(harness.database)
    await go_back(harness.redis, feed, older)
    ids += [harness.write(one) for _ in range(3)]
    await one.run()
    assert await harness.ids() == ids
    assert FeedRollbackFound(harness.system) in harness.observed
    # Changes relayed again can come before positions given out earlier.
    assert await harness.feed.generation(harness.database) != generation
    assert not any(isinstance(o, FeedGapFound) for o in harness.observed)
    await one.run()
    assert harness.observed.count(FeedRollbackFound(harness.system)) == 1
